"""Attention with a single head: score, mask, softmax, context.

    weights = softmax(score(Q, K))        context = weights V

`attend` is the arithmetic, shared with the multi-head layer; `Attention` is the layer, with whatever score.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attention.intervening import changed
from regard.attention.masks import as_weights_mask, causal_mask, masked_softmax
from regard.attention.recording import Recordable
from regard.attention.scores import ScaledDot, Score
from regard.errors import InputError

SHORT = 128
"""Keys up to which weights are computed explicitly in bfloat16 on a CPU."""


class Attention(Recordable):
    """Attention with one head and no projections but its score's.

    `score`: any of `regard.attention.scores`; None is the scaled dot product (Vaswani et al. 2017, equation 1).
    `dropout`: share of weights set to zero while training.
    """

    def __init__(self, score: Score | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        self.score = ScaledDot(1) if score is None else score  # without parameters, any width will do
        self.widths = None if score is None else (score.width, score.key_width)
        self.dropout = dropout

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
        prepared: bool = False,
    ) -> Tensor:
        """Return the context (B, Tq, Dv) of query (B, Tq, D) over key (B, Tk, Dk) and value (B, Tk, Dv).

        `mask`: (B, Tk), (Tq, Tk) or (B, Tq, Tk), True = may be attended. `causal`: each query sees its own key
        and those before, the queries being the last of the keys. `prepared`: key is what `score.prepare`
        returned, computed once for many calls. Raises `InputError` where shapes do not fit.
        """
        check_states(query, key, value)
        if mask is not None:
            mask = as_weights_mask(mask, len(query), query.shape[1], key.shape[1])
        if not prepared:
            self._check_widths(query, key)
            key = self.score.prepare(key)
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        return attend(self, self.score, query, key, value, mask, causal=causal, dropout=self.dropout).squeeze(1)

    def _check_widths(self, query: Tensor, key: Tensor) -> None:
        widths = (query.shape[-1], query.shape[-1]) if self.widths is None else self.widths
        if (query.shape[-1], key.shape[-1]) != widths:
            raise InputError(
                f"query {tuple(query.shape)} and key {tuple(key.shape)} do not fit the score: "
                f"expected widths {widths[0]} and {widths[1]}"
            )


def check_states(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raise `InputError` unless these are batches of sequences of one batch size, key and value as long."""
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if not query.dim() == key.dim() == value.dim() == 3:
        raise InputError(f"{shapes} are not all (B, T, D): give three dimensions each")
    if not len(query) == len(key) == len(value) or key.shape[1] != value.shape[1]:
        raise InputError(f"{shapes} do not fit: expected (B, Tq, D), (B, Tk, D) and (B, Tk, Dv)")
    if not query.dtype == key.dtype == value.dtype and not torch.is_autocast_enabled(query.device.type):
        raise InputError(f"query, key and value are {query.dtype}, {key.dtype}, {value.dtype}: give one dtype")


def attend(
    layer: Recordable,
    score: Score,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    causal: bool,
    dropout: float,
) -> Tensor:
    """Attend with heads apart: query (B, H, Tq, D) and value (B, G, Tk, Dv) to context (B, H, Tq, Dv).

    `key` (B, G, Tk, any) is what `score.prepare` returned. G groups of heads share keys and values; G divides H.
    `mask` broadcasts to (B, H, Tq, Tk). The scaled dot product takes PyTorch's fused kernel, unless dropout is
    active, `layer` is recorded as a whole or intervened in, or sequences are short, in bfloat16, on a CPU: then
    the weights are computed explicitly.
    """
    if mask is not None and mask.shape[1] not in (1, query.shape[1]):
        raise InputError(
            f"mask {tuple(mask.shape)} has {mask.shape[1]} heads: expected {query.shape[1]}, or 1 for all"
        )
    causal = causal and query.shape[2] > 1  # one query is the last step: nothing is after it
    recorder, dropout = layer.recorder, dropout if layer.training else 0.0
    fused = layer.fused and type(score) is ScaledDot and not dropout and not layer.interventions
    fused = fused and not _short(key)
    if fused and recorder is not None and recorder.partial:
        with torch.no_grad():
            rows = range(query.shape[2]) if recorder.rows is None else recorder.rows
            some = _rows_of(mask, causal, rows, query, key)
            keys = recorder.select_heads(_each_head(key, query.shape[1]))
            weights = masked_softmax(score(recorder.select(query), keys), some)
        recorder.keep(layer.record_name, weights, some)
    if fused and (recorder is None or recorder.partial):
        return _fused(query, key, value, mask, causal)
    if causal:
        future = causal_mask(query.shape[2], key.shape[2], query.device)
        mask = future if mask is None else mask & future
    key, value = _each_head(key, query.shape[1]), _each_head(value, query.shape[1])
    weights = F.dropout(changed(layer, masked_softmax(score(query, key), mask), mask), dropout)
    if recorder is not None:
        shown = mask if mask is None else recorder.select(mask.expand_as(weights))
        recorder.keep(layer.record_name, recorder.select(weights), shown)
    return weights @ value


def _short(key: Tensor) -> bool:
    """Whether the kernel would be slow over keys (B, G, Tk, any): on a CPU its backward pass in bfloat16 takes
    up to four times as long as the explicit one (benchmarks/kernels.py)."""
    return key.device.type == "cpu" and key.dtype == torch.bfloat16 and key.shape[2] <= SHORT


def _fused(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
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


def _each_head(states: Tensor, heads: int) -> Tensor:
    """Repeat the states of each group (B, G, T, D) for its heads: (B, H, T, D)."""
    groups = states.shape[1]
    return states if groups == heads else states.repeat_interleave(heads // groups, dim=1)


def _rows_of(mask: Tensor | None, causal: bool, rows: Sequence[int], query: Tensor, key: Tensor) -> Tensor | None:
    """Return the mask of some query rows, without building that of the others."""
    if mask is not None and mask.shape[2] > 1:
        mask = mask[:, :, list(rows)]
    if causal:
        steps = torch.arange(key.shape[2], device=query.device)
        last = torch.tensor(list(rows), device=query.device) + key.shape[2] - query.shape[2]
        seen = steps <= last.unsqueeze(-1)
        mask = seen if mask is None else mask & seen
    return mask
