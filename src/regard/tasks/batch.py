"""Batches of a training run, and the objects that produce batches."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from regard.data import PairBatch

Position = tuple[int, int, int]
"""Position of a batch: epoch, pool, index in the pool."""
NO_POSITION: Position = (0, 0, 0)


class Batch(NamedTuple):
    """A batch of samples with one class per output step."""

    inputs: Tensor
    """(B, T) int64, vocabulary indices, `PAST_END` after the end."""
    targets: Tensor
    """(B, To) int64, class of each output step."""
    mask: Tensor | None
    """(B, T) bool, True before the end; None if all sequences have full length."""

    @property
    def tokens(self) -> int:
        """Number of outputs."""
        return self.targets.numel()

    def share(self, rank: int, size: int) -> "Batch":
        """Return the whole batch for every process, because batches of synthetic tasks are too small to
        split."""
        del rank, size
        return self

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device."""
        mask = None if self.mask is None else self.mask.to(device)
        return Batch(self.inputs.to(device), self.targets.to(device), mask)


class BatchSettings(Protocol):
    """Settings of a training run that determine the batches."""

    @property
    def seed(self) -> int:
        """Random seed."""

    @property
    def batchsize(self) -> int:
        """Number of samples per batch; for a corpus, the maximum number of sentences (0 for no limit)."""

    @property
    def vary_len(self) -> bool:
        """Whether the length of samples varies."""

    @property
    def tokens(self) -> int:
        """Maximum number of tokens per batch of a corpus."""

    @property
    def merge_dropout(self) -> float:
        """Probability of skipping a BPE merge."""


@dataclass(frozen=True, kw_only=True)
class BatchContext:
    """Initial position and options for the batches of a training run."""

    generator: torch.Generator
    """Generator of the samples."""
    place: Position = NO_POSITION
    """Position of the next batch (see `BatchSource`)."""
    folder: Path = Path("prepared")
    """Folder of prepared corpora."""
    sharing: tuple[int, int] = (0, 1)
    """Rank of this process, and number of processes that share each batch of a corpus."""
    progress: bool = False
    """Whether to show a progress bar during the preparation of a corpus."""


class BatchSource(Protocol):
    """Batches of a training run."""

    @property
    def place(self) -> Position:
        """Position of the next batch in a corpus, or in the samples for the state of the generator.

        Always `NO_POSITION` if the batches depend only on the training step.
        """

    def draw(self, step: int) -> Batch | PairBatch:
        """Return the batch of a training step, counted from 0, and advance `place`."""
