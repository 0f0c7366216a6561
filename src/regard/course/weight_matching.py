"""Copy the weights of an exercise into a learner's module: which parameter receives which weight?

An exercise gives its weights by name (`w_q`, `encoder.0.w_1`, ...). A learner's class creates its own parameters,
in its own structure and under its own names. Before the module is called, the checker copies the weights into it:

1. `find_parameters` lists the module's parameters, or the arrays of a class without PyTorch.
2. `find_slots` turns them into slots. A packed parameter (query, key and value side by side) has two or three.
3. `find_writer` (in `weight_layouts`) decides by shape and orientation which slots can hold a weight. The inputs
   have prime sizes, so in most modules few slots fit.
4. `_cost` compares the slot's name with the weight. `name_features` extracts from a name like
   "decoder.layers.1.src_attn.w_k" the side (decoder), the layer (1), the block (cross-attention) and the letter
   (k). A feature that agrees lowers the cost, one that disagrees raises it.
5. The order of definition decides between slots that are equal so far: the squared difference between the
   weight's and the slot's rank among those of equal shape adds a small cost.
6. `match_weights` assigns weights to slots with the smallest total cost (Hungarian method).
7. `copy_weights` writes the weights. Parameters without a weight become 0 if they are biases; others keep their
   initial values and are reported, like weights without a slot.

Steps 3 and 5 depend on a `WeightLayout`. For example, a square `nn.Parameter` may be meant as `x @ w` or as
`w @ x`. `possible_layouts` lists the layouts to try. The caller uses the first that gives the right answer to an
input. A wrong layout cannot make a wrong solution right, because the weights are random.
"""

import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from regard.course.arrays import loaded_torch
from regard.course.exercises.exercise import Array, Case, Exercise
from regard.course.module_parameters import find_parameters
from regard.course.weight_layouts import Slot, WeightLayout, Writer, find_writer, split_heads, stride_heads

WORDS = {
    feature: {value: pieces.split() for value, pieces in values.items()}
    for feature, values in {
        "letter": {
            "q": "q wq query queries toq wquery",
            "k": "k wk key keys tok wkey",
            "v": "v wv value values tov wvalue",
            "o": "o wo out output unify wout proj final",
        },
        "block": {
            "cross": "cross src memory encdec encatt encattn multihead context second mem",
            "self": "self own masked selfattn causal first",
            "feed_forward": "ff ffn feed feedforward mlp linear fc pos positionwise inner",
        },
        "side": {
            "encoder": "encoder encoders enc source src encoderlayers",
            "decoder": "decoder decoders dec target tgt trg decoderlayers",
        },
    }.items()
}
"""Pieces of names that learners use, by feature and value."""
IMPOSSIBLE = 1e6
"""Cost of a slot that a weight does not fit into."""
MAX_VECTOR_COST = 60.0
"""Largest name cost at which a slot may hold a bias, gain or shift. All vectors of one length fit by shape."""


def split_name(name: str) -> list[str]:
    """Return the words and numbers in a name.

    >>> split_name("layers.0.selfAttn.q_proj")
    ['layers', '0', 'self', 'attn', 'q', 'proj']
    """
    spaced = re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()
    return [piece for piece in re.split(r"[._]|(?<=[a-zA-Z])(?=\d)|(?<=\d)(?=[a-zA-Z])", spaced) if piece]


def name_features(name: str) -> dict[str, str]:
    """Return the features that a parameter's name shows.

    The last matching piece counts, since it is the most specific; for the side it is the first.

    >>> name_features("decoder.layers.1.src_attn.w_k")
    {'letter': 'k', 'block': 'cross', 'side': 'decoder', 'layer': '1'}
    """
    pieces = split_name(name)
    features = {}
    for feature, values in WORDS.items():
        for piece in pieces if feature == "side" else reversed(pieces):
            value = next((value for value, words in values.items() if piece in words), None)
            if value:
                features[feature] = value
                break
    numbers = [piece for piece in pieces if piece.isdigit()]
    if numbers:
        features["layer"] = numbers[0]
    return features


def weight_features(name: str, stacked: bool, decodes: bool = False) -> dict[str, str]:
    """Return the features of a weight of the exercise, in the terms of `name_features`, and its kind of norm.

    stacked: whether the exercise has several layers; decodes: whether it is a decoder layer.
    """
    *path, last = name.partition("@")[0].split(".")
    head, _, letter = last.partition("_")
    features = {}
    if path and path[0] in ("encoder", "decoder"):
        features["side"], features["layer"] = path[0], path[1]
    if letter in tuple("qkvo") and head in ("w", "cross"):
        features |= {"letter": letter, "block": "cross" if head == "cross" else "self"}
    elif head in ("w", "b") and letter in ("1", "2"):
        features |= {"block": "feed_forward"}
    elif head in ("gain", "shift"):
        blocks = ("self", "cross", "feed_forward") if decodes or "decoder" in path else ("self", "feed_forward")
        features |= {"norm": head, "block": blocks[int(letter) - 1]}
    elif last in ("source", "target"):
        features["side"] = "encoder" if last == "source" else "decoder"
    if not stacked:
        features.pop("layer", None)
    return features


def find_slots(parameters: Mapping[str, tuple[Any, str]], width: int) -> list[Slot]:
    """Return the slots of the parameters. One that packs two or three projections has as many slots."""
    slots = []
    for name, (value, owner) in parameters.items():
        shape = tuple(value.shape)
        ones = bool((value == 1).all()) if len(shape) == 1 and shape else False
        parts = next((n for n in (3, 2) if shape in ((n * width, width), (width, n * width))), 1)
        # A linear layer (out, in) with out = width is not packed: it reduces a wide input.
        packed = parts > 1 and (owner == "other" or (owner == "linear" and shape[0] != width))
        if not packed:
            slots.append(Slot(name, shape, owner, ones, None, name_features(name)))
            continue
        order = "kqv" if "kqv" in name.lower() else "qkv"
        for part, letter in enumerate(order[-parts:]):
            features = {**name_features(name), "letter": letter}
            slots.append(Slot(name, (width, width), owner, False, (part, parts), features))
    return slots


def possible_layouts(
    parameters: Mapping[str, tuple[Any, str]], width: int, heads: int, projections: bool
) -> list[WeightLayout]:
    """Return the layouts that these parameters may have, the usual one first.

    projections: whether the exercise has projections of queries, keys and values.
    """
    shapes = [(tuple(value.shape), owner) for value, owner in parameters.values()]
    square = any(owner == "other" and shape == (width, width) for shape, owner in shapes)
    packed = any(width * 3 in shape or width * 2 in shape for shape, _ in shapes)
    layouts = [
        WeightLayout(transposed, by_head, strided)
        for strided in ((0, 1, 2) if projections and heads > 1 else (0,))
        for by_head in ((False, True) if packed else (False,))
        for transposed in ((False, True) if square else (False,))
    ]
    named = all(
        "letter" in name_features(name)
        for name, (value, _) in parameters.items()
        if tuple(value.shape) == (width, width)
    )
    if not projections or named:
        return layouts
    orders = ["".join(letters) for letters in itertools.permutations("qkvo")][1:]
    return layouts + [WeightLayout(transposed, order=order) for transposed in (False, square) for order in orders]


def match_weights(
    weights: Mapping[str, Array], slots: list[Slot], heads: int, layout: WeightLayout
) -> dict[str, tuple[Slot, Writer]]:
    """Return the slot and writer of each weight. Weights without a slot are left out."""
    names = list(weights)
    sides = {name.split(".")[0] for name in names if "." in name}
    cost = np.full((len(names), len(slots)), IMPOSSIBLE)
    writers: dict[tuple[int, int], Writer] = {}
    ranks = _ranks(_reorder(names, layout.order), slots, weights)
    for row, name in enumerate(names):
        features = weight_features(name, bool(sides), "cross_q" in weights)
        for column, slot in enumerate(slots):
            writer = find_writer(name.split(".")[-1], weights[name].shape, slot, heads, layout)
            name_cost = _cost(features, slot)
            if writer is None or (weights[name].ndim == 1 and name_cost > MAX_VECTOR_COST):
                continue
            # The order decides only between equal names: its weight 0.01 is far below that of any feature.
            cost[row, column] = name_cost + 0.01 * (ranks[name] - ranks[slot.name, slot.part]) ** 2
            writers[row, column] = writer
    from scipy.optimize import linear_sum_assignment  # loads in a quarter of a second

    rows, columns = linear_sum_assignment(cost)
    return {
        names[row]: (slots[column], writers[row, column])
        for row, column in zip(rows, columns, strict=True)
        if (row, column) in writers
    }


def _reorder(names: list[str], order: str) -> list[str]:
    """Return the names with the four projections of each attention in the given order."""
    reordered = list(names)
    for index, name in enumerate(names):
        if name.endswith("_q") and [other[-1] for other in names[index : index + 4]] == list("qkvo"):
            reordered[index : index + 4] = [name[:-1] + letter for letter in order]
    return reordered


def _ranks(names: list[str], slots: list[Slot], weights: Mapping[str, Array]) -> dict[Any, int]:
    """Return the rank of each weight and each slot among those of equal shape, in either orientation."""
    ranks: dict[Any, int] = {}
    for items in (
        [(name, weights[name].shape) for name in names],
        [((slot.name, slot.part), slot.shape) for slot in slots],
    ):
        counts: dict[Any, int] = {}
        for key, shape in items:
            group = tuple(sorted(shape))
            ranks[key] = counts[group] = counts.get(group, -1) + 1
    return ranks


def _cost(features: Mapping[str, str], slot: Slot) -> float:
    """Return how badly a slot's name and owner match the features of a weight."""
    cost = 0.0
    for feature, value in features.items():
        if feature == "norm":
            cost += _norm_cost(value, slot)
        elif feature in slot.features:
            # Side and layer are rarely ambiguous in a name, block and letter often are ("out", "first").
            weight = 40.0 if feature in ("side", "layer") else 10.0
            cost += -weight if slot.features[feature] == value else weight
    if slot.owner == "norm" and "norm" not in features:
        cost += 100
    if "norm" not in features and features.get("block") == "feed_forward" and "letter" in slot.features:
        # "out_proj.bias" is the bias of a projection, which the exercises do not have.
        cost += 80 if len(slot.shape) == 1 and slot.features.get("block") != "feed_forward" else 15
    return cost


def _norm_cost(kind: str, slot: Slot) -> float:
    """Return how badly a slot matches a gain or shift. A gain is a weight of ones, a shift is called a bias."""
    cost = 0.0 if slot.owner == "norm" else 30.0 if slot.owner == "other" else 100.0
    shift = any(piece in ("bias", "shift", "beta", "b") for piece in split_name(slot.name)[-2:]) and not slot.ones
    return cost + (0.0 if (kind == "shift") == shift else 20.0)


@dataclass
class CopiedWeights:
    """The weights of an exercise in a learner's module."""

    matches: dict[str, tuple[Slot, Writer]] = field(default_factory=dict)
    """Slot and writer of each weight."""
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of the parameters."""
    rearrange: Callable[[Mapping[str, Array]], dict[str, Array]] = dict
    """Brings weights into the module's layout of heads."""
    missing: list[str] = field(default_factory=list)
    """Weights of the exercise without a slot."""
    unused: list[str] = field(default_factory=list)
    """Parameters without a weight, which keep their initial values."""

    def buffers(self, weights: Mapping[str, Array]) -> dict[str, Array]:
        """Return weights, or directions of the same shapes, in the form of the parameters."""
        buffers: dict[str, Array] = {}
        for name, weight in self.rearrange(weights).items():
            if name in self.matches:
                slot, write = self.matches[name]
                write(weight, buffers.setdefault(slot.name, np.zeros(self.shapes[slot.name])))
        return buffers


def module_weights(exercise: Exercise, case: Case) -> dict[str, Array]:
    """Return the weights that a module has itself, by name."""
    weights: dict[str, Array] = {}
    for name in exercise.module_arguments:
        value = case.arguments[name]
        if isinstance(value, Mapping):
            weights |= value
        elif isinstance(value, np.ndarray):
            weights[name] = value
    return weights


def copy_weights(
    weights: Mapping[str, Array], module: Any, width: int, heads: int, layout: WeightLayout
) -> CopiedWeights:
    """Write the weights into the parameters of a module, and return where they are."""
    parameters = find_parameters(module)
    slots = find_slots(parameters, width)
    copied = CopiedWeights()
    copied.rearrange = lambda values: split_heads(
        stride_heads(values, heads, layout.strided), slots, width, heads
    )
    rearranged = copied.rearrange(weights)
    copied.matches = match_weights(rearranged, slots, heads, layout)
    copied.shapes = {name: tuple(value.shape) for name, (value, _) in parameters.items()}
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
