"""A batch of samples with a number for each output step."""

from typing import NamedTuple

import torch
from torch import Tensor


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
