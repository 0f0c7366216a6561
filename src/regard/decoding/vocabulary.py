"""The vocabulary layer in a search: a few rows at a time, times the same large matrix.

For each product a CPU lays out the matrix anew, as its caches like it: with the rows of one beam of 5 and 12,000
tokens that is most of the time. oneDNN, which PyTorch brings along, multiplies with a matrix that is laid out
already, so a search does that once.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from regard.models import Seq2Seq

LARGE = 1 << 18
"""Numbers in a matrix from which that pays."""


def vocabulary_layer(model: Seq2Seq) -> Callable[[Tensor], Tensor]:
    """Return what makes logits (..., V) of states (..., D), as `model.logits` does while its parameters stay as
    they are; without gradients."""
    weight, bias = model.vocabulary_layer
    if not _pays(weight):
        return model.logits
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach())
    bias = None if bias is None else bias.detach()

    def logits(states: Tensor) -> Tensor:
        found: Tensor = torch.ops.mkldnn._linear_pointwise(states, packed, bias, "none", [], "")
        return found

    return logits


def _pays(weight: Tensor) -> bool:
    """Whether a matrix is large, in float32 on a CPU, and there to be multiplied so: autocast would narrow it."""
    narrowed = torch.is_autocast_enabled("cpu")
    wide = weight.device.type == "cpu" and weight.dtype == torch.float32 and not narrowed
    return wide and weight.numel() >= LARGE and _packs()


def _packs() -> bool:
    """Whether PyTorch was built with oneDNN, and has the product that its own compiler uses."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
