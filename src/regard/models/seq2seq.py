"""Base class of sequence-to-sequence models, with the interface for training and decoding.

    memory = model.encode(source, mask)              once for each source
    states = model.read(target_in, memory)           all steps at once, with the true target (teacher forcing)
    logits = model.logits(states)                    output of the vocabulary layer
    state  = model.start(memory)                     before the first step
    states, state = model.step(tokens, state)        one step for the last tokens, with cached keys and values

`read` and `logits` are separate methods, because a large vocabulary layer takes most of the time. With separate
methods, the loss can avoid storing the logits of a whole batch, and a search can pack the weight once.

Letters: B sources, K hypotheses per source (1 for greedy search), T steps, V target vocabulary. The hypotheses
of a source share its memory, so a beam search does not copy the memory.
"""

from typing import Any, Protocol

from torch import Tensor

from regard.arguments import public
from regard.models.base import AutoregressiveModel


class State(Protocol):
    """Immutable state between two decoding steps, for B sources with K hypotheses each."""

    def choose(self, hypotheses: Tensor) -> "State":
        """Select hypotheses of each source by their indices (B, K') int64."""

    def keep(self, sources: Tensor) -> "State":
        """Select sources by their indices (B',) int64."""


@public
class Seq2Seq(AutoregressiveModel):
    """Base class of all sequence-to-sequence models.

    The constructor takes an instance of `config_class` and properties of the task as keywords: the vocabulary
    sizes `source_symbols` and `target_symbols`, the largest number of steps (`longest`), and whether source and
    target share a vocabulary (`shared`).
    """

    answers = "text"

    def forward(self, source: Tensor, source_mask: Tensor, target_in: Tensor) -> Tensor:
        """Return logits (B, Tt, V) for sources (B, Ts) with mask (B, Ts) and target_in (B, Tt)."""
        return self.decode(target_in, self.encode(source, source_mask))

    def encode(self, source: Tensor, source_mask: Tensor) -> Any:
        """Return the memory of sources (B, Ts), with `source_mask` (B, Ts) True before the end."""
        raise NotImplementedError

    def decode(self, target_in: Tensor, memory: Any) -> Tensor:
        """Return logits (B, Tt, V). Step t depends on steps 0 to t of target_in (B, Tt)."""
        return self.logits(self.read(target_in, memory))

    def read(self, target_in: Tensor, memory: Any, forced: Tensor | None = None) -> Tensor:
        """Return the states (B, Tt, D) of all steps: the inputs of the vocabulary layer.

        `forced` (B, Tt) bool: where False, the input of the step is the model's last prediction instead of
        target_in (scheduled sampling, Bengio et al. 2015, with the most likely token). The input of the first
        step is always target_in.
        """
        raise NotImplementedError

    def start(self, memory: Any) -> State:
        """Return the state before the first step, with one hypothesis per source."""
        raise NotImplementedError

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, State]:
        """Append one token (B, K) to each hypothesis. Returns inputs of the vocabulary layer (B, K, D) and the
        next state.

        Implementations must pass `step` to attention layers: the target step, counted from 0. Without `step`, a
        record cannot detect that a call continues a sequence.
        """
        raise NotImplementedError
