"""Who takes the steps of a search: a model's own layers, or what is written out for it."""

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor

from regard.decoding.products import vocabulary_layer
from regard.fast.transformer import FastTransformer, supports
from regard.models import Seq2Seq

WIDEST = 16
"""Prefixes that are best kept side by side: each looks at the keys of all, though it sees its own only."""


class IncrementalDecoder(Protocol):
    """What a search asks of a model, as `Seq2Seq` has it; the state before a step need not outlive it."""

    def encode(self, source: Tensor, source_mask: Tensor) -> Any:
        """Return the memory of sources (B, Ts)."""

    def start(self, memory: Any) -> Any:
        """Return the state before the first step."""

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Feed tokens (B, K): returns states (B, K, D), and the state after it."""

    def logits(self, states: Tensor) -> Tensor:
        """Return logits (..., V) of states (..., D), which belong to who asks."""


class ModuleDecoder:
    """A model's own steps."""

    def __init__(self, model: Seq2Seq) -> None:
        self.encode, self.start, self.step = model.encode, model.start, model.step
        self.logits = vocabulary_layer(model)


def make_decoder(model: Seq2Seq | IncrementalDecoder, width: int = 1) -> IncrementalDecoder:
    """Return what takes the steps of a search that keeps `width` prefixes, while the model's parameters stay as
    they are; what is no model takes them itself."""
    if not isinstance(model, Seq2Seq):
        return model
    return FastTransformer(model) if width <= WIDEST and supports(model) else ModuleDecoder(model)


def compact_rows(going: Sequence[bool]) -> list[int]:
    """Return the rows that go on, those from behind in the places of those that do not: so the fewest move."""
    count = sum(going)
    behind = (row for row in range(count, len(going)) if going[row])
    return [row if going[row] else next(behind) for row in range(count)]
