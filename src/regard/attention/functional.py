"""The equations of attention for each head, as functions without state.

    weights = softmax(score(Q, K))        context = weights V

`layer.AttentionLayer.contexts` evaluates these equations for a layer, or calls PyTorch's fused kernel for them.

Letters: B batch, H heads, G groups of heads that share keys and values (G divides H), T time (Tq of queries, Tk
of keys), D width.
"""

import math
from typing import Annotated

import torch
from torch import Tensor

from regard.arguments import Limits, public
from regard.errors import InputError
from regard.fast.softmax import padded_softmax


@public
def attention_weights(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the attention weights for scores (..., Tq, Tk), with the same shape and dtype. Each row sums to 1.

    The softmax is computed in float32 or float64. `mask` broadcasts to `scores`, True = may be attended. In a
    fully masked row, weights and gradients are zero, not NaN.

    >>> attention_weights(torch.zeros(1, 2), torch.tensor([[True, False]]))
    tensor([[1., 0.]])
    """
    wide = torch.promote_types(scores.dtype, torch.float32)
    if mask is None:
        # Recorded tensors must be contiguous.
        return padded_softmax(scores, wide).to(scores.dtype).contiguous()
    if mask.dtype != torch.bool:
        raise InputError(f"mask is of dtype {mask.dtype}: give torch.bool, where True means may be attended")
    # Adding the mask takes a single pass over the scores. The offset is finite, because the softmax of a row of
    # -inf is 0 / 0. The offset is half of the lowest representable number, so that its sum with a score is
    # finite.
    offsets = torch.zeros((), dtype=wide, device=mask.device).masked_fill(~mask, torch.finfo(wide).min / 2)
    not_empty = mask.any(-1, keepdim=True).to(wide)
    return (padded_softmax(scores + offsets, wide) * not_empty).to(scores.dtype)


@public
def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Return the context (B, H, Tq, D) of weights (B, H, Tq, Tk) over values (B, G, Tk, D).

    >>> weighted_sum(torch.tensor([[[[0.25, 0.75]]]]), torch.tensor([[[[0.0], [4.0]]]]))
    tensor([[[[3.]]]])
    """
    return weights @ repeat_groups(values, weights.shape[1])


@public
def uniform_weights(like: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return equal weights for all keys that may be attended, with the shape (..., Tq, Tk) of `like`.

    `mask` broadcasts to the weights, True = may be attended. A fully masked row is zero.

    >>> uniform_weights(torch.zeros(1, 4), torch.tensor([True, True, False, False]))
    tensor([[0.5000, 0.5000, 0.0000, 0.0000]])
    """
    if mask is None:
        return torch.full_like(like, 1 / like.shape[-1])
    allowed = mask.expand_as(like).to(like.dtype)
    return allowed / allowed.sum(-1, keepdim=True).clamp(min=1)


@public
def tempered_weights(weights: Tensor, temperature: Annotated[float, Limits(0, math.inf, "both")]) -> Tensor:
    """Return the weights (..., Tq, Tk) that result if the scores are divided by a temperature.

    `softmax(s / t)` is `softmax(s) ** (1 / t)`, normalized again. A temperature above 1 makes a row more
    uniform; a temperature below 1 makes it more peaked. A row of zeros stays zero.

    >>> tempered_weights(torch.tensor([[0.2, 0.8]]), 0.5)
    tensor([[0.0588, 0.9412]])
    """
    logarithms = weights.double().log() / temperature
    return logarithms.softmax(-1).nan_to_num(0.0).to(weights.dtype)


def key_counts(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return the number of keys that each query may attend to, at least 1, with the dtype of the scores:
    broadcastable to (B, H, Tq, 1).
    """
    if mask is None:
        return scores.new_full((1,), scores.shape[-1])
    return mask.expand(*mask.shape[:-1], scores.shape[-1]).sum(-1, keepdim=True).clamp(min=1).to(scores.dtype)


def widen(states: Tensor) -> Tensor:
    """Return half-precision states in float32, and other states unchanged."""
    return states.float() if states.dtype in (torch.float16, torch.bfloat16) else states


def repeat_groups(states: Tensor, heads: int) -> Tensor:
    """Repeat the states of each group (B, G, T, D) for its heads: (B, H, T, D)."""
    groups = states.shape[1]
    return states if groups == heads else states.repeat_interleave(heads // groups, dim=1)
