"""What every sequence-to-sequence model can do: the contract that training and decoding talk to.

    memory = model.encode(source, mask)              what the decoder may look at, once for each source
    states = model.read(target_in, memory)           all steps at once, fed the true target (teacher forcing)
    logits = model.logits(states)                    what the vocabulary layer makes of them
    state  = model.start(memory)                     before the first step
    states, state = model.step(tokens, state)        one step, given the last tokens, with all that is cached

States and vocabulary layer are apart, as over a large vocabulary that layer is most of the time: the loss can do
without ever holding the logits of a whole batch, and a search multiplies with a matrix laid out once.

Letters: B sources, K hypotheses for each source (1 for greedy search), T steps, V target vocabulary. The
hypotheses of one source stand side by side and share its memory, so a beam costs no copies of it.
"""

from typing import Any, Protocol

import torch.nn.functional as F
from torch import Tensor

from regard.models.model import TaskModel


class State(Protocol):
    """All that one step hands to the next, for B sources with K hypotheses each; a value, never changed."""

    def choose(self, hypotheses: Tensor) -> "State":
        """Return the state of some hypotheses of each source: (B, K') int64, indices into K."""

    def keep(self, sources: Tensor) -> "State":
        """Return the state of some of the sources: (B',) int64, indices into B."""


class Seq2Seq(TaskModel):
    """Base of all sequence-to-sequence models.

    The constructor takes an instance of `config_class` and, by name, what the model has to know of a task:
    `source_symbols` and `target_symbols` of the vocabularies, the most steps of a sequence (`longest`), and
    whether the vocabularies are one (`shared`).
    """

    answers = "text"

    def forward(self, source: Tensor, source_mask: Tensor, target_in: Tensor) -> Tensor:
        """Return logits (B, Tt, V) of sources (B, Ts) with mask (B, Ts), fed target_in (B, Tt)."""
        return self.decode(target_in, self.encode(source, source_mask))

    def encode(self, source: Tensor, source_mask: Tensor) -> Any:
        """Return the memory of sources (B, Ts); `source_mask` (B, Ts), True before the end."""
        raise NotImplementedError

    def decode(self, target_in: Tensor, memory: Any) -> Tensor:
        """Return logits (B, Tt, V): step t has been fed target_in (B, Tt) up to and with t."""
        return self.logits(self.read(target_in, memory))

    def read(self, target_in: Tensor, memory: Any, forced: Tensor | None = None) -> Tensor:
        """Return the states (B, Tt, D) from which the vocabulary layer makes the logits of all steps.

        `forced` (B, Tt) bool: where False, the step is fed the model's own last prediction instead of target_in
        (Bengio et al. 2015, scheduled sampling; the most likely token). The first step is always fed target_in.
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
        """Feed one token to each hypothesis, (B, K): returns what the vocabulary layer reads, (B, K, D), and the
        state after it.

        Attention layers are to be called with `step`, the number of the target step from 0: else a record of them
        would not know that a new call goes on with the sequence.
        """
        raise NotImplementedError
