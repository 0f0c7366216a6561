"""The arithmetic of attention, apart from any layer.

    weights = softmax(scores)        context = weights V

Letters: B batch, H heads, G groups of heads that share keys and values, T time (Tq of queries, Tk of keys), D
width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

LANES = 16
"""Numbers in float32 that the widest processors work on at once (AVX-512)."""


def attention_weights(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Turn scores (..., Tq, Tk) into weights of the same shape and dtype: each row sums to 1.

    The softmax is computed in float32 at least. `mask` broadcasts against `scores`, True = may be attended; a row
    with nothing to attend becomes zeros, in the forward and in the backward pass, never NaN.
    """
    wide = torch.promote_types(scores.dtype, torch.float32)
    if mask is None:
        # Those who record weights are not to get a view with gaps.
        return _softmax(scores, wide).to(scores.dtype).contiguous()
    # What hides a step is added, in the precision of the softmax: one pass over the scores. It is a finite
    # number, for a row of -inf would be 0 / 0, and so far from the lowest one that no score makes it that.
    hidden = torch.zeros((), dtype=wide, device=mask.device).masked_fill(~mask, torch.finfo(wide).min / 2)
    seeing = mask.any(-1, keepdim=True).to(wide)
    return (_softmax(scores + hidden, wide) * seeing).to(scores.dtype)


def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Return the context (B, H, Tq, D): values (B, G, Tk, D), weighed by weights (B, H, Tq, Tk); G divides H."""
    return weights @ repeat_groups(values, weights.shape[1])


def uniform_weights(like: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return weights (..., Tq, Tk) of the shape of `like` that are alike on all that may be attended.

    `mask` broadcasts to them, True = may be attended; a row with nothing to attend is zero.
    """
    if mask is None:
        return torch.full_like(like, 1 / like.shape[-1])
    allowed = mask.expand_as(like).to(like.dtype)
    return allowed / allowed.sum(-1, keepdim=True).clamp(min=1)


def tempered_weights(weights: Tensor, temperature: float) -> Tensor:
    """Return what weights (..., Tq, Tk) would be if their scores had been divided by a temperature.

    `softmax(s / t)` is `softmax(s) ** (1 / t)`, brought to a sum of 1 again: above 1 a row becomes more even,
    below 1 more pointed. A row of zeros stays so.
    """
    logarithms = weights.double().log() / temperature
    return logarithms.softmax(-1).nan_to_num(0.0).to(weights.dtype)


def repeat_groups(states: Tensor, heads: int) -> Tensor:
    """Repeat the states of each group (B, G, T, D) for its heads: (B, H, T, D)."""
    groups = states.shape[1]
    return states if groups == heads else states.repeat_interleave(heads // groups, dim=1)


def _softmax(scores: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the softmax over the last dimension, in `dtype`.

    On a CPU rows shorter than `LANES` are filled up first: PyTorch goes through such rows one number after the
    other, which takes up to ten times as long.
    """
    missing = LANES - scores.shape[-1]
    if scores.device.type != "cpu" or torch.compiler.is_compiling() or missing <= 0:
        return scores.softmax(-1, dtype=dtype)
    return F.pad(scores, (0, missing), value=-torch.inf).softmax(-1, dtype=dtype)[..., :-missing]
