"""Base class of sequence-to-sequence models: the interface that training and decoding use.

    memory = model.encode(source, mask)              once for each source
    states = model.read(target_in, memory)           all steps at once, with the true target (teacher forcing)
    logits = model.logits(states)                    output of the vocabulary layer
    state  = model.start(memory)                     before the first step
    states, state = model.step(tokens, state)        one step for the last tokens, with cached keys and values

`read` and `logits` are separate methods, because a large vocabulary layer takes most of the time: the loss can
avoid holding the logits of a whole batch, and a search can pack the weight once.

Letters: B sources, K hypotheses for each source (1 for greedy search), T steps, V target vocabulary. The
hypotheses of one source share its memory, so a beam copies nothing.
"""

from typing import Any, Protocol

import torch.nn.functional as F
from torch import Tensor

from regard.models.base import TaskModel


class State(Protocol):
    """Decoding state between two steps, for B sources with K hypotheses each; an immutable value."""

    def choose(self, hypotheses: Tensor) -> "State":
        """Return the state of some hypotheses of each source: (B, K') int64, indices into K."""

    def keep(self, sources: Tensor) -> "State":
        """Return the state of some of the sources: (B',) int64, indices into B."""


class Seq2Seq(TaskModel):
    """Base of all sequence-to-sequence models.

    The constructor takes an instance of `config_class` and properties of the task as keywords: the vocabulary
    sizes `source_symbols` and `target_symbols`, the largest number of steps (`longest`), and whether source and
    target share a vocabulary (`shared`).
    """

    answers = "text"

    def forward(self, source: Tensor, source_mask: Tensor, target_in: Tensor) -> Tensor:
        """Return logits (B, Tt, V) of sources (B, Ts) with mask (B, Ts) for target_in (B, Tt)."""
        return self.decode(target_in, self.encode(source, source_mask))

    def encode(self, source: Tensor, source_mask: Tensor) -> Any:
        """Return the memory of sources (B, Ts); `source_mask` (B, Ts), True before the end."""
        raise NotImplementedError

    def decode(self, target_in: Tensor, memory: Any) -> Tensor:
        """Return logits (B, Tt, V): step t depends on target_in (B, Tt) up to and including t."""
        return self.logits(self.read(target_in, memory))

    def read(self, target_in: Tensor, memory: Any, forced: Tensor | None = None) -> Tensor:
        """Return the states (B, Tt, D) of all steps, the inputs of the vocabulary layer.

        `forced` (B, Tt) bool: where False, the step reads the model's last prediction instead of target_in
        (scheduled sampling, Bengio et al. 2015, with the most likely token). The first step always reads
        target_in.
        """
        raise NotImplementedError

    def logits(self, states: Tensor) -> Tensor:
        """Return logits (..., V) of states (..., D)."""
        return F.linear(states, *self.vocabulary_layer)

    @property
    def vocabulary_layer(self) -> tuple[Tensor, Tensor | None]:
        """Weight (V, D) and bias (V,) of the last layer."""
        raise NotImplementedError

    def start(self, memory: Any) -> State:
        """Return the state before the first step, with one hypothesis for each source."""
        raise NotImplementedError

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, State]:
        """Feed one token to each hypothesis, (B, K): returns inputs of the vocabulary layer, (B, K, D), and the
        next state.

        Call attention layers with `step`, the number of the target step from 0. Without `step`, a record cannot
        detect that a call continues a sequence.
        """
        raise NotImplementedError
