"""How a learner's module may store a weight: transposed, packed with others, or separately for each head.

The exercises apply a weight as `x @ w`, with adjacent columns for each head. A `WeightLayout` describes one way
in which a module deviates from this. `find_writer` returns the function that stores a weight in a parameter.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from regard.course.exercises.exercise import Array

Writer = Callable[[Array, Array], None]
"""Writes a weight of the exercise into a buffer with the shape of a parameter."""


@dataclass(frozen=True)
class WeightLayout:
    """One interpretation of a module's parameters. Shapes alone cannot decide between the layouts."""

    transposed: bool = False
    """Square matrices outside of `nn.Linear` are applied from the left."""
    by_head: bool = False
    """A packed projection stores query, key and value of head 1 first, then those of head 2."""
    strided: int = 0
    """Heads take every h-th column: 1 when they are split and joined, 2 only when they are split."""
    order: str = "qkvo"
    """Order of query, key, value and output among projections whose names do not show it."""


@dataclass
class Slot:
    """A place for one weight: a parameter, or a part of a packed one."""

    name: str
    shape: tuple[int, ...]
    owner: str
    """Kind of module that owns the parameter: linear, embedding, norm or other."""
    ones: bool
    """Whether all its initial values are 1, as in the gain of a layer norm."""
    part: tuple[int, int] | None = None
    """Number of this part and number of parts, for packed parameters."""
    features: dict[str, str] = field(default_factory=dict)
    """What its name shows, see `name_features`."""


def find_writer(role: str, shape: tuple[int, ...], slot: Slot, heads: int, layout: WeightLayout) -> Writer | None:
    """Return the function that stores a weight of this shape in a slot; None if it does not fit.

    role: the weight's name without its layer, for example "w_q".
    """
    if len(shape) == 1:
        fits = math.prod(slot.shape) == shape[0] and max(slot.shape, default=0) == shape[0]
        return (lambda weight, buffer: np.copyto(buffer, weight.reshape(buffer.shape))) if fits else None
    if slot.part is not None:
        return _part_writer(slot.part, heads, layout) if shape == slot.shape else None
    rows, columns = shape
    if slot.owner == "embedding" or role in ("source", "target"):
        return _copy if slot.shape == shape else None
    if len(slot.shape) == 3:
        return _per_head_writer(shape, slot.shape, heads)
    same, reverse = slot.shape == shape, slot.shape == (columns, rows)
    if slot.owner == "linear":  # stores (out, in)
        # Luong's W_a may be applied to the state or to the memory: h W_a h̄ has no preferred side.
        either_side = role == "w_a" and rows != columns
        return _copy_transposed if reverse else _copy if same and either_side else None
    if rows == columns and same:
        return _copy_transposed if layout.transposed else _copy
    return _copy if same else _copy_transposed if reverse else None


def _copy(weight: Array, buffer: Array) -> None:
    buffer[...] = weight


def _copy_transposed(weight: Array, buffer: Array) -> None:
    buffer[...] = weight.T


def _per_head_writer(shape: tuple[int, ...], slot: tuple[int, ...], heads: int) -> Writer | None:
    """Return the writer for a parameter of three dimensions, one of which is the head."""
    rows, columns = shape
    conversions: dict[tuple[int, ...], Callable[[Array], Array]] = {
        (heads, rows, columns // heads): lambda w: w.reshape(rows, heads, -1).transpose(1, 0, 2),
        (rows, heads, columns // heads): lambda w: w.reshape(rows, heads, -1),
        (heads, rows // heads, columns): lambda w: w.reshape(heads, -1, columns),
    }
    convert = conversions.get(slot)
    return None if convert is None else (lambda weight, buffer: np.copyto(buffer, convert(weight)))


def _part_writer(packed: tuple[int, int], heads: int, layout: WeightLayout) -> Writer:
    """Return the writer for one part of a packed projection."""
    part, parts = packed

    def write(weight: Array, buffer: Array) -> None:
        wide = buffer if buffer.shape[0] < buffer.shape[1] else buffer.T  # (D, parts * D)
        width = len(weight)
        if layout.by_head:
            reordered = wide.copy()
            reordered.reshape(width, heads, parts, -1)[:, :, part] = weight.reshape(width, heads, -1)
            wide[...] = reordered
        else:
            wide[:, part * width : (part + 1) * width] = weight

    return write


def split_heads(weights: Mapping[str, Array], slots: list[Slot], width: int, heads: int) -> dict[str, Array]:
    """Split projections into one matrix per head, named `w_q@0` and so on, if the slots are that narrow."""
    head_width = width // heads
    narrow = [slot for slot in slots if sorted(slot.shape) == sorted((width, head_width)) and heads > 1]
    if len(narrow) < 3 * heads:
        return dict(weights)
    parts: dict[str, Array] = {}
    for name, weight in weights.items():
        if name.split(".")[-1] in ("w_q", "w_k", "w_v", "cross_q", "cross_k", "cross_v"):
            for head in range(heads):
                parts[f"{name}@{head}"] = weight[:, head * head_width : (head + 1) * head_width]
        else:
            parts[name] = weight
    return parts


def stride_heads(weights: Mapping[str, Array], heads: int, strided: int) -> dict[str, Array]:
    """Reorder projections for a module whose heads take every h-th column, see `WeightLayout.strided`."""
    if not strided:
        return dict(weights)
    reordered = {}
    for name, weight in weights.items():
        letter = name[-1]
        if letter in tuple("qkv") and weight.ndim == 2 and "_" in name:
            weight = weight.reshape(len(weight), heads, -1).transpose(0, 2, 1).reshape(weight.shape)
        elif letter == "o" and strided == 1 and weight.ndim == 2 and "_" in name:
            weight = weight.reshape(heads, -1, weight.shape[1]).transpose(1, 0, 2).reshape(weight.shape)
        reordered[name] = weight
    return reordered
