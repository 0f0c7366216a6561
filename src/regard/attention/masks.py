"""Masks and the softmax that respects them.

A mask is boolean and True means *may be attended*, as in `scaled_dot_product_attention`.
Letters: B batch, H heads, T time (Tq of queries, Tk of keys).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError

LANES = 16
"""Numbers in float32 that the widest processors work on at once (AVX-512)."""


def length_mask(lengths: Tensor, time: int) -> Tensor:
    """Return the padding mask of sequences with `lengths` (B,), in steps: (B, time), True before the end."""
    return torch.arange(time, device=lengths.device) < lengths.unsqueeze(-1)


def causal_mask(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """Return the mask (queries, keys) that hides the future: each query sees its own key and those before.

    The queries are the last steps of the keys, so that one new step may see all that a cache holds.
    """
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def as_weights_mask(mask: Tensor, batch: int, queries: int, keys: int) -> Tensor:
    """Give a mask the dimensions of weights (B, H, Tq, Tk), of size 1 where it holds for all.

    Accepts (B, Tk), (Tq, Tk), (B, Tq, Tk) and (B, H, Tq, Tk), with 1 for B, H or Tq where it holds for all.
    Raises `InputError` for another shape, for a mask that is not boolean, and for a mask of two dimensions
    where B and Tq are equal: it could mean either.
    """
    if mask.dtype != torch.bool:
        raise InputError(f"mask is of dtype {mask.dtype}: give torch.bool, where True may be attended")
    shape, rest = tuple(mask.shape), mask.dim() - 1
    by_batch, by_query = shape == (batch, keys), shape == (queries, keys)
    if by_batch and by_query and batch > 1:
        raise InputError(
            f"mask {shape} could be (B, Tk) or (Tq, Tk), which are equal here: "
            f"give it as {(batch, 1, keys)} or {(1, queries, keys)}"
        )
    if by_batch:
        return mask[:, None, None, :]
    if by_query:
        return mask[None, None]
    fits = rest in (2, 3) and shape[-1] == keys and shape[-2] in (1, queries) and shape[0] in (1, batch)
    if not fits:
        raise InputError(
            f"mask {shape} does not fit weights of B {batch}, Tq {queries}, Tk {keys}: "
            f"give (B, Tk), (Tq, Tk), (B, Tq, Tk) or (B, H, Tq, Tk)"
        )
    return mask.unsqueeze(1) if rest == 2 else mask


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Turn scores (..., Tq, Tk) into weights of the same shape and dtype: each row sums to 1.

    The softmax is computed in float32 at least. `mask` broadcasts against `scores`; a row with nothing to
    attend becomes zeros, in the forward and in the backward pass, never NaN.
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


def _softmax(scores: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the softmax over the last dimension, in `dtype`.

    On a CPU rows shorter than `LANES` are filled up first: PyTorch goes through such rows one number after the
    other, which takes up to ten times as long.
    """
    missing = LANES - scores.shape[-1]
    if scores.device.type != "cpu" or torch.compiler.is_compiling() or missing <= 0:
        return scores.softmax(-1, dtype=dtype)
    return F.pad(scores, (0, missing), value=-torch.inf).softmax(-1, dtype=dtype)[..., :-missing]
