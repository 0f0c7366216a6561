"""Copy the weights of an exercise into the matching parameters of a learner's module.

The problem. An exercise names its weights (`w_q`, `encoder.0.w_1`, ...) and applies them as `x @ w`, with
adjacent columns for each head. A learner's class creates parameters with its own names and layout. Before the
class is called, each weight must be copied into the corresponding parameter.

The checker does not require attribute names. Of the 28 classes in tests/course/learners, 4 use the parameter
names of the exercise, and 24 do not. Five of these contain layers of PyTorch, whose names are fixed.

The idea. Shapes exclude most parameters, names decide between most of the remaining parameters, and the order
of definition decides between equal names. An incorrect match cannot make an incorrect solution pass, because
the weights are random. The checker therefore tries every possible layout until the outputs of one input are
correct.

An example. `self.attn.to_keys = nn.Linear(15, 15)` has the parameter `attn.to_keys.weight`, of shape (15, 15).
The four weights w_q, w_k, w_v and w_o have this shape. "keys" is among the `WORDS` for the letter k, so w_k has
the cost -10 here, and each of the others has the cost 10. A linear layer applies its weight as `x @ w.T`, so the
parameter receives the transpose of w_k.

The steps, and the number of the 28 classes that are matched incorrectly without each step:

1. `name_features` (in `module_parameters`): extract side, layer, block and letter from the name of a parameter.
Without names: 7. 2. `find_slots`: a packed parameter (query, key and value side by side) holds two or three
weights. Without: 8. 3. `possible_layouts`: a square `nn.Parameter` may be applied as `x @ w` or as `w @ x`, a
packed parameter may be ordered by head, and a head may be every h-th column. Shapes cannot show this. With the
usual layout only: 5.
4. `find_view`: find whether a slot can hold a weight, and the view of the weight in the slot. Weights are
matched by shape. The test inputs have prime sizes, so most weights differ in shape.
5. `rearrange_heads`: reorder or split the columns of heads for the module. Without: 3.
6. `match_weights`: assign all weights to slots with the smallest total cost (Hungarian method). Choosing the
best slot for one weight at a time could leave no slot for the last weight. Without the order of definition: 1.
7. `copy_weights`: write the weights. Biases without a weight become 0, because the exercises have no such biases.
   Other parameters without a weight, and weights without a parameter, are reported to the learner.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from regard.course.arrays import loaded_torch
from regard.course.inputs import Array
from regard.course.module_parameters import find_parameters, name_features, split_name, weight_features

IMPOSSIBLE = 1e6
"""Cost of a slot whose shape does not fit a weight."""
MAX_VECTOR_COST = 60.0
"""Largest name cost at which a slot may hold a bias, gain or shift.

All vectors of the same length fit by shape.
"""


@dataclass
class Slot:
    """A place for one weight: a parameter, or a part of a packed parameter."""

    name: str
    shape: tuple[int, ...]
    owner: str
    """Kind of module that owns the parameter: linear, embedding, norm or other."""
    ones: bool
    """Whether all initial values are 1, as in the gain of a layer norm."""
    part: tuple[int, int] | None = None
    """Index of this part and number of parts, for packed parameters."""
    features: dict[str, str] = field(default_factory=dict)
    """The features of the parameter's name; see `name_features`."""


def find_slots(parameters: Mapping[str, tuple[Any, str]], width: int) -> list[Slot]:
    """Return the slots of the parameters.

    A parameter that packs two or three projections has two or three slots.
    """
    slots = []
    for name, (value, owner) in parameters.items():
        shape, features = tuple(value.shape), name_features(name)
        parts = next((n for n in (3, 2) if shape in ((n * width, width), (width, n * width))), 1)
        # A linear layer (out, in) with out = width is not packed: it reduces a wide input.
        if parts > 1 and (owner == "other" or (owner == "linear" and shape[0] != width)):
            order = "kqv" if "kqv" in name.lower() else "qkv"
            slots += [
                Slot(name, (width, width), owner, False, (part, parts), {**features, "letter": letter})
                for part, letter in enumerate(order[-parts:])
            ]
        else:
            ones = len(shape) == 1 and bool((value == 1).all())
            slots.append(Slot(name, shape, owner, ones, features=features))
    return slots


@dataclass(frozen=True)
class WeightLayout:
    """One interpretation of a module's parameters. Shapes alone cannot decide between the layouts."""

    transposed: bool = False
    """Square matrices outside of `nn.Linear` are applied from the left."""
    by_head: bool = False
    """A packed projection stores query, key and value of head 1 first, then query, key and value of head 2."""
    strided: int = 0
    """Whether heads take every h-th column: 1 if heads are split and joined this way, 2 if they are only split
    this way."""
    order: str = "qkvo"
    """Order of query, key, value and output among projections whose names do not show it."""


def possible_layouts(
    parameters: Mapping[str, tuple[Any, str]], width: int, heads: int, projections: bool
) -> list[WeightLayout]:
    """Return the layouts that these parameters may have, the usual layout first.

    projections: whether the exercise has projections of queries, keys and values.
    """
    shapes = {name: tuple(value.shape) for name, (value, _) in parameters.items()}
    square = [name for name, shape in shapes.items() if shape == (width, width)]
    transposes = (False, True) if any(parameters[name][1] == "other" for name in square) else (False,)
    packed = any(width * 3 in shape or width * 2 in shape for shape in shapes.values())
    layouts = [
        WeightLayout(transposed, by_head, strided)
        for strided in ((0, 1, 2) if projections and heads > 1 else (0,))
        for by_head in ((False, True) if packed else (False,))
        for transposed in transposes
    ]
    if not projections or all("letter" in name_features(name) for name in square):
        return layouts
    orders = ["".join(letters) for letters in itertools.permutations("qkvo")][1:]
    return layouts + [WeightLayout(transposed, order=order) for transposed in transposes for order in orders]


View = Callable[[Array], Array]
"""Function that returns the part of a parameter that holds a weight, as a view.

The numbers of the view are in the order of the weight.
"""


def _whole(parameter: Array) -> Array:
    return parameter


def _transposed(parameter: Array) -> Array:
    return parameter.T


def find_view(role: str, shape: tuple[int, ...], slot: Slot, heads: int, layout: WeightLayout) -> View | None:
    """Return the mapping of a weight of this shape to the parameter of a slot, or None if the weight does not
    fit.

    role: the weight's name without its layer, for example "w_q".

    >>> view = find_view("w_1", (2, 3), Slot("up.weight", (3, 2), "linear", False), 1, WeightLayout())
    >>> view(np.zeros((3, 2))).shape
    (2, 3)
    """
    if len(shape) == 1:
        return _whole if max(slot.shape, default=0) == math.prod(slot.shape) == shape[0] else None
    if slot.part is not None:
        return _part_view(slot.part, heads, layout) if shape == slot.shape else None
    rows, columns = shape
    same, reverse = slot.shape == shape, slot.shape == (columns, rows)
    if slot.owner == "embedding" or role in ("source", "target"):
        return _whole if same else None
    if len(slot.shape) == 3:  # one dimension is the head
        if slot.shape in ((rows, heads, columns // heads), (heads, rows // heads, columns)):
            return _whole
        per_head = slot.shape == (heads, rows, columns // heads)
        return (lambda parameter: parameter.transpose(1, 0, 2)) if per_head else None
    if slot.owner == "linear":  # stores (out, in)
        # Luong's W_a may be applied to the state or to the memory: h W_a h̄ has no preferred side.
        either_side = role == "w_a" and rows != columns
        return _transposed if reverse else _whole if same and either_side else None
    if rows == columns and same:
        return _transposed if layout.transposed else _whole
    return _whole if same else _transposed if reverse else None


def _part_view(packed: tuple[int, int], heads: int, layout: WeightLayout) -> View:
    """Return the mapping of a weight to one part of a packed projection."""
    part, parts = packed

    def view(parameter: Array) -> Array:
        wide = parameter if parameter.shape[0] < parameter.shape[1] else parameter.T  # (D, parts * D)
        width = len(wide)
        if layout.by_head:
            return wide.reshape(width, heads, parts, -1)[:, :, part]
        return wide[:, part * width : (part + 1) * width]

    return view


def rearrange_heads(
    weights: Mapping[str, Array], slots: list[Slot], width: int, heads: int, strided: int
) -> dict[str, Array]:
    """Return the weights with the columns of heads in the order of a module.

    If its heads take every h-th column (see `WeightLayout.strided`), the columns are reordered. If each head has
    its own layer, a projection becomes one matrix per head, named `w_q@0` and so on.
    """
    size = width // heads
    narrow = sum(sorted(slot.shape) == sorted((width, size)) for slot in slots)
    separate = heads > 1 and narrow >= 3 * heads
    rearranged: dict[str, Array] = {}
    for name, weight in weights.items():
        kind, _, letter = name.split(".")[-1].partition("_")
        projects = kind in ("w", "cross") and letter in tuple("qkv")
        if strided and projects:
            weight = weight.reshape(width, heads, size).transpose(0, 2, 1).reshape(width, width)
        elif strided == 1 and letter == "o":
            weight = weight.reshape(heads, size, width).transpose(1, 0, 2).reshape(width, width)
        if separate and projects:
            parts = np.split(weight, heads, axis=1)
            rearranged |= {f"{name}@{head}": part for head, part in enumerate(parts)}
        else:
            rearranged[name] = weight
    return rearranged


@dataclass
class CopiedWeights:
    """The weights of an exercise in a learner's module."""

    matches: dict[str, tuple[Slot, View]] = field(default_factory=dict)
    """Slot of each weight, and the view of the weight in the slot."""
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of the parameters."""
    rearrange: Callable[[Mapping[str, Array]], dict[str, Array]] = dict
    """Function that rearranges weights to the module's layout of heads."""
    missing: list[str] = field(default_factory=list)
    """Weights of the exercise without a slot."""
    unused: list[str] = field(default_factory=list)
    """Parameters without a weight, which keep their initial values."""

    def buffers(self, weights: Mapping[str, Array]) -> dict[str, Array]:
        """Return weights, or directions of the same shapes, in the layout of the parameters."""
        buffers: dict[str, Array] = {}
        for name, weight in self.rearrange(weights).items():
            if name in self.matches:
                slot, find_part = self.matches[name]
                part = find_part(buffers.setdefault(slot.name, np.zeros(self.shapes[slot.name])))
                part[...] = weight.reshape(part.shape)
        return buffers


def match_weights(
    weights: Mapping[str, Array], slots: list[Slot], heads: int, layout: WeightLayout
) -> dict[str, tuple[Slot, View]]:
    """Return the slot and view of each weight. Weights without a slot are omitted."""
    names = list(weights)
    stacked, projects = (any(part in name for name in names) for part in (".", "_q"))
    cost = np.full((len(names), len(slots)), IMPOSSIBLE)
    views: dict[tuple[int, int], View] = {}
    shapes = {name: weights[name].shape for name in _reorder(names, layout.order)}
    weight_ranks, slot_ranks = _ranks(shapes), _ranks({id(slot): slot.shape for slot in slots})
    for row, name in enumerate(names):
        features = weight_features(name, stacked, "cross_q" in weights) if projects else {}
        for column, slot in enumerate(slots):
            view = find_view(name.split(".")[-1], weights[name].shape, slot, heads, layout)
            name_cost = _cost(features, slot)
            if view is None or (weights[name].ndim == 1 and name_cost > MAX_VECTOR_COST):
                continue
            # The order decides only between equal names: its cost of 0.01 is far below the cost of any feature.
            cost[row, column] = name_cost + 0.01 * (weight_ranks[name] - slot_ranks[id(slot)]) ** 2
            views[row, column] = view
    from scipy.optimize import linear_sum_assignment  # loads in a quarter of a second

    pairs = zip(*linear_sum_assignment(cost), strict=True)
    return {names[row]: (slots[column], views[row, column]) for row, column in pairs if (row, column) in views}


def _reorder(names: list[str], order: str) -> list[str]:
    """Return the names with the four projections of each attention in the given order."""
    reordered = list(names)
    for index, name in enumerate(names):
        if name.endswith("_q") and [other[-1] for other in names[index : index + 4]] == list("qkvo"):
            reordered[index : index + 4] = [name[:-1] + letter for letter in order]
    return reordered


def _ranks(shapes: Mapping[Any, tuple[int, ...]]) -> dict[Any, int]:
    """Return the rank of each key among the keys with the same shape, in either orientation."""
    counts: dict[tuple[int, ...], int] = {}
    ranks: dict[Any, int] = {}
    for key, shape in shapes.items():
        group = tuple(sorted(shape))
        ranks[key] = counts[group] = counts.get(group, -1) + 1
    return ranks


def _cost(features: Mapping[str, str], slot: Slot) -> float:
    """Return the mismatch cost between a slot's name and owner and the features of a weight."""
    cost = 0.0
    for feature, value in features.items():
        if feature == "norm":
            cost += _norm_cost(value, slot)
        elif feature in slot.features:
            # In a name, side and layer are rarely ambiguous, but block and letter often are ("out", "first").
            weight = 40.0 if feature in ("side", "layer") else 10.0
            cost += -weight if slot.features[feature] == value else weight
    if slot.owner == "norm" and "norm" not in features:
        cost += 100
    if "norm" not in features and features.get("block") == "feed_forward" and "letter" in slot.features:
        # "out_proj.bias" is the bias of a projection, which the exercises do not have.
        cost += 80 if len(slot.shape) == 1 and slot.features.get("block") != "feed_forward" else 15
    return cost


def _norm_cost(kind: str, slot: Slot) -> float:
    """Return the mismatch cost between a slot and a gain or shift. The weight of a norm is a gain, and its bias
    is a shift."""
    cost = 0.0 if slot.owner == "norm" else 30.0 if slot.owner == "other" else 100.0
    shift = any(piece in ("bias", "shift", "beta", "b") for piece in split_name(slot.name)[-2:]) and not slot.ones
    return cost + (0.0 if (kind == "shift") == shift else 20.0)


def copy_weights(
    weights: Mapping[str, Array], module: Any, width: int, heads: int, layout: WeightLayout
) -> CopiedWeights:
    """Write the weights to the parameters of a module, and return their slots and views."""
    parameters = find_parameters(module)
    slots = find_slots(parameters, width)
    copied = CopiedWeights(shapes={name: tuple(value.shape) for name, (value, _) in parameters.items()})
    copied.rearrange = lambda values: rearrange_heads(values, slots, width, heads, layout.strided)
    rearranged = copied.rearrange(weights)
    copied.matches = match_weights(rearranged, slots, heads, layout)
    copied.missing = [name for name in rearranged if name not in copied.matches]
    buffers = copied.buffers(weights)
    for name, (parameter, owner) in parameters.items():
        bias = owner != "norm" and any("bias" in piece or piece == "b" for piece in split_name(name)[-1:])
        if name in buffers or bias:
            _write(parameter, buffers.get(name, np.zeros(copied.shapes[name])))
        else:
            copied.unused.append(f"{name} {copied.shapes[name]}")
    return copied


def _write(parameter: Any, buffer: Array) -> None:
    torch = loaded_torch()
    if isinstance(parameter, np.ndarray):
        parameter[...] = buffer
        return
    with torch.no_grad():
        parameter.copy_(torch.tensor(buffer))
