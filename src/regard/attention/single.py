"""Attention with a single head and no projections (Bahdanau et al. 2015; Luong et al. 2015)."""

from functools import partial

import torch
from torch import Tensor

from regard.arguments import public
from regard.attention.layer import AttentionLayer, attention_forward
from regard.attention.masks import as_weights_mask
from regard.attention.mechanism import Mechanism
from regard.attention.normalizers import without_softmax
from regard.attention.parts import AttentionKind, LayerSizes
from regard.attention.positions import Rotary
from regard.attention.scores import ScaledDot, Score
from regard.errors import InputError

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
