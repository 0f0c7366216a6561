"""Batches of a training run, and the objects that produce batches."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from regard.data.batch import PairBatch, copy_to

Position = tuple[int, int, int]  # Position of a batch: epoch, pool, index in the pool
NO_POSITION: Position = (0, 0, 0)
IGNORE = -100
"""Target at a position without an output, which does not count; PyTorch's cross-entropy skips it."""


class Batch(NamedTuple):
    """A batch of samples with one class per output step."""

    inputs: Tensor  # (B, T) int64, vocabulary indices, `PAST_END` after the end
    targets: Tensor  # (B, To) int64, class of each output step
    mask: Tensor | None  # (B, T) bool, True before the end; None if all sequences have full length

    @property
    def outputs(self) -> None:
        """All steps are outputs."""

    @property
    def tokens(self) -> int:
        return self.targets.numel()

    def share(self, rank: int, size: int) -> "Batch":
        """Return the whole batch for every process, because batches of synthetic tasks are too small to split."""
        return self

    def to(self, device: torch.device) -> "Batch":
        return Batch(*copy_to(device, *self))  # type: ignore[arg-type]


class TokenBatch(NamedTuple):
    """A batch of token sequences with their outputs."""

    inputs: Tensor  # (B, T) int64 tokens, `PADDING` after the end; (B, T, W) float32 for real-valued inputs
    targets: Tensor
    """(B, T) int64, the next token, or `IGNORE` without output; for real inputs (B, T) float32, or nan."""
    mask: Tensor | None  # (B, T) bool, True before the end; None if all sequences have full length

    @property
    def is_output(self) -> Tensor:
        return ~self.targets.isnan() if self.targets.is_floating_point() else self.targets != IGNORE

    @property
    def outputs(self) -> Tensor:
        """Return the indices (N,) int64 of the outputs among all steps. The host waits for a GPU."""
        return self.is_output.flatten().nonzero().squeeze(1)

    @property
    def tokens(self) -> int:
        return int(self.is_output.sum())

    def share(self, rank: int, size: int) -> "TokenBatch":
        """Return the rows for one of `size` processes. A process without rows gets one row without outputs, so that all
        processes run the same number of steps."""
        if size == 1:
            return self
        mask = None if self.mask is None else self.mask[rank::size]
        rows = TokenBatch(self.inputs[rank::size], self.targets[rank::size], mask)
        if len(rows.inputs):
            return rows
        return TokenBatch(self.inputs[:1], torch.full_like(self.targets[:1], no_output(self.targets)), None)

    def to(self, device: torch.device) -> "TokenBatch":
        return TokenBatch(*copy_to(device, *self))  # type: ignore[arg-type]


def no_output(targets: Tensor) -> float:
    return float("nan") if targets.is_floating_point() else IGNORE


class BatchSettings(Protocol):
    """Training options that determine the batches; see `TrainingConfig`."""

    @property
    def seed(self) -> int: ...
    @property
    def batchsize(self) -> int: ...
    @property
    def vary_len(self) -> bool: ...
    @property
    def tokens(self) -> int: ...
    @property
    def merge_dropout(self) -> float: ...


@dataclass(frozen=True, kw_only=True)
class BatchContext:
    """Initial position and options for the batches of a training run."""

    generator: torch.Generator  # Generator of the samples
    place: Position = NO_POSITION  # Position of the next batch (see `BatchSource`)
    folder: Path = Path("prepared")  # Folder of prepared corpora
    sharing: tuple[int, int] = (0, 1)  # Rank of this process, and number of processes that share each batch of a corpus
    progress: bool = False  # Whether to show a progress bar during the preparation of a corpus


class BatchSource(Protocol):
    """Batches of a training run."""

    @property
    def place(self) -> Position:
        """Position of the next batch in a corpus, or in the samples for the state of the generator. Always
        `NO_POSITION` if the batches depend only on the training step."""

    def draw(self, step: int) -> Batch | PairBatch | TokenBatch:
        """Return the batch of a training step, counted from 0, and advance `place`."""
