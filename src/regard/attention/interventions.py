"""Intervening: change what a head attends to while a model runs, and see what becomes of its answer.

    with intervene(model, "decoder.0.cross", heads=[2], to="uniform"):
        model(inputs)

Where recording asks what a model attends to, an intervention asks whether that matters: a head is switched off
(Michel et al. 2019, section 2.3), made to attend to everything alike, or one of its weights is set by hand. The
weights are changed after the softmax, so records show the changed ones. Interventions nest, and apply in the
order in which they were made.
"""

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from regard.attention.hooks import attach_hooks, disable_compile, find_layer, with_change
from regard.attention.records import check_indices, short_name
from regard.attention.weights import tempered_weights, uniform_weights
from regard.errors import InputError

To = Literal["off", "uniform"]


class _InForce(threading.local):
    """The interventions of this thread: each model, and what is done to it, in words."""

    def __init__(self) -> None:
        self.all: list[tuple[nn.Module, str]] = []
        self.suspended = False


_in_force = _InForce()


@contextmanager
def note_intervention(model: nn.Module, said: str) -> Iterator[None]:
    """Note an intervention in a model while the block runs, for maps that are made in it."""
    _in_force.all.append((model, said))
    try:
        yield
    finally:
        _in_force.all.remove((model, said))


def active_interventions(model: nn.Module) -> tuple[str, ...]:
    """Return this thread's interventions in a model, or in a part of it, in words: `cross: head 1 off`."""
    if not _in_force.all or _in_force.suspended:
        return ()
    parts = set(model.modules())
    return tuple(said for each, said in _in_force.all if each in parts or model in each.modules())


@contextmanager
def suspend_interventions() -> Iterator[None]:
    """Run the block as if this thread had no interventions in force."""
    before, _in_force.suspended = _in_force.suspended, True
    try:
        yield
    finally:
        _in_force.suspended = before


def _heads_named(heads: Sequence[int] | None) -> str:
    if heads is None:
        return "all heads"
    return f"head{'s' if len(heads) != 1 else ''} {', '.join(map(str, heads))}"


@dataclass(frozen=True, kw_only=True)
class Intervention:
    """What happens to the weights of some heads of a layer."""

    heads: tuple[int, ...] | None = None
    """None: every head."""
    to: To | float = "off"
    """off: no weight at all, so that the heads add nothing. uniform: the same weight on all that may be
    attended. A number from 0 to 1: the weight of `query` on `key`; its other weights keep their proportions."""
    query: int | None = None
    """Step of the query whose weight is set; with a number only."""
    key: int | None = None
    """Step of the key."""

    def __post_init__(self) -> None:
        """Raise `InputError` where parts do not go together."""
        placed = self.query is not None and self.key is not None
        if isinstance(self.to, str):
            if self.to not in ("off", "uniform"):
                raise InputError(f"to {self.to!r} is unknown: choose off, uniform, or a weight from 0 to 1")
            if self.query is not None or self.key is not None:
                raise InputError(f"to {self.to!r} changes whole heads: leave out query and key")
        elif not placed:
            raise InputError(f"to {self.to} is the weight of one query on one key: give both")
        elif not (math.isfinite(self.to) and 0 <= self.to <= 1):
            raise InputError(f"to {self.to} is out of range: a weight is from 0 to 1")

    def said(self, layer: str) -> str:
        """Return what is done to a layer, in words."""
        name = f"{short_name(layer)}: {_heads_named(self.heads)}"
        if isinstance(self.to, str):
            return f"{name} {self.to}"
        return f"{name}, weight of query {self.query} on key {self.key} set to {self.to:.6g}"

    def apply(self, weights: Tensor, mask: Tensor | None, step: int | None) -> Tensor:
        """Return changed weights (B, H, Tq, Tk); `mask` broadcasts to them; `step` is that of all queries, or
        None where they are all steps from the first on.

        A row that may not attend to the key stays as it is. Raises `InputError` for a head, query or key that is
        not there.
        """
        if _in_force.suspended:
            return weights
        heads = range(weights.shape[1]) if self.heads is None else self.heads
        check_indices("head", heads, weights.shape[1])
        chosen = torch.zeros(weights.shape[1], 1, 1, dtype=torch.bool, device=weights.device)
        chosen[list(heads)] = True
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
            return weights  # another step's turn
        return torch.where(chosen & rows.unsqueeze(-1), _with(weights, mask, self.key, self.to), weights)


def _with(weights: Tensor, mask: Tensor | None, key: int, value: float) -> Tensor:
    """Return rows whose weight on `key` is `value`, and whose other weights keep their proportions."""
    here = torch.arange(weights.shape[-1], device=weights.device) == key
    others = weights.masked_fill(here, 0.0)
    total = others.sum(-1, keepdim=True)
    # Where nothing else had any weight, there is nothing to keep in proportion: all others get the same.
    even = uniform_weights(weights, ~here if mask is None else mask & ~here)
    shares = torch.where(total > 0, others / total.clamp(min=torch.finfo(weights.dtype).tiny), even)
    whole = weights.sum(-1, keepdim=True)  # less than 1 where a model has somewhere else to look
    left = torch.where(whole > 0, whole, 1.0).clamp(min=value) - value
    rows = torch.where(here, value, shares * left)
    if mask is None:
        return rows
    # What may not be attended stays so, and with it its whole row.
    return torch.where(mask.expand_as(weights)[..., key : key + 1], rows, weights)


@contextmanager
def intervene(
    model: nn.Module,
    layer: str,
    *,
    heads: Sequence[int] | None = None,
    to: To | float = "off",
    query: int | None = None,
    key: int | None = None,
) -> Iterator[None]:
    """Change what some `heads` of a layer attend to while the block runs (None: all of them).

    `layer`: its name in the model, as in records; `.layers` may be left out. `to`: "off", "uniform", or, with
    `query` and `key`, the weight (0 to 1) of that query on that key, the others keeping their proportions.
    It holds for every input of a batch, and for every hypothesis of a search. Gradients flow as usual. Raises
    `InputError` where the layer is not one of Regard's, and, as the model runs, for a head or step that is not
    there.
    """
    found = find_layer(model, layer)
    change = Intervention(heads=None if heads is None else tuple(heads), to=to, query=query, key=key)
    hook = with_change(found.hook, change.apply)
    with disable_compile(), note_intervention(model, change.said(layer)), attach_hooks({found: hook}):
        yield


@contextmanager
def temper(
    model: nn.Module, layer: str, temperature: float, *, heads: Sequence[int] | None = None
) -> Iterator[None]:
    """Divide the scores of some `heads` of a layer by a temperature while the block runs (None: of all of them).

    Above 1 their attention becomes more even, below 1 more pointed; 1 leaves it. The rest is as in `intervene`.
    """
    if not (math.isfinite(temperature) and temperature > 0):
        raise InputError(f"temperature {temperature} is out of range: give a number above 0")

    def change(weights: Tensor, mask: Tensor | None, step: int | None) -> Tensor:
        del mask, step
        if _in_force.suspended:
            return weights
        chosen = range(weights.shape[1]) if heads is None else heads
        check_indices("head", chosen, weights.shape[1])
        found = weights.clone()
        found[:, list(chosen)] = tempered_weights(weights[:, list(chosen)], temperature)
        return found

    found = find_layer(model, layer)
    said = f"{short_name(layer)}: {_heads_named(heads)}, temperature {temperature:.6g}"
    hook = with_change(found.hook, change)
    with disable_compile(), note_intervention(model, said), attach_hooks({found: hook}):
        yield
