"""Products of a search: a few rows at a time, with the same matrices step after step.

For each product a CPU lays out the matrix anew, as its caches like it: with the rows of one beam of 5 and 12,000
tokens that is most of the time. oneDNN, which PyTorch brings along, multiplies with a matrix that is laid out
already, so a search does that once. Where processors are not Intel's it is also the faster one of many rows (see
`attention.products`).
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from regard.attention import products
from regard.models import Seq2Seq

LARGE = 1 << 18
"""Numbers in a matrix from which that pays for any number of rows."""

MANY = 128
"""Rows from which filling them up costs less than it saves."""


class Product:
    """`states Wᵀ + b`, as `F.linear` has it, of states (N, D); without gradients, while W stays as it is."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        weight, large = weight.detach(), weight.numel() >= LARGE
        self.bias = None if bias is None else bias.detach()
        self._laid_out = torch.ops.mkldnn._reorder_linear_weight(weight) if _packs(weight) else None
        self._rows = math.inf if self._laid_out is None else 0 if large else products.LARGE / weight.numel()
        """From how many rows on the matrix laid out is faster than the one turned."""
        self._turned = weight.t().contiguous() if self._rows else weight.t()

    def __call__(self, states: Tensor) -> Tensor:
        """Return (..., V) of states (..., D); two dimensions alone where the matrix is small."""
        count = states.shape[0]
        if self._laid_out is not None and self._by_onednn(count):
            given = products.filled_up(states) if self._rows else states
            return products.by_onednn(given, self._laid_out, self.bias)[:count]
        if self.bias is None:
            return torch.mm(states, self._turned)
        return torch.addmm(self.bias, states, self._turned)

    def add_to(self, sums: Tensor, states: Tensor) -> Tensor:
        """Add what it makes of states (N, D) to sums (N, V), in place, and return them."""
        if self._by_onednn(states.shape[0]):
            return sums.add_(self(states))
        sums.addmm_(states, self._turned)
        return sums if self.bias is None else sums.add_(self.bias)

    def _by_onednn(self, count: int) -> bool:
        """Whether oneDNN is faster for so many rows: a few are not worth being filled up."""
        return count >= self._rows and (not self._rows or count >= MANY or not count % products.FEWEST)


def vocabulary_layer(model: Seq2Seq) -> Callable[[Tensor], Tensor]:
    """Return what makes logits (..., V) of states (..., D), as `model.logits` does while its parameters stay as
    they are; without gradients."""
    weight, bias = model.vocabulary_layer
    return Product(weight, bias) if weight.numel() >= LARGE and _packs(weight) else model.logits


def _packs(weight: Tensor) -> bool:
    """Whether a matrix is in float32 on a CPU, and there to be multiplied so, as autocast would narrow it; and
    PyTorch has what lays it out."""
    narrowed = torch.is_autocast_enabled("cpu")
    wide = weight.device.type == "cpu" and weight.dtype == torch.float32 and not narrowed
    return wide and products.there()
