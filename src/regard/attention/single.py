"""Scaled dot-product attention with a single head (Vaswani et al. 2017, section 3.2.1, equation 1).

    weights = softmax(Q Kᵀ / √D)        context = weights V

`attend` is the arithmetic, shared with the multi-head layer; `Attention` is the layer without parameters
that the primer's first tasks use.
"""

import torch.nn.functional as F
from torch import Tensor

from regard.attention.masks import as_weights_mask, masked_softmax
from regard.attention.recording import Recordable


def scaled_dot_scores(query: Tensor, key: Tensor) -> Tensor:
    """Score queries (..., Tq, D) against keys (..., Tk, D): (..., Tq, Tk), the dot product over √D."""
    return query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5


def attend(layer: Recordable, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Attend with heads apart: query (B, H, Tq, D), key and value (B, H, Tk, D) to context (B, H, Tq, D).

    Takes the fused kernel unless `layer` is being recorded. `mask` broadcasts to (B, H, Tq, Tk).
    """
    if layer.recorder is None:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    weights = masked_softmax(scaled_dot_scores(query, key), mask)
    layer.keep(weights, mask)
    return weights @ value


class Attention(Recordable):
    """Single-head scaled dot-product attention without projections."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the context (B, Tq, D) of query (B, Tq, D) over key and value (B, Tk, D).

        `mask`: (B, Tk) or (B, Tq, Tk), True = may be attended.
        """
        mask = None if mask is None else as_weights_mask(mask)
        return attend(self, query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1), mask).squeeze(1)
