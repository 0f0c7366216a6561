"""Projected keys and values of an attention layer."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class KeyValues(NamedTuple):
    """Projected keys and values of a source, or of the steps decoded so far, cached for later queries."""

    keys: Tensor
    """(B, G, Tk, any): projected, rotated and, unless the sharing part changes keys, prepared for the score. With
    latent attention, the latent vectors (B, 1, Tk, R)."""
    values: Tensor
    """(B, G, Tk, d). With latent attention, (B, 1, Tk, 0), or (B, 1, Tk, R) for values of other states than the
    keys."""
    marks: Tensor | None = None
    """What a part stores for each key, (B, any, Tk, any), such as forget gates; None for most mechanisms."""

    def map(self, function: Callable[[Tensor], Tensor]) -> "KeyValues":
        return KeyValues(
            function(self.keys), function(self.values), None if self.marks is None else function(self.marks)
        )

    def append(self, new: "KeyValues") -> "KeyValues":
        marks = None if self.marks is None or new.marks is None else torch.cat([self.marks, new.marks], dim=2)
        return KeyValues(
            torch.cat([self.keys, new.keys], dim=2), torch.cat([self.values, new.values], dim=2), marks
        )
