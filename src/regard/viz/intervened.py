"""Maps of a model in which interventions are in force: they name these, and hold what it answers without them."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import nn

from regard.attention.interventions import active_interventions, suspend_interventions
from regard.viz.attention_map import AttentionMap

_answered_twice = ContextVar("_answered_twice", default=True)


@contextmanager
def answered_once() -> Iterator[None]:
    """Make no maps without the interventions in the block, for whoever follows what the model does in it."""
    before = _answered_twice.set(False)
    try:
        yield
    finally:
        _answered_twice.reset(before)


def with_original(model: nn.Module, where: str, attend: Callable[[], AttentionMap]) -> AttentionMap:
    """Return the map that `attend` makes, with the interventions in force and the map without them.

    `where`: what the model is called. With an intervention in force `attend` runs twice, but in
    `answered_once`.

        with regard.intervene(model, "cross", heads=[1]):
            found = with_original(model, "models/counting", attend)
        found.interventions          # ("cross: head 1 off",)
        found.original.prediction
    """
    found = named(model, where, attend())
    if not found.interventions or not _answered_twice.get():
        return found
    with suspend_interventions():
        return dataclasses.replace(found, original=named(model, where, attend()))


def named(model: nn.Module, where: str, found: AttentionMap) -> AttentionMap:
    """Return a map with what its model is called, and the interventions in force."""
    return dataclasses.replace(found, model=where, interventions=active_interventions(model))
