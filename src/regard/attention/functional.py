"""The arithmetic of attention, with heads apart from each other: functions without state.

    weights = softmax(score(Q, K))        context = weights V

`attention_forward` evaluates these equations, or calls PyTorch's fused kernel for them.

Letters: B batch, H heads, G groups of heads that share keys and values (G divides H), T time (Tq of queries, Tk
of keys), D width.
"""

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attention.hooks import AttentionHook
from regard.attention.layer_record import AttentionTrace
from regard.attention.masks import causal_mask, mask_rows
from regard.attention.scores import ScaledDot, Score
from regard.errors import InputError
from regard.fast.softmax import padded_softmax

SHORT = 128
"""Keys up to which bfloat16 weights are computed explicitly on a CPU."""


def attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    score: Score,
    causal: bool = False,
    dropout: float = 0.0,
    hook: AttentionHook | None = None,
    step: int | None = None,
) -> Tensor:
    """Return the context (B, H, Tq, Dv) of query (B, H, Tq, D) over value (B, G, Tk, Dv).

    `key` (B, G, Tk, any) comes from `score.prepare`. `mask` broadcasts to (B, H, Tq, Tk). `dropout`: share of
    weights that is set to zero. `step`, for the hook: the step of all queries, None if they are all steps from
    the first on. Raises `InputError` for a mask with another number of heads.
    """
    heads = query.shape[1]
    if mask is not None and mask.shape[1] not in (1, heads):
        raise InputError(f"mask {tuple(mask.shape)} has {mask.shape[1]} heads: expected {heads}, or 1 for all")
    causal = causal and query.shape[2] > 1  # a single query is the last step: no key comes after it
    if _use_kernel(score, key, dropout) and (hook is None or hook.partial):
        if hook is not None:
            _keep_selected(hook, query, key, mask, score=score, causal=causal, step=step)
        return _kernel(query, key, value, mask, causal)
    if causal:
        mask = _with_causal(mask, query, key)
    if hook is None:
        weights = attention_weights(score(query, repeat_groups(key, heads)), mask)
        return weighted_sum(F.dropout(weights, dropout), value)
    # float32, so that recorded weights are neither NaN nor rounded to half precision.
    states = (query, repeat_groups(key, heads))
    (scores,) = _float32(score(*(_float32(*states) if type(score) is ScaledDot else states)))
    weights = F.dropout(hook.change(attention_weights(scores, mask), mask, step), dropout)
    context = weighted_sum(weights.to(value.dtype), value)
    trace = None
    if hook.needs_trace:
        keys, values = repeat_groups(key, heads), repeat_groups(value, heads)
        trace = AttentionTrace(query, keys, values, scores, mask, weights, context, step)
    hook.keep(weights, mask, step, trace)
    if hook.by_rows is not None:
        hook.by_rows(weights.shape[2], partial(_select_rows, weights.detach(), mask))
    return context


def attention_weights(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the weights for scores (..., Tq, Tk), of the same shape and dtype: each row sums to 1.

    The softmax is computed in float32 at least. `mask` broadcasts to `scores`, True = may be attended. A fully
    masked row becomes zeros, forward and backward, never NaN.

    >>> attention_weights(torch.zeros(1, 2), torch.tensor([[True, False]]))
    tensor([[1., 0.]])
    """
    wide = torch.promote_types(scores.dtype, torch.float32)
    if mask is None:
        # A recorded tensor must not be a view with gaps.
        return padded_softmax(scores, wide).to(scores.dtype).contiguous()
    # The mask is added, which takes one pass over the scores. The offset is finite, because a row of -inf gives 0
    # / 0, and half of the lowest number, so that no score makes the sum infinite.
    offsets = torch.zeros((), dtype=wide, device=mask.device).masked_fill(~mask, torch.finfo(wide).min / 2)
    not_empty = mask.any(-1, keepdim=True).to(wide)
    return (padded_softmax(scores + offsets, wide) * not_empty).to(scores.dtype)


def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Return the context (B, H, Tq, D) of weights (B, H, Tq, Tk) over values (B, G, Tk, D)."""
    return weights @ repeat_groups(values, weights.shape[1])


def uniform_weights(like: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return equal weights on all keys that may be attended, in the shape (..., Tq, Tk) of `like`.

    `mask` broadcasts to them, True = may be attended; a fully masked row is zero.
    """
    if mask is None:
        return torch.full_like(like, 1 / like.shape[-1])
    allowed = mask.expand_as(like).to(like.dtype)
    return allowed / allowed.sum(-1, keepdim=True).clamp(min=1)


def tempered_weights(weights: Tensor, temperature: float) -> Tensor:
    """Return weights (..., Tq, Tk) as if their scores had been divided by a temperature.

    `softmax(s / t)` is `softmax(s) ** (1 / t)`, normalized again. Above 1 a row becomes more even, below 1 more
    peaked. A row of zeros stays zero.
    """
    logarithms = weights.double().log() / temperature
    return logarithms.softmax(-1).nan_to_num(0.0).to(weights.dtype)


def repeat_groups(states: Tensor, heads: int) -> Tensor:
    """Repeat the states of each group (B, G, T, D) for its heads: (B, H, T, D)."""
    groups = states.shape[1]
    return states if groups == heads else states.repeat_interleave(heads // groups, dim=1)


def _use_kernel(score: Score, key: Tensor, dropout: float) -> bool:
    """Return whether PyTorch's kernel computes the context: it has the scaled dot product, and returns no
    weights.

    On a CPU, for short keys in bfloat16, its backward pass takes up to four times as long as the explicit one
    (benchmarks/kernels.py).
    """
    if type(score) is not ScaledDot or dropout:
        return False
    short = key.device.type == "cpu" and key.dtype == torch.bfloat16 and key.shape[2] <= SHORT
    return not short


def _kernel(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Call PyTorch's kernel, which has a causal mask only for as many queries as keys."""
    grouped = False
    if key.shape[1] != query.shape[1]:  # the comparison is not a bool if layers are compiled for any shape
        grouped = True
    if causal and mask is None and query.shape[2] == key.shape[2]:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)
    if causal:
        mask = _with_causal(mask, query, key)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=grouped)


def _with_causal(mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor:
    future = causal_mask(query.shape[2], key.shape[2], query.device)
    return future if mask is None else mask & future


def _float32(*states: Tensor) -> list[Tensor]:
    """Return half-precision states in float32, in which no score overflows; the kernel does the same."""
    return [state.float() if state.dtype in (torch.float16, torch.bfloat16) else state for state in states]


def _select_rows(weights: Tensor, mask: Tensor | None, rows: Sequence[int]) -> tuple[Tensor, Tensor | None]:
    shared = mask is None or mask.shape[-2] == 1
    return weights[:, :, list(rows)], mask if mask is None or shared else mask[..., list(rows), :]


@torch.no_grad()
def _keep_selected(
    hook: AttentionHook,
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    *,
    score: Score,
    causal: bool,
    step: int | None,
) -> None:
    """Compute the weights of the heads and rows that a hook selects, and no others."""
    queries, keys = query.shape[2], repeat_groups(key, query.shape[1])

    def weights_of_rows(rows: Sequence[int], query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor | None]:
        row_mask = mask_rows(mask, rows, queries, keys.shape[2], causal=causal, device=query.device)
        return attention_weights(score(*_float32(query, keys)), row_mask), row_mask

    if hook.by_rows is not None:
        hook.by_rows(queries, lambda rows: weights_of_rows(rows, query[:, :, list(rows)], keys))
    if (recorder := hook.recorder) is not None:
        rows = recorder.rows_of(queries, step)
        selected = recorder.select(query, step)
        weights, row_mask = weights_of_rows(rows, selected, recorder.select_heads(keys))
        recorder.keep(hook.name, weights, row_mask, queries=queries, step=step)
