"""Attending, with heads apart: the equation written out, or PyTorch's fused kernel for it.

    weights = softmax(score(Q, K))        context = weights V

Letters: B batch, H heads, G groups of heads that share keys and values (G divides H), T time (Tq of queries, Tk
of keys), D width.
"""

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attention.hooks import AttentionHook
from regard.attention.masks import causal_mask, mask_rows
from regard.attention.scores import ScaledDot, Score
from regard.attention.trace import AttentionTrace
from regard.attention.weights import attention_weights, repeat_groups, weighted_sum
from regard.errors import InputError

SHORT = 128
"""Keys up to which weights are worked out in bfloat16 on a CPU."""


def attend(
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

    `key` (B, G, Tk, any) is what `score.prepare` returned. `mask` broadcasts to (B, H, Tq, Tk). `dropout`: share
    of weights that is set to zero. `step`: that of all queries, None where they are all steps from the first on;
    only the observer wants to know. Raises `InputError` for a mask with other heads.
    """
    heads = query.shape[1]
    if mask is not None and mask.shape[1] not in (1, heads):
        raise InputError(f"mask {tuple(mask.shape)} has {mask.shape[1]} heads: expected {heads}, or 1 for all")
    causal = causal and query.shape[2] > 1  # one query is the last step: nothing is after it
    kernel = _takes_kernel(score, key, dropout)
    if kernel and (hook is None or hook.partial):
        if hook is not None:
            _keep_beside(hook, query, key, mask, score=score, causal=causal, step=step)
        return _kernel(query, key, value, mask, causal)
    if causal:
        future = causal_mask(query.shape[2], key.shape[2], query.device)
        mask = future if mask is None else mask & future
    if hook is None:
        return weighted_sum(
            F.dropout(attention_weights(score(query, repeat_groups(key, heads)), mask), dropout), value
        )
    # In float32, so that no weight is NaN or rounded more than it has to be.
    states = (query, repeat_groups(key, heads))
    (scores,) = _exact(score(*(_exact(*states) if type(score) is ScaledDot else states)))
    weights = F.dropout(hook.change(attention_weights(scores, mask), mask, step), dropout)
    context = weighted_sum(weights.to(value.dtype), value)
    inside = None
    if hook.looks_inside:
        keys, values = repeat_groups(key, heads), repeat_groups(value, heads)
        inside = AttentionTrace(query, keys, values, scores, mask, weights, context, step)
    hook.keep(weights, mask, step, inside)
    if hook.by_rows is not None:
        hook.by_rows(weights.shape[2], partial(_some_rows, weights.detach(), mask))
    return context


def _takes_kernel(score: Score, key: Tensor, dropout: float) -> bool:
    """Whether PyTorch's kernel does it: it knows the scaled dot product, and shows its weights to nobody.

    Over short keys in bfloat16 it would be slow: on a CPU its backward pass takes up to four times as long as the
    explicit one (benchmarks/kernels.py).
    """
    if type(score) is not ScaledDot or dropout:
        return False
    short = key.device.type == "cpu" and key.dtype == torch.bfloat16 and key.shape[2] <= SHORT
    return not short


def _exact(*states: Tensor) -> list[Tensor]:
    """Return states of half precision in float32: as in the kernel, no score is too large for it."""
    return [each.float() if each.dtype in (torch.float16, torch.bfloat16) else each for each in states]


def _some_rows(weights: Tensor, mask: Tensor | None, rows: Sequence[int]) -> tuple[Tensor, Tensor | None]:
    shared = mask is None or mask.shape[-2] == 1
    return weights[:, :, list(rows)], mask if mask is None or shared else mask[..., list(rows), :]


@torch.no_grad()
def _keep_beside(
    hook: AttentionHook,
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    *,
    score: Score,
    causal: bool,
    step: int | None,
) -> None:
    """Work out the weights of the heads and rows that an observer asks for, and of no others."""
    queries, keys = query.shape[2], repeat_groups(key, query.shape[1])

    def weights_beside(rows: Sequence[int], query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor | None]:
        some = mask_rows(mask, rows, queries, keys.shape[2], causal=causal, device=query.device)
        return attention_weights(score(*_exact(query, keys)), some), some

    if hook.by_rows is not None:
        hook.by_rows(queries, lambda rows: weights_beside(rows, query[:, :, list(rows)], keys))
    if (recorder := hook.recorder) is not None:
        rows = recorder.rows_of(queries, step)
        some = recorder.select(query, step)
        weights, shown = weights_beside(rows, some, recorder.select_heads(keys))
        recorder.keep(hook.name, weights, shown, queries=queries, step=step)


def _kernel(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Run PyTorch's kernel, which knows the causal mask only where there are as many queries as keys."""
    grouped = False
    if key.shape[1] != query.shape[1]:  # which is no bool itself where layers are compiled for any shape
        grouped = True
    if causal and mask is None and query.shape[2] == key.shape[2]:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)
    if causal:
        future = causal_mask(query.shape[2], key.shape[2], query.device)
        mask = future if mask is None else mask & future
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=grouped)
