"""Hooks on attention layers, which record or change weights while a model runs.

A layer has at most one hook. A hook is immutable. A nested context sets a new hook and restores the previous
hook on exit.
"""

import dataclasses
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.arguments import public
from regard.attention.functional import attention_weights, repeat_groups, widen
from regard.attention.names import find_name, layer_name, plain_name
from regard.attention.parts import (
    Combination,
    LinearAttention,
    Marked,
    MaskPart,
    Normalizer,
    PositionBias,
    positions_of,
)
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

    def restrict(self, mask: Tensor | None, queries: int, keys: int, device: torch.device) -> Tensor | None:
        """Return a mask, broadcastable to (B, H, Tq, Tk), combined with the mask that depends on positions."""
        if self.mask_part is None:
            return mask
        allowed = self.mask_part.allowed(*positions_of(queries, keys, device))
        return allowed[None, None] if mask is None else mask & allowed

    def weigh(
        self, query: Tensor, keys: Tensor, mask: Tensor | None, marks: Tensor | None, step: int | None = None
    ) -> Tensor:
        """Return the weights (B, H, Tq, Tk) of queries (B, H, Tq, d) and prepared keys (B, H, Tk, any).

        `mask` broadcasts to the scores. `marks` are those of the cache (`KeyValues`). Differential attention has
        2 H score matrices.
        """
        # Scores are computed in float32, so that recorded weights are neither NaN nor rounded to half precision.
        if self.linear is not None or isinstance(self.score, Dot):
            query, keys = widen(query), widen(keys)
        if self.linear is not None:
            implied: Tensor = self.linear(query, keys, mask, marks)
            return implied
        splits = 1 if self.combination is None else self.combination.splits
        if mask is not None and splits > 1 and mask.dim() == 4 and mask.shape[1] > 1:
            mask = mask.repeat(1, splits, 1, 1)  # add_causal alone returns a mask of two dimensions
        scores = self.score.rescale(self.score(query, keys), mask)
        if self.bias is not None:
            bias = self.bias(*positions_of(scores.shape[2], scores.shape[3], scores.device))
            scores = scores + bias.repeat(splits, 1, 1).to(scores.dtype)
        if self.combination is not None:
            scores = self.combination.change_scores(scores, marks, keys, self.score)
        if self.hook is not None:
            scores = self.hook.receive("scores", scores, step)
        weights = attention_weights(scores, mask) if self.normalizer is None else self.normalizer(scores, mask)
        return weights if self.combination is None else self.combination.change_weights(weights)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copying and pickling, without the hook."""
        return {name: value for name, value in vars(self).items() if name != "hook"}


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
    with torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
        # Global hooks run twice for a compiled module. Both calls have the same name, so the records are
        # correct.
        warnings.filterwarnings("ignore", message="Using `torch.compile.module.` when there are global hooks")
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        yield


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
    """Return a copy of a hook with a function that receives some kinds of activations after its other
    receivers."""
    hook = hook or AttentionHook()
    return dataclasses.replace(hook, receivers=(*hook.receivers, (frozenset(kinds), receive)))
