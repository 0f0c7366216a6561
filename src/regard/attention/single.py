"""One call of an attention layer, by the equations in `functional` or PyTorch's fused kernel; the single head.

    sharing      keys and values of a group serve several heads, `repeat_groups`
    score        scores  = score(Q, K)                 `Score`; positions that rotate Q and K act before it
    mask         scores of masked keys become very low
    normalizer   weights = softmax(scores)             `attention_weights`
    context      context = weights V                   `weighted_sum`

A layer with other parts (`regard.attention.mechanism`) passes the function `weigh`, which computes weights. Only
`attention_forward` selects the fused kernel. Shapes use the letters defined in `functional`.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.arguments import public
from regard.attention.functional import attention_weights, repeat_groups, weighted_sum, widen
from regard.attention.hooks import AttentionHook, AttentionLayer
from regard.attention.masks import add_causal, as_weights_mask, mask_rows
from regard.attention.mechanism import Mechanism
from regard.attention.normalizers import without_softmax
from regard.attention.parts import AttentionKind, LayerSizes
from regard.attention.positions import Rotary
from regard.attention.scores import ScaledDot, Score
from regard.errors import InputError

Weigh = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""Maps queries (B, H, Tq, D), keys (B, H, Tk, any) and mask to weights (B, H, Tq, Tk)."""
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
    the weights of a mechanism other than the softmax of `score`. `splits`: number of queries and keys
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
    # The kernel has only the scaled dot product. On a CPU with few bfloat16 keys, its backward pass takes up to
    # four times as long as that of the explicit computation (benchmarks/kernels.py).
    fused = (
        weigh is None
        and type(score) is ScaledDot
        and not dropout
        and not (key.device.type == "cpu" and key.dtype == torch.bfloat16 and key.shape[2] <= SHORT)
    )
    if fused and (hook is None or hook.partial):
        if hook is not None:
            _record_selected(hook, query, key, mask, score=score, causal=causal, step=step)
        return _fused_kernel(query, key, value, mask, causal)
    mask = add_causal(mask, query.shape[2], key.shape[2], query.device) if causal else mask
    keys = repeat_groups(key, heads)
    if hook is None:
        weights = attention_weights(score(query, keys), mask) if weigh is None else weigh(query, keys, mask)
        return weighted_sum(F.dropout(weights, dropout).to(value.dtype), value)
    if mask is not None:
        hook.receive("mask", mask, step)
    if weigh is not None:
        weights = weigh(query, keys, mask)
    else:
        # Scores are computed in float32, so that recorded weights are neither NaN nor rounded to half precision.
        # A score with parameters computes in the dtype of its parameters.
        if type(score) is ScaledDot:
            query, keys = widen(query), widen(keys)
        weights = attention_weights(hook.receive("scores", widen(score(query, keys)), step), mask)
    weights = hook.receive("weights", F.dropout(hook.change(weights, mask, step), dropout), step)
    context = weighted_sum(weights.to(value.dtype), value)
    hook.receive("context", context, step)
    hook.keep(weights, mask, step)
    if hook.by_rows is not None:
        hook.by_rows(weights.shape[2], partial(_select_rows, weights.detach(), mask))
    return context


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


SLOTS = ("score", "normalizer", "position", "mask")
"""Slots of a layer without projections."""


@public
class Attention(AttentionLayer):
    """Single-head attention with no projections except those of the score.

    `score`: one of `regard.attention.scores`; None for the scaled dot product (Vaswani et al. 2017, equation
    1). `dropout`: fraction of the weights set to zero during training. `mechanism`: parts for normalizer, mask
    and position bias, such as `"alibi,sink"`; a score part replaces `score`. `kind`: see `MultiHeadAttention`.
    Raises `InputError` for a part that needs projections.

    >>> layer = Attention()
    >>> layer(torch.zeros(1, 2, 8), torch.zeros(1, 3, 8), torch.zeros(1, 3, 5)).shape
    torch.Size([1, 2, 5])
    """

    def __init__(
        self,
        score: Score | None = None,
        dropout: float = 0.0,
        *,
        mechanism: Mechanism | str | None = None,
        kind: AttentionKind = "self",
    ) -> None:
        super().__init__()
        mechanism = Mechanism.for_layer(mechanism, kind)
        check_without_projections(mechanism)
        width = 1 if score is None else score.width
        sizes = LayerSizes(width=width, memory_width=width, heads=1, head_width=width, kind=kind)
        self.causal = kind == "causal"
        if score is None and "score" in mechanism.slots:
            name = mechanism.slots["score"].name
            raise InputError(f"attention part {name} needs a width: give a score of this width")
        built = {slot: choice.build(sizes) for slot, choice in mechanism.slots.items()}
        self.normalizer, self.bias = without_softmax(built.get("normalizer")), built.get("position")
        self.mask_part, score = built.get("mask"), built.get("score", score)
        self.score = ScaledDot(1) if score is None else score  # has no parameters, so any width is possible
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
        step: int | None = None,
    ) -> Tensor:
        """Return the context (B, Tq, Dv) of query (B, Tq, D) over key (B, Tk, Dk) and value (B, Tk, Dv).

        `mask`: (B, Tk), (Tq, Tk) or (B, Tq, Tk), True = may be attended. `causal`: each query attends to the
        key at its own step and to earlier keys; the queries are the last steps of the keys. `prepared`: whether
        `key` is the result of `score.prepare`, which can be reused. `step`, for hooks: decoding step of the
        query, or None if the queries cover the whole sequence. Raises `InputError` for incompatible shapes.
        """
        check_states(query, key, value)
        if mask is not None:
            mask = as_weights_mask(mask, query.shape[0], query.shape[1], key.shape[1])
        if not prepared:
            self._check_widths(query, key)
            key = self.score.prepare(key)
        mask = self.restrict(mask, query.shape[1], key.shape[1], query.device)
        context = attention_forward(
            query.unsqueeze(1),
            key.unsqueeze(1),
            value.unsqueeze(1),
            mask,
            score=self.score,
            weigh=None if self.weighs_by_softmax else partial(self.weigh, marks=None, step=step),
            causal=causal or self.causal,
            dropout=self.dropout if self.training else 0.0,
            hook=self.hook,
            step=step,
        )
        if self.hook is None:
            return context.squeeze(1)
        return self.hook.receive("out", self.hook.receive("z", context, step).squeeze(1), step)

    def _check_widths(self, query: Tensor, key: Tensor) -> None:
        widths = (query.shape[-1], query.shape[-1]) if self.widths is None else self.widths
        if (query.shape[-1], key.shape[-1]) != widths:
            raise InputError(
                f"query {tuple(query.shape)} and key {tuple(key.shape)} do not fit the score: "
                f"expected widths {widths[0]} and {widths[1]}"
            )


def check_without_projections(mechanism: Mechanism) -> None:
    """Raise `InputError` for a part that needs heads with projections."""
    for slot, choice in mechanism.slots.items():
        if slot not in SLOTS or choice.cls is Rotary:
            raise InputError(f"attention part {choice.name} needs heads with projections: use multi-head attention")


def check_states(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raise `InputError` unless query (B, Tq, any), key (B, Tk, any) and value (B, Tk, any) have these shapes
    and the same dtype."""
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if not query.dim() == key.dim() == value.dim() == 3:
        raise InputError(f"{shapes} are not all (B, T, D): give three dimensions for each tensor")
    if not query.shape[0] == key.shape[0] == value.shape[0] or key.shape[1] != value.shape[1]:
        raise InputError(f"{shapes} do not fit: expected (B, Tq, D), (B, Tk, D) and (B, Tk, Dv)")
    if not query.dtype == key.dtype == value.dtype and not torch.is_autocast_enabled(query.device.type):
        raise InputError(
            f"query, key and value are {query.dtype}, {key.dtype}, {value.dtype}: give the same dtype for all"
        )
