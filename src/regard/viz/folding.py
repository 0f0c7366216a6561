"""Layers of a blueprint that are alike are drawn once, as many times as they are there."""

import dataclasses
import re
from dataclasses import dataclass

from regard.viz.blueprint import Blueprint, Box

LAYER = re.compile(r"(.+?)\.(\d+)\.(.+)")
"""A name of what is inside one of several: `encoder.layers.0.self_attention`."""


@dataclass(frozen=True)
class Stack:
    """Layers one upon another, alike in all that they are and are given."""

    name: str
    """Of what holds them: `encoder.layers`."""
    count: int
    parameters: int
    """Of all of them."""
    parts: tuple[str, ...]
    """Names of the boxes of the first, which stand for all."""


def folded(found: Blueprint) -> tuple[Blueprint, list[Stack]]:
    """Return a blueprint with the first of such layers only, and what they stand for."""
    stacks: list[Stack] = []
    first: dict[str, str] = {}
    for name, layers in _layers(found).items():
        one, *others = layers.values()
        if not others or any(_looks(other) != _looks(one) for other in others):
            continue
        parameters = sum(part.parameters for layer in layers.values() for part in layer.values())
        stacks.append(Stack(name, len(layers), parameters, tuple(part.name for part in one.values())))
        for layer in others:
            first |= {part.name: one[inside].name for inside, part in layer.items()}
    result = Blueprint(found.title, found.parameters)
    result.parts = {name: part for name, part in found.parts.items() if name not in first}
    for (giver, taker), roles in found.flows.items():
        if (
            _layer(giver) != _layer(taker)
            and _holder(giver) == _holder(taker)
            and (giver in first or taker in first)
        ):
            continue  # from one layer to the next: that is what the stack says
        for role in roles or [""]:
            result.flow(first.get(giver, giver), first.get(taker, taker), role)
    return result, stacks


def _layers(found: Blueprint) -> dict[str, dict[str, dict[str, Box]]]:
    """Return by the holder's name, then the layer's number: parts by their name inside."""
    layers: dict[str, dict[str, dict[str, Box]]] = {}
    for name, part in found.parts.items():
        if match := LAYER.fullmatch(name):
            holder, number, inside = match.groups()
            layers.setdefault(holder, {}).setdefault(number, {})[inside] = part
    return layers


def _looks(layer: dict[str, Box]) -> dict[str, Box]:
    return {inside: dataclasses.replace(part, name=inside) for inside, part in layer.items()}


def _holder(name: str) -> str | None:
    match = LAYER.fullmatch(name)
    return match and match[1]


def _layer(name: str) -> str | None:
    match = LAYER.fullmatch(name)
    return match and f"{match[1]}.{match[2]}"
