"""One call of an attention layer, computed by the equations in `functional` or by PyTorch's fused kernel.

An attention mechanism has these parts, in this order:

    sharing      keys and values of a group serve several heads, `repeat_groups`
    score        scores  = score(Q, K)                 `Score`; positions that rotate Q and K act before it
    mask         scores of masked keys become very low
    normalizer   weights = softmax(scores)             `attention_weights`
    context      context = weights V                   `weighted_sum`

A layer with other parts (`regard.attention.mechanism`) passes the function `weigh`, which computes scores and
weights. Only `attention_forward` selects the fused kernel. Shapes use the letters defined in `functional`.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.arguments import public
from regard.attention.functional import attention_weights, repeat_groups, weighted_sum, widen
from regard.attention.hooks import AttentionHook
from regard.attention.masks import add_causal, mask_rows
from regard.attention.scores import ScaledDot, Score
from regard.errors import InputError

Weigh = Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]]
"""Maps queries (B, H, Tq, D), keys (B, H, Tk, any) and mask to scores and weights (B, H, Tq, Tk)."""
SHORT = 128
"""Largest number of keys for which a CPU computes bfloat16 weights explicitly."""


@public
def attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    score: Score,
    weigh: Weigh | None = None,
    splits: int = 1,
    causal: bool = False,
    dropout: float = 0.0,
    hook: AttentionHook | None = None,
    step: int | None = None,
) -> Tensor:
    """Return the context (B, H, Tq, Dv) of query (B, H, Tq, D) over value (B, G, Tk, Dv).

    `key` (B, G, Tk, any) comes from `score.prepare`. `mask` broadcasts to (B, H, Tq, Tk). `weigh`: function for
    the scores and weights of a mechanism other than the softmax of `score`. `splits`: number of queries and keys
    of each head, in differential attention. `dropout`: fraction of the weights that are set to zero. `step`, for
    the hook: decoding step of the query, or None if the queries cover the whole sequence. Raises `InputError` if
    the number of heads in the mask is neither 1 nor that of the layer.

    >>> states = torch.ones(1, 2, 3, 4)
    >>> attention_forward(states, states, states, score=ScaledDot(4)).shape
    torch.Size([1, 2, 3, 4])
    """
    heads = query.shape[1]
    if mask is not None and mask.shape[1] not in (1, heads // splits):
        raise InputError(
            f"mask {tuple(mask.shape)} has {mask.shape[1]} heads: expected {heads // splits}, or 1 for all"
        )
    if hook is not None:
        query, key, value = (hook.receive(*part, step) for part in (("q", query), ("k", key), ("v", value)))
    causal = causal and query.shape[2] > 1  # a single query is the last step: no key comes after it
    if weigh is None and _use_kernel(score, key, dropout) and (hook is None or hook.partial):
        if hook is not None:
            _record_selected(hook, query, key, mask, score=score, causal=causal, step=step)
        return _fused_kernel(query, key, value, mask, causal)
    mask = add_causal(mask, query.shape[2], key.shape[2], query.device) if causal else mask
    keys = repeat_groups(key, heads)
    if hook is not None:
        weigh = weigh or partial(_weigh, score, hook, step)
        return _hooked_forward(hook, query, keys, value, mask, weigh=weigh, dropout=dropout, step=step)
    weights = attention_weights(score(query, keys), mask) if weigh is None else weigh(query, keys, mask)[1]
    return weighted_sum(F.dropout(weights, dropout).to(value.dtype), value)


def _hooked_forward(
    hook: AttentionHook,
    query: Tensor,
    keys: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    weigh: Weigh,
    dropout: float,
    step: int | None,
) -> Tensor:
    """Return the context (B, H, Tq, Dv); a hook changes and records the weights (B, H, Tq, Tk)."""
    if mask is not None:
        hook.receive("mask", mask, step)
    _, weights = weigh(query, keys, mask)
    weights = hook.receive("weights", F.dropout(hook.change(weights, mask, step), dropout), step)
    context = weighted_sum(weights.to(value.dtype), value)
    hook.receive("context", context, step)
    hook.keep(weights, mask, step)
    if hook.by_rows is not None:
        hook.by_rows(weights.shape[2], partial(_select_rows, weights.detach(), mask))
    return context


def _weigh(
    score: Score, hook: AttentionHook, step: int | None, query: Tensor, keys: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    # Scores are computed in float32, so that recorded weights are neither NaN nor rounded to half precision. A
    # score with parameters computes in the dtype of its parameters.
    if type(score) is ScaledDot:
        query, keys = widen(query), widen(keys)
    scores = hook.receive("scores", widen(score(query, keys)), step)
    return scores, attention_weights(scores, mask)


def _use_kernel(score: Score, key: Tensor, dropout: float) -> bool:
    """Return whether to use PyTorch's fused kernel, which supports only the scaled dot product.

    On a CPU with few bfloat16 keys, the backward pass of the kernel takes up to four times as long as that of
    the explicit computation (benchmarks/kernels.py).
    """
    if type(score) is not ScaledDot or dropout:
        return False
    short = key.device.type == "cpu" and key.dtype == torch.bfloat16 and key.shape[2] <= SHORT
    return not short


def _fused_kernel(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Return the context (B, H, Tq, Dv) computed by PyTorch's kernel, which never stores all scores."""
    grouped = False
    if key.shape[1] != query.shape[1]:  # the comparison is not a bool if compiled for any shape
        grouped = True
    # The kernel supports a causal mask only if there are as many queries as keys; it then skips the masked half.
    if causal and mask is None and query.shape[2] == key.shape[2]:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)
    mask = add_causal(mask, query.shape[2], key.shape[2], query.device) if causal else mask
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=grouped)


def _select_rows(weights: Tensor, mask: Tensor | None, rows: Sequence[int]) -> tuple[Tensor, Tensor | None]:
    shared = mask is None or mask.shape[-2] == 1
    return weights[:, :, list(rows)], mask if mask is None or shared else mask[..., list(rows), :]


@torch.no_grad()
def _record_selected(
    hook: AttentionHook,
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    *,
    score: Score,
    causal: bool,
    step: int | None,
) -> None:
    """Compute only the weights of the heads and rows that a hook selects."""
    queries, keys = query.shape[2], repeat_groups(key, query.shape[1])

    def weights_of_rows(rows: Sequence[int], query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor | None]:
        row_mask = mask_rows(mask, rows, queries, keys.shape[2], causal=causal, device=query.device)
        return attention_weights(score(widen(query), widen(keys)), row_mask), row_mask

    if hook.by_rows is not None:
        hook.by_rows(queries, lambda rows: weights_of_rows(rows, query[:, :, list(rows)], keys))
    if (recorder := hook.recorder) is not None:
        rows = recorder.rows_of(queries, step)
        selected = recorder.select(query, step)
        weights, row_mask = weights_of_rows(rows, selected, recorder.select_heads(keys))
        recorder.keep(hook.name, weights, row_mask, queries=queries, step=step)
