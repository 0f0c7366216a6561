"""Batches of a training, and the objects that produce them."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from regard.data import PairBatch

Position = tuple[int, int, int]
"""Of a batch: epoch, pool, batch."""
NO_POSITION: Position = (0, 0, 0)


class Batch(NamedTuple):
    """A batch of samples."""

    inputs: Tensor
    """(B, T) int64, vocabulary indices, `PAST_END` past the end."""
    targets: Tensor
    """(B, To) int64, the class of each output step."""
    mask: Tensor | None
    """(B, T) bool, True before the end; None where every sequence is full."""

    @property
    def tokens(self) -> int:
        """Outputs that the batch asks for."""
        return self.targets.numel()

    def share(self, rank: int, size: int) -> "Batch":
        """Return the part of one of `size` processes: all of it, for such batches are too small to be split."""
        del rank, size
        return self

    def to(self, device: torch.device) -> "Batch":
        """Return the same batch on another device."""
        mask = None if self.mask is None else self.mask.to(device)
        return Batch(self.inputs.to(device), self.targets.to(device), mask)


class BatchSettings(Protocol):
    """What of a training's settings decides its batches."""

    @property
    def seed(self) -> int:
        """Random seed."""

    @property
    def batchsize(self) -> int:
        """Samples in a batch, for tasks that draw them; of a corpus the most, 0 for no limit."""

    @property
    def vary_len(self) -> bool:
        """Whether samples have all lengths."""

    @property
    def tokens(self) -> int:
        """Tokens in a batch of a corpus."""

    @property
    def merge_dropout(self) -> float:
        """Share of BPE's merges that are passed over."""


@dataclass(frozen=True, kw_only=True)
class BatchContext:
    """From where a training goes on."""

    generator: torch.Generator
    """Draws samples one after the other."""
    place: Position = NO_POSITION
    """Of the next batch; see `BatchSource`."""
    folder: Path = Path("prepared")
    """Where corpora are kept."""
    sharing: tuple[int, int] = (0, 1)
    """Which process this is, and of how many that share each batch of a corpus."""
    progress: bool = False
    """Whether to show how far the preparation of a corpus has come."""


class BatchSource(Protocol):
    """The batches of a training."""

    @property
    def place(self) -> Position:
        """Which batch of a corpus comes next; of drawn ones, which of those that follow the generator's state;
        `NO_POSITION` for ever where that is the next."""

    def draw(self, step: int) -> Batch | PairBatch:
        """Return the batch of a training step, counted from 0; `place` goes on by itself."""
