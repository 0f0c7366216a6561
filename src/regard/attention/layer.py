"""What all attention layers share: one call of a layer, and the hook that records or changes it.

    sharing      keys and values of a group serve several heads, `repeat_groups`
    score        scores  = score(Q, K)                 `Score`; positions that rotate Q and K act before it
    mask         scores of masked keys become very low
    normalizer   weights = softmax(scores)             `attention_weights`
    context      context = weights V                   `weighted_sum`

`AttentionLayer.contexts` evaluates these equations, or calls PyTorch's fused kernel. Its method `weigh` computes the
weights of a layer with other parts (`regard.attention.mechanism`). Shapes use the letters defined in `functional`.

A layer has at most one hook. A hook is immutable. A nested context sets a new hook, and restores the old one on exit.
"""

import dataclasses
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.arguments import public
from regard.attention.functional import attention_weights, repeat_groups, weighted_sum, widen
from regard.attention.masks import add_causal, as_weights_mask, mask_rows
from regard.attention.mechanism import Mechanism
from regard.attention.names import find_name, layer_name, plain_name
from regard.attention.parts import (
    AttentionKind,
    Combination,
    LayerSizes,
    LinearAttention,
    Marked,
    MaskPart,
    Normalizer,
    PositionBias,
    positions_of,
)
from regard.attention.positions import Rotary
from regard.attention.records import Recorder
from regard.attention.scores import Dot, ScaledDot, Score
from regard.errors import InputError

Change = Callable[[Tensor, Tensor | None, int | None], Tensor]
"""Maps weights (B, H, Tq, Tk), their mask and the step of the queries to changed weights. The step is None if
the queries cover the whole sequence."""
Receive = Callable[[str, Tensor, int | None], Tensor]
"""Maps the kind of an activation, its value and the step of the queries to the value that the layer uses."""
RowWeights = Callable[[Sequence[int]], tuple[Tensor, Tensor | None]]
"""Maps indices of query rows to the weights (B, H, rows, Tk) and mask of these rows."""
SHORT = 128
"""Largest number of keys for which a CPU computes bfloat16 weights explicitly."""
_stances: list[Any] = []  # of the compiler, set by the blocks of `disable_compile`


@public
@dataclass(frozen=True, kw_only=True)
class AttentionHook:
    """Changes and records the weights of a layer. A layer with a hook computes its weights explicitly."""

    changes: tuple[Change, ...] = ()
    """Changes, applied in the order of their registration."""
    recorder: Recorder | None = None
    """Recorder that stores the changed weights."""
    name: str = ""
    """Name of the layer for the recorder."""
    receivers: tuple[tuple[frozenset[str], Receive], ...] = ()
    """Kinds of activations (q, k, v, scores, weights, z, out), and the function that receives them. Queries,
    keys, values and contexts are (B, T, H, d)."""
    by_rows: Callable[[int, RowWeights], None] | None = None
    """Function called with the number of queries and a function that computes the weights of selected rows."""

    @property
    def partial(self) -> bool:
        """Whether the fused kernel may compute the output: no weights are changed, and only some heads or rows
        are recorded, which the layer computes in addition."""
        if self.changes or self.wants("scores") or self.wants("weights"):
            return False
        if self.recorder is not None:
            return self.recorder.partial
        return self.by_rows is not None or bool(self.receivers)

    def wants(self, kind: str) -> bool:
        return any(kind in kinds for kinds, _ in self.receivers)

    def receive(self, kind: str, value: Tensor, step: int | None) -> Tensor:
        """Pass an activation to all receivers, and return the value that the layer uses.

        `value`: (B, H, T, d), (B, H, Tq, Tk), or (B, T, D) of the output of a layer.
        """
        if not self.wants(kind):
            return value
        by_step = kind in ("q", "k", "v", "z")
        value = value.transpose(1, 2) if by_step else value
        for kinds, receive in self.receivers:
            if kind in kinds:
                value = receive(kind, value, step)
        return value.transpose(1, 2) if by_step else value

    def change(self, weights: Tensor, mask: Tensor | None, step: int | None) -> Tensor:
        """Return the weights (B, H, Tq, Tk) after all changes."""
        for change in self.changes:
            weights = change(weights, mask, step)
        return weights

    def keep(self, weights: Tensor, mask: Tensor | None, step: int | None) -> None:
        """Pass the weights (B, H, Tq, Tk) of the selected heads and rows to the recorder."""
        if self.recorder is not None:
            selected_mask = mask if mask is None else self.recorder.select(mask.expand_as(weights), step)
            selected = self.recorder.select(weights, step)
            self.recorder.keep(self.name, selected, selected_mask, queries=weights.shape[2], step=step)


@public
class AttentionLayer(nn.Module):
    """Base class of attention layers. The weights of each head can be recorded and changed."""

    score: Score
    """Similarity of queries and keys."""
    normalizer: Normalizer | None
    """Function from scores to weights; None for the softmax."""
    bias: PositionBias | None
    """Positions that add a number to each score."""
    mask_part: MaskPart | None
    """Mask that depends on positions."""
    combination: Combination | None
    """Change of scores and weights."""
    linear: LinearAttention | None
    """Replaces score and normalizer."""
    hook: AttentionHook | None = None
    """Current hook, set by `attach_hooks`."""
    heads: int = 1
    kind: AttentionKind = "self"
    dropout: float = 0.0

    def __init__(self) -> None:
        super().__init__()
        # A class attribute would hide a submodule with the same name.
        self.normalizer = self.bias = self.mask_part = self.combination = self.linear = None

    @property
    def marked(self) -> Marked | None:
        """The part that stores marks in the cache and may change the context, or None."""
        return self.linear if self.combination is None else self.combination

    @property
    def normalized(self) -> bool:
        """Whether each row of weights sums to 1, or to 0 if it is fully masked."""
        parts = (self.normalizer, self.combination, self.linear)
        return all(part is None or part.normalized for part in parts)

    @property
    def weighs_by_softmax(self) -> bool:
        """Whether the weights are the softmax of the scaled dot product, which the fused kernel computes."""
        parts = (self.normalizer, self.bias, self.combination, self.linear)
        return type(self.score) is ScaledDot and all(part is None for part in parts)

    @property
    def standard(self) -> bool:
        """Whether the layer computes attention as Vaswani et al. 2017 do, so that faster code may replace it."""
        return self.weighs_by_softmax and self.mask_part is None

    @property
    def splits(self) -> int:
        """Number of queries, keys and scores of each head; two in differential attention."""
        return 1 if self.combination is None else self.combination.splits

    def contexts(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        marks: Tensor | None = None,
        *,
        causal: bool,
        step: int | None,
    ) -> Tensor:
        """Return the context (B, H, Tq, Dv) of query (B, H, Tq, D) over value (B, G, Tk, Dv).

        `key` (B, G, Tk, any) comes from `score.prepare`. `mask` broadcasts to (B, H, Tq, Tk); the mask that depends on
        positions restricts it. `marks` are those of the cache (`KeyValues`). `step`, for the hook: decoding step of
        the query, or None if the queries cover the whole sequence. Raises `InputError` if the number of heads in the
        mask is neither 1 nor that of the layer.
        """
        heads, hook, dropout = query.shape[1], self.hook, self.dropout if self.training else 0.0
        if self.mask_part is not None:
            allowed = self.mask_part.allowed(*positions_of(query.shape[2], key.shape[2], query.device))
            mask = allowed[None, None] if mask is None else mask & allowed
        if mask is not None and mask.shape[1] not in (1, heads // self.splits):
            raise InputError(
                f"mask {tuple(mask.shape)} has {mask.shape[1]} heads: expected {heads // self.splits}, or 1 for all"
            )
        if hook is not None:
            query, key, value = (hook.receive(*part, step) for part in (("q", query), ("k", key), ("v", value)))
        # A single query is the last step: no key comes after it.
        causal = (causal or self.kind == "causal") and query.shape[2] > 1
        # The kernel has only the scaled dot product. On a CPU with few bfloat16 keys, its backward pass takes up to
        # four times as long as that of the explicit computation (benchmarks/kernels.py).
        fused = (
            self.weighs_by_softmax
            and not dropout
            and not (key.device.type == "cpu" and key.dtype == torch.bfloat16 and key.shape[2] <= SHORT)
        )
        if fused and (hook is None or hook.partial):
            if hook is not None:
                self._record_selected(hook, query, key, mask, causal, step)
            return _fused_kernel(query, key, value, mask, causal)
        mask = add_causal(mask, query.shape[2], key.shape[2], query.device) if causal else mask
        keys = repeat_groups(key, heads)
        if hook is None:
            if self.weighs_by_softmax:  # without a hook, scores may have half precision
                weights = attention_weights(self.score(query, keys), mask)
            else:
                weights = self.weigh(query, keys, mask, marks)
            return weighted_sum(F.dropout(weights, dropout).to(value.dtype), value)
        if mask is not None:
            hook.receive("mask", mask, step)
        weights = self.weigh(query, keys, mask, marks, step)
        weights = hook.receive("weights", F.dropout(hook.change(weights, mask, step), dropout), step)
        context = weighted_sum(weights.to(value.dtype), value)
        hook.receive("context", context, step)
        hook.keep(weights, mask, step)
        if hook.by_rows is not None:
            hook.by_rows(weights.shape[2], partial(_select_rows, weights.detach(), mask))
        return context

    @torch.no_grad()
    def _record_selected(
        self, hook: AttentionHook, query: Tensor, key: Tensor, mask: Tensor | None, causal: bool, step: int | None
    ) -> None:
        """Compute only the weights of the heads and rows that a hook selects."""
        queries, keys = query.shape[2], repeat_groups(key, query.shape[1])

        def weights_of_rows(rows: Sequence[int], query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor | None]:
            row_mask = mask_rows(mask, rows, queries, keys.shape[2], causal=causal, device=query.device)
            return attention_weights(self.score(widen(query), widen(keys)), row_mask), row_mask

        if hook.by_rows is not None:
            hook.by_rows(queries, lambda rows: weights_of_rows(rows, query[:, :, list(rows)], keys))
        if (recorder := hook.recorder) is not None:
            rows = recorder.rows_of(queries, step)
            selected = recorder.select(query, step)
            weights, row_mask = weights_of_rows(rows, selected, recorder.select_heads(keys))
            recorder.keep(hook.name, weights, row_mask, queries=queries, step=step)

    def weigh(
        self, query: Tensor, keys: Tensor, mask: Tensor | None, marks: Tensor | None, step: int | None = None
    ) -> Tensor:
        """Return the weights (B, H, Tq, Tk) of queries (B, H, Tq, d) and prepared keys (B, H, Tk, any).

        `mask` broadcasts to the scores. `marks` are those of the cache (`KeyValues`). Differential attention has
        2 H score matrices.
        """
        # Scores are computed in float32, so that recorded weights are neither NaN nor rounded to half precision. A
        # score with parameters computes in the dtype of its parameters.
        if self.linear is not None or isinstance(self.score, Dot):
            query, keys = widen(query), widen(keys)
        if self.linear is not None:
            implied: Tensor = self.linear(query, keys, mask, marks)
            return implied
        if mask is not None and self.splits > 1 and mask.dim() == 4 and mask.shape[1] > 1:
            mask = mask.repeat(1, self.splits, 1, 1)  # add_causal alone returns a mask of two dimensions
        scores = self.score.rescale(self.score(query, keys), mask)
        if self.bias is not None:
            bias = self.bias(*positions_of(scores.shape[2], scores.shape[3], scores.device))
            scores = scores + bias.repeat(self.splits, 1, 1).to(scores.dtype)
        if self.combination is not None:
            scores = self.combination.change_scores(scores, marks, keys, self.score)
        if self.hook is not None:
            scores = self.hook.receive("scores", widen(scores), step)
        weights = attention_weights(scores, mask) if self.normalizer is None else self.normalizer(scores, mask)
        return weights if self.combination is None else self.combination.change_weights(weights)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copying and pickling, without the hook."""
        return {name: value for name, value in vars(self).items() if name != "hook"}


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


@public
def attention_layers(model: nn.Module) -> dict[str, AttentionLayer]:
    """Return the Regard attention layers of a model by dotted name.

    >>> from regard.attention.blocks import EncoderLayer
    >>> list(attention_layers(EncoderLayer(12, 3, 24)))
    ['self_attention']
    """
    return {plain_name(name): layer for name, layer in model.named_modules() if isinstance(layer, AttentionLayer)}


@public
def find_layer(model: nn.Module, name: str) -> AttentionLayer:
    """Return the Regard attention layer with a dotted name; `.layers` may be omitted from the name.

    Raises `InputError` for an unknown name.

    >>> from regard.attention.blocks import EncoderLayer
    >>> find_layer(EncoderLayer(12, 3, 24), "self_attention").heads
    3
    """
    layers = attention_layers(model)
    if (known := find_name(name, layers)) is not None:
        return layers[known]
    with suppress(AttributeError):  # a further name of a shared layer
        if isinstance(layer := model.get_submodule(name), AttentionLayer):
            return layer
    names = ", ".join(layer_name(model, path) for path in layers)
    raise InputError(
        f"layer {name!r} is not in the model: choose {names or 'another model, because this model has no attention'}"
    )


@contextmanager
def attach_hooks(hooks: Mapping[AttentionLayer, AttentionHook]) -> Iterator[None]:
    """Attach hooks to layers in the block, and restore the previous hooks on exit."""
    before = {layer: layer.hook for layer in hooks}
    for layer, hook in hooks.items():
        layer.hook = hook
    try:
        yield
    finally:
        for layer, previous in before.items():
            layer.hook = previous


@contextmanager
def disable_compile() -> Iterator[None]:
    """Run compiled modules eagerly in the block, because compiled code calls no hooks."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    _stances.append(torch.compiler.set_stance("force_eager"))
    try:
        with warnings.catch_warnings():
            # Global hooks run twice for a compiled module. Both calls have the same name, so the records are correct.
            warnings.filterwarnings("ignore", message="Using `torch.compile.module.` when there are global hooks")
            warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
            yield
    finally:  # the last stance, whichever thread set it: the blocks of several threads end in any order
        _stances.pop().__exit__(None, None, None)


@public
@contextmanager
def explicit_weights(model: nn.Module) -> Iterator[None]:
    """Compute all weights explicitly in the block, for code such as `torch.func.vmap` that has no fused kernel.

    >>> from regard.attention.multihead import MultiHeadAttention
    >>> layer = MultiHeadAttention(12, heads=3)
    >>> with explicit_weights(layer):
    ...     layer(torch.zeros(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """
    hooks = {layer: layer.hook or AttentionHook() for layer in attention_layers(model).values()}
    partial = {
        layer: with_receiver(hook, ["weights"], lambda kind, value, step: value)
        for layer, hook in hooks.items()
        if hook.partial
    }
    with attach_hooks(hooks | partial):
        yield


class LayerCall(NamedTuple):
    """All tensors of one call of an attention layer, by head, connected to the autograd graph."""

    query: Tensor
    """(B, H, Tq, D), input of the score: projected, and rotated if the layer has rotary positions."""
    key: Tensor
    """(B, H, Tk, any), prepared by the score."""
    value: Tensor
    """(B, H, Tk, Dv)."""
    scores: Tensor
    """(B, H, Tq, Tk), before the mask."""
    mask: Tensor | None
    """Broadcastable to the scores, True = may be attended; None if there is no mask."""
    weights: Tensor
    """(B, H, Tq, Tk), after interventions."""
    context: Tensor
    """(B, H, Tq, Dv): weights times values."""
    step: int | None
    """Decoding step of the query, or None if the queries cover the whole sequence."""


@contextmanager
def trace_layer(layer: AttentionLayer) -> Iterator[list[LayerCall]]:
    """Yield a list to which each call of a layer in the block is added."""
    calls: list[LayerCall] = []
    parts: dict[str, Tensor] = {}

    def receive(kind: str, value: Tensor, step: int | None) -> Tensor:
        parts[kind] = value
        if kind == "context":  # the last one
            weights, count = parts["weights"], parts["q"].shape[2]
            heads = weights.shape[1]  # differential attention has two queries, keys and scores for each head
            query, key = (repeat_groups(parts[name].transpose(1, 2), count)[:, :heads] for name in ("q", "k"))
            values, scores = repeat_groups(parts["v"].transpose(1, 2), heads), parts.get("scores", weights)
            mask = parts.get("mask")
            calls.append(LayerCall(query, key, values, scores[:, :heads], mask, weights, value, step))
            parts.clear()
        return value

    kinds = ("q", "k", "v", "scores", "mask", "weights", "context")
    with attach_hooks({layer: with_receiver(layer.hook, kinds, receive)}):
        yield calls


def with_change(hook: AttentionHook | None, change: Change) -> AttentionHook:
    """Return a copy of a hook with `change` added after its other changes."""
    hook = hook or AttentionHook()
    return dataclasses.replace(hook, changes=(*hook.changes, change))


def with_receiver(hook: AttentionHook | None, kinds: Iterable[str], receive: Receive) -> AttentionHook:
    """Return a copy of a hook with a function that receives some kinds of activations after its other receivers."""
    hook = hook or AttentionHook()
    return dataclasses.replace(hook, receivers=(*hook.receivers, (frozenset(kinds), receive)))


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
        self.kind = kind
        if score is None and "score" in mechanism.slots:
            name = mechanism.slots["score"].name
            raise InputError(f"attention part {name} needs a width: give a score of this width")
        built = {slot: choice.build(sizes) for slot, choice in mechanism.slots.items()}
        self.normalizer, self.bias = built.get("normalizer"), built.get("position")
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
            widths = (query.shape[-1], query.shape[-1]) if self.widths is None else self.widths
            if (query.shape[-1], key.shape[-1]) != widths:
                raise InputError(
                    f"query {tuple(query.shape)} and key {tuple(key.shape)} do not fit the score: "
                    f"expected widths {widths[0]} and {widths[1]}"
                )
            key = self.score.prepare(key)
        by_head = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        context = self.contexts(*by_head, mask, causal=causal, step=step)
        if self.hook is None:
            return context.squeeze(1)
        return self.hook.receive("out", self.hook.receive("z", context, step).squeeze(1), step)


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
