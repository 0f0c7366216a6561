"""Masks and the softmax that respects them.

A mask is boolean and True means *may be attended*, as in `scaled_dot_product_attention`.
Letters: B batch, H heads, T time (Tq of queries, Tk of keys).
"""

import torch
from torch import Tensor


def length_mask(lengths: Tensor, time: int) -> Tensor:
    """Return the padding mask of sequences with `lengths` (B,), in steps: (B, time), True before the end."""
    return torch.arange(time, device=lengths.device) < lengths.unsqueeze(-1)


def as_weights_mask(mask: Tensor) -> Tensor:
    """Give a mask the shape of weights (B, H, Tq, Tk), so that it broadcasts against them.

    Accepts (B, Tk) or (B, Tq, Tk); a mask with four dimensions passes unchanged.
    """
    match mask.dim():
        case 2:
            return mask[:, None, None, :]
        case 3:
            return mask[:, None, :, :]
        case _:
            return mask


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Turn scores (..., Tq, Tk) into weights of the same shape and dtype: each row sums to 1.

    The softmax is computed in float32 at least. `mask` broadcasts against `scores`; a row with nothing to
    attend becomes zeros, in the forward and in the backward pass, never NaN.
    """
    wide = scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores
    if mask is None:
        return wide.softmax(-1).to(scores.dtype)
    # The lowest finite number instead of -inf: a row of -inf would be 0 / 0.
    weights = wide.masked_fill(~mask, torch.finfo(wide.dtype).min).softmax(-1)
    return weights.masked_fill(~mask, 0.0).to(scores.dtype)
