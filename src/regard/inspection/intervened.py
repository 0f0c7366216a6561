"""Maps of a model in which interventions are in force: they name these, and hold what it answers without them."""

import dataclasses
from collections.abc import Callable

from torch import nn

from regard.attention.intervening import interventions_in, interventions_suspended
from regard.inspection.attention_map import AttentionMap


def with_original(model: nn.Module, where: str, attend: Callable[[], AttentionMap]) -> AttentionMap:
    """Return the map that `attend` makes, with the interventions in force and the map without them.

    `where`: what the model is called. With an intervention in force `attend` runs twice.

        with regard.intervene(model, "cross", heads=[1]):
            found = with_original(model, "models/counting", attend)
        found.interventions          # ("cross: head 1 off",)
        found.original.prediction
    """
    found = named(model, where, attend())
    if not found.interventions:
        return found
    with interventions_suspended():
        return dataclasses.replace(found, original=named(model, where, attend()))


def named(model: nn.Module, where: str, found: AttentionMap) -> AttentionMap:
    """Return a map with what its model is called, and the interventions in force."""
    return dataclasses.replace(found, model=where, interventions=interventions_in(model))
