"""Observing: what watches an attention layer while it works, to keep its weights or to change them.

A layer holds one observer, or none; an observer is a value that is never changed. Whoever observes on top of
another gives the layer a new one, and puts the old one back.
"""

import dataclasses
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.records import Recorder, plain_name, short_name
from regard.attention.scores import Score
from regard.attention.trace import AttentionTrace
from regard.errors import InputError

Change = Callable[[Tensor, Tensor | None, int | None], Tensor]
"""What makes other weights (B, H, Tq, Tk) of weights, their mask, and the step of all queries; None where they
are all steps from the first on."""


@dataclass(frozen=True, kw_only=True)
class AttentionHook:
    """Changes the weights of a layer, and then keeps them. While there is one, weights are worked out."""

    changes: tuple[Change, ...] = ()
    """Applied in the order in which they were made."""
    recorder: Recorder | None = None
    """Keeps the changed weights."""
    name: str = ""
    """What the recorder calls the layer."""
    watcher: Callable[[AttentionTrace], None] | None = None
    """Hears of all that the layer works out."""

    by_rows: Callable[[int, Callable[[Sequence[int]], tuple[Tensor, Tensor | None]]], None] | None = None
    """Is told how many queries there are, and what works out the weights (B, H, rows, Tk) and mask of some."""

    @property
    def partial(self) -> bool:
        """Whether it only asks for some heads or rows, which can be worked out beside the fused kernel."""
        asked = self.by_rows is not None if self.recorder is None else self.recorder.partial
        return asked and not self.changes and self.watcher is None

    @property
    def looks_inside(self) -> bool:
        """Whether more than the weights is asked for."""
        return self.watcher is not None or (self.recorder is not None and self.recorder.inside)

    def change(self, weights: Tensor, mask: Tensor | None, step: int | None) -> Tensor:
        """Return the weights (B, H, Tq, Tk) with which the layer is to go on."""
        for each in self.changes:
            weights = each(weights, mask, step)
        return weights

    def keep(
        self, weights: Tensor, mask: Tensor | None, step: int | None, inside: AttentionTrace | None = None
    ) -> None:
        """Hand weights (B, H, Tq, Tk) over to the recorder, which takes the heads and rows that it wants."""
        if self.watcher is not None and inside is not None:
            self.watcher(inside)
        if self.recorder is not None:
            shown = mask if mask is None else self.recorder.select(mask.expand_as(weights), step)
            chosen = self.recorder.select(weights, step)
            self.recorder.keep(self.name, chosen, shown, queries=weights.shape[2], step=step, inside=inside)


class AttentionLayer(nn.Module):
    """Base of attention layers: what can be recorded and intervened in, head by head."""

    score: Score
    """How well a query fits a key."""
    hook: AttentionHook | None = None
    """Whoever looks on, for as long as the block lasts that asked for it."""
    heads: int = 1

    def __getstate__(self) -> dict[str, Any]:
        """Return what is copied or saved: nobody looks on at a copy."""
        return {name: value for name, value in vars(self).items() if name != "observer"}


def attention_layers(model: nn.Module) -> dict[str, AttentionLayer]:
    """Return the attention layers of a model that are Regard's, by their dotted names."""
    return {plain_name(name): layer for name, layer in model.named_modules() if isinstance(layer, AttentionLayer)}


def find_layer(model: nn.Module, name: str) -> AttentionLayer:
    """Return an attention layer of Regard's by its dotted name, in which `.layers` may be left out.

    Raises `InputError` where the model has no such layer.
    """
    found = attention_layers(model)
    for each, layer in found.items():
        if name in (each, short_name(each)):
            return layer
    known = ", ".join(map(short_name, found))
    raise InputError(f"layer {name!r} is not in the model: choose {known or 'none, for it has no attention'}")


@contextmanager
def attach_hooks(observers: Mapping[AttentionLayer, AttentionHook]) -> Iterator[None]:
    """Give layers these observers in the block, and then those that they had before."""
    before = {layer: layer.hook for layer in observers}
    for layer, hook in observers.items():
        layer.hook = hook
    try:
        yield
    finally:
        for layer, each in before.items():
            layer.hook = each


@contextmanager
def disable_compile() -> Iterator[None]:
    """Run compiled code as it was written in the block: compiled, it calls no hooks and asks no observers."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
        # Hooks of all modules are called twice for a compiled one, which is the same one by name.
        warnings.filterwarnings("ignore", message="Using `torch.compile.module.` when there are global hooks")
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        yield


@contextmanager
def explicit_weights(model: nn.Module) -> Iterator[None]:
    """Work out all weights, for what knows no fused kernel, such as `torch.func.vmap`."""
    with attach_hooks({layer: layer.hook or AttentionHook() for layer in attention_layers(model).values()}):
        yield


def with_change(hook: AttentionHook | None, change: Change) -> AttentionHook:
    """Return an observer that also changes weights, after those changes that there are."""
    hook = hook or AttentionHook()
    return dataclasses.replace(hook, changes=(*hook.changes, change))


@contextmanager
def trace_layer(layer: AttentionLayer, watcher: Callable[[AttentionTrace], None]) -> Iterator[None]:
    """Tell `watcher` of all that a layer works out in the block, whoever records it or intervenes besides."""
    with attach_hooks({layer: dataclasses.replace(layer.hook or AttentionHook(), watcher=watcher)}):
        yield


def with_recorder(hook: AttentionHook | None, recorder: Recorder, name: str) -> AttentionHook:
    """Return an observer that keeps weights with this recorder instead of another one."""
    return dataclasses.replace(hook or AttentionHook(), recorder=recorder, name=name)
