"""Which layers of two subjects stand beside each other: those of one name, or else of one kind and place."""

from collections.abc import Mapping, Sequence
from typing import Any

from regard.errors import InputError
from regard.viz.subject import Layer, Subject

NAMED = 3
"""Layers of a subject that an error names, at most."""


def layers_alike(one: Sequence[Layer], other: Sequence[Layer]) -> Mapping[str, str]:
    """Return by layer of `one` that of `other` with the same name; where they have no name in common, of each
    kind of which both have as many, that at the same place. `besideOf` in beside.js does the same on the page."""
    names = {each.name for each in other}
    if shared := {each.name: each.name for each in one if each.name in names}:
        return shared
    found: dict[str, str] = {}
    for kind in ("encoder", "decoder", "cross"):
        ours, theirs = ([each.name for each in layers if each.kind == kind] for layers in (one, other))
        if len(ours) == len(theirs):
            found |= dict(zip(ours, theirs, strict=True))
    return found


def check_beside(subject: Subject[Any], others: Sequence[Subject[Any]]) -> None:
    """Raise `InputError` for a subject none of whose layers can stand beside one of the first."""
    for each in others:
        if not layers_alike(subject.layers, each.layers):
            raise InputError(
                f"{each.name} has {_named(each.layers)}, {subject.name} has {_named(subject.layers)}: none are of"
                " one name, nor as many of one kind; choose a model that has such layers"
            )


def _named(layers: Sequence[Layer]) -> str:
    names = [each.name for each in layers[:NAMED]] + (["…"] if len(layers) > NAMED else [])
    return f"{len(layers)} layers ({', '.join(names)})" if layers else "no attention layers"
