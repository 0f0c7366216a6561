"""Change and record the attention weights of Regard's own layers while a model runs.

    with intervene(model, "decoder.0.cross", heads=[2], to="uniform"):
        model(inputs)

A record shows which tokens a model attends to. An intervention tests whether this attention affects the output.
An intervention ablates a head (Michel et al. 2019, section 2.3), makes a head attend uniformly, or sets a
single weight. Weights change after the softmax, so records contain the changed weights. Interventions can be
nested; outer contexts are applied first.
"""

import dataclasses
import math
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from regard.arguments import public
from regard.attention.descriptions import can_be_negative, describe_normalizer, describe_weights, follows_softmax
from regard.attention.functional import tempered_weights, uniform_weights
from regard.attention.layer import (
    AttentionHook,
    AttentionLayer,
    attach_hooks,
    attention_layers,
    disable_compile,
    find_layer,
    with_change,
)
from regard.attention.names import find_name, known_name, layer_name
from regard.attention.records import Recorder, Records, check_indices
from regard.errors import InputError

To = Literal["off", "uniform"]


class _Active(threading.local):
    """Active interventions of a thread, as pairs of a model and a description."""

    def __init__(self) -> None:
        self.all: list[tuple[nn.Module, str]] = []
        self.suspended = False


_active = _Active()


@contextmanager
def note_intervention(model: nn.Module, description: str) -> Iterator[None]:
    """Register an intervention in a model, so that attention maps made in the block list the intervention."""
    _active.all.append((model, description))
    try:
        yield
    finally:
        _active.all.remove((model, description))


def active_interventions(model: nn.Module) -> tuple[str, ...]:
    """Return descriptions of this thread's interventions in a model or in its submodules: `cross: head 1 off`."""
    if not _active.all or _active.suspended:
        return ()
    parts = set(model.modules())
    return tuple(description for owner, description in _active.all if owner in parts or model in owner.modules())


@contextmanager
def suspend_interventions() -> Iterator[None]:
    """Hide the active interventions of this thread in the block."""
    before, _active.suspended = _active.suspended, True
    try:
        yield
    finally:
        _active.suspended = before


def _describe_heads(heads: Sequence[int] | None) -> str:
    if heads is None:
        return "all heads"
    return f"head{'s' if len(heads) != 1 else ''} {', '.join(map(str, heads))}"


@public
@dataclass(frozen=True, kw_only=True)
class Intervention:
    """A change of the weights of some heads of a layer."""

    heads: tuple[int, ...] | None = None
    """None: every head."""
    to: To | float = "off"
    """off: all weights are zero. uniform: the weights of all keys that may be attended are equal. A number from
    0 to 1: the weight of `query` on `key`. The other weights of the query keep their proportions."""
    query: int | None = None
    """Step of the query whose weight is set; None unless `to` is a number."""
    key: int | None = None
    """Step of the key."""

    def __post_init__(self) -> None:
        """Raise `InputError` if the fields are incompatible."""
        has_position = self.query is not None and self.key is not None
        if isinstance(self.to, str):
            if self.to not in ("off", "uniform"):
                raise InputError(f"to {self.to!r} is unknown: choose off, uniform, or a weight from 0 to 1")
            if self.query is not None or self.key is not None:
                raise InputError(f"to {self.to!r} changes whole heads: omit query and key")
        elif not has_position:
            raise InputError(f"to {self.to} is the weight of one query on one key: give query and key")
        elif not (math.isfinite(self.to) and 0 <= self.to <= 1):
            raise InputError(f"to {self.to} is out of range: choose a weight from 0 to 1")

    def describe(self, layer: str) -> str:
        """Return a description of the change.

        >>> Intervention(heads=(1,)).describe("decoder.0.cross")
        'decoder.0.cross: head 1 off'
        """
        name = f"{layer}: {_describe_heads(self.heads)}"
        if isinstance(self.to, str):
            return f"{name} {self.to}"
        return f"{name}, weight of query {self.query} on key {self.key} set to {self.to:.6g}"

    def apply(self, weights: Tensor, mask: Tensor | None, step: int | None) -> Tensor:
        """Return changed weights (B, H, Tq, Tk).

        `mask` broadcasts to the weights. `step`: decoding step of the query, or None if the queries cover the
        whole sequence. A row that may not attend to the key is unchanged. Raises `InputError` for a head, query
        or key out of range.
        """
        if _active.suspended:
            return weights
        heads = range(weights.shape[1]) if self.heads is None else self.heads
        check_indices("head", heads, weights.shape[1])
        chosen = torch.zeros(weights.shape[1], 1, 1, dtype=torch.bool, device=weights.device)
        chosen[list(heads)] = True
        # Zero weights make the context of the head zero: this is the ablation of Michel et al. 2019, section 2.3.
        if self.to == "off":
            return weights.masked_fill(chosen, 0.0)
        if self.to == "uniform":
            return torch.where(chosen, uniform_weights(weights, mask), weights)
        assert self.query is not None and self.key is not None and not isinstance(self.to, str)
        check_indices("key", [self.key], weights.shape[3])
        if step is None:
            check_indices("query", [self.query], weights.shape[2])
            rows = torch.arange(weights.shape[2], device=weights.device) == self.query
        elif step == self.query:
            rows = torch.ones(weights.shape[2], dtype=torch.bool, device=weights.device)
        else:
            return weights  # the query belongs to a different step
        return torch.where(chosen & rows.unsqueeze(-1), _set_weight(weights, mask, self.key, self.to), weights)


def _set_weight(weights: Tensor, mask: Tensor | None, key: int, value: float) -> Tensor:
    """Return rows in which the weight on `key` is `value` and the other weights keep their proportions."""
    is_key = torch.arange(weights.shape[-1], device=weights.device) == key
    others = weights.masked_fill(is_key, 0.0)
    total = others.sum(-1, keepdim=True)
    # If all other weights are zero, they have no proportions and become equal.
    even = uniform_weights(weights, ~is_key if mask is None else mask & ~is_key)
    shares = torch.where(total > 0, others / total.clamp(min=torch.finfo(weights.dtype).tiny), even)
    row_sum = weights.sum(-1, keepdim=True)  # below 1 in models with an attention sink
    remainder = torch.where(row_sum > 0, row_sum, 1.0).clamp(min=value) - value
    rows = torch.where(is_key, value, shares * remainder)
    if mask is None:
        return rows
    # A row whose key is masked is unchanged.
    return torch.where(mask.expand_as(weights)[..., key : key + 1], rows, weights)


@public
@contextmanager
def intervene(
    model: nn.Module,
    layer: str,
    *,
    heads: Sequence[int] | None = None,
    to: To | float = "off",
    query: int | None = None,
    key: int | None = None,
    is_call: Callable[[int | None], bool] | None = None,
) -> Iterator[None]:
    """Change the attention weights of one of Regard's layers in the block, as `regard.intervene` does in any model.

    `is_call`: function that receives the decoding step of each call and returns whether to change the call;
    `layer` may then be `name#1`. Raises `InputError` for an unknown layer, and, when the model runs, for a head or
    step that is out of range.
    """
    target = find_layer(model, layer if is_call is None else layer.partition("#")[0])
    change = Intervention(heads=None if heads is None else tuple(heads), to=to, query=query, key=key)
    if not isinstance(to, str) and can_be_negative(target):
        raise InputError(
            f"to {to} does not fit layer {layer}: its weights can be negative ({describe_normalizer(target)}), so the "
            "other weights of a row cannot keep their proportions; choose off or uniform"
        )

    def apply(weights: Tensor, mask: Tensor | None, step: int | None) -> Tensor:
        return change.apply(weights, mask, step) if is_call is None or is_call(step) else weights

    hook = with_change(target.hook, apply)
    with disable_compile(), note_intervention(model, change.describe(layer)), attach_hooks({target: hook}):
        yield


@public
@contextmanager
def temper(model: nn.Module, layer: str, temperature: float, *, heads: Sequence[int] | None = None) -> Iterator[None]:
    """Divide the scores of some `heads` of a layer by a temperature in the block; None for all heads.

    A temperature above 1 makes the attention more uniform; a temperature below 1 makes it more peaked. `layer` and the
    errors are those of `intervene`. Raises `InputError` for a layer whose weights are not a softmax of the scores.
    """
    if not (math.isfinite(temperature) and temperature > 0):
        raise InputError(f"temperature {temperature} is out of range: give a number above 0")

    def change(weights: Tensor, mask: Tensor | None, step: int | None) -> Tensor:
        if _active.suspended:
            return weights
        chosen = range(weights.shape[1]) if heads is None else heads
        check_indices("head", chosen, weights.shape[1])
        tempered = weights.clone()
        tempered[:, list(chosen)] = tempered_weights(weights[:, list(chosen)], temperature)
        return tempered

    target = find_layer(model, layer)
    if not follows_softmax(target):
        raise InputError(
            f"layer {layer} has no temperature: its weights are not a softmax of the scores "
            f"({describe_normalizer(target)}); leave the temperature out"
        )
    description = f"{layer}: {_describe_heads(heads)}, temperature {temperature:.6g}"
    hook = with_change(target.hook, change)
    with disable_compile(), note_intervention(model, description), attach_hooks({target: hook}):
        yield


# A layer that is not recorded calls the fused kernel. A recorded layer computes its weights explicitly. If only
# some heads or rows are recorded, the output comes from the fused kernel, and the layer computes only these
# weights in addition (`AttentionLayer.contexts`). The signature of the model never changes.
#
# `regard.record` records any model, and uses `record_layers` for Regard's own layers.


@contextmanager
def record_own(model: nn.Module, *, layers: Collection[str] | None = None) -> Iterator[Records]:
    """Record the Regard attention layers in `model`. Yields a mapping from layer name to `Record`.

    It behaves as `regard.record` and opens in less time, because it does not track the modules that run: a layer
    that runs several times in a pass has the record of its last call.
    """
    recorder = Recorder(interventions=partial(active_interventions, model))
    own = {layer_name(model, path): layer for path, layer in attention_layers(model).items()}
    for name in layers or ():
        known_name(name, own)
    with disable_compile(), record_layers(own, recorder, layers):
        yield Records(recorder)


@contextmanager
def record_layers(own: dict[str, AttentionLayer], recorder: Recorder, layers: Collection[str] | None) -> Iterator[None]:
    """Attach a recorder to those layers of `own` whose names are in `layers`; None for all layers."""
    recorder.remarks |= {name: describe_weights(layer) for name, layer in own.items()}
    with attach_hooks(
        {
            layer: dataclasses.replace(layer.hook or AttentionHook(), recorder=recorder, name=name)
            for name, layer in reversed(own.items())  # of several names of a layer, the first remains
            if layers is None or find_name(name, layers) is not None
        }
    ):
        yield
