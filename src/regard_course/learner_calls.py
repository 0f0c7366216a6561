"""Call a learner's function or class with an exercise's inputs, in the process that runs the learner's code.

Nothing is graded here. An answer consists of plain values for JSON: outputs and gradients, or an error.
"""

import contextlib
import importlib
import inspect
import itertools
import linecache
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from regard_course.arrays import (
    Library,
    Outputs,
    convert_argument,
    convert_result,
    encode_outputs,
    equal_arrays,
    equal_outputs,
    guess_libraries,
    loaded_torch,
)
from regard_course.inputs import Array, Case, Specification
from regard_course.module_parameters import (
    find_hidden_modules,
    find_parameters,
    name_features,
    split_name,
    weight_features,
)
from regard_course.time_limit import report_progress

# Copy the weights of an exercise into the matching parameters of a learner's module.
#
# The problem. An exercise names its weights (`w_q`, `encoder.0.w_1`, ...) and applies them as `x @ w`, with
# adjacent columns for each head. A learner's class creates parameters with its own names and layout. Before the
# class is called, each weight must be copied into the corresponding parameter.
#
# The checker does not require attribute names. Of the 28 classes in tests/course/learners, 4 use the parameter
# names of the exercise, and 24 do not. Five of these contain layers of PyTorch, whose names are fixed.
#
# The idea. Shapes exclude most parameters, names decide between most of the remaining parameters, and the order
# of definition decides between equal names. An incorrect match cannot make an incorrect solution pass, because
# the weights are random. The checker therefore tries every possible layout until the outputs of one input are
# correct.
#
# An example. `self.attn.to_keys = nn.Linear(15, 15)` has the parameter `attn.to_keys.weight`, of shape (15, 15).
# The four weights w_q, w_k, w_v and w_o have this shape. "keys" is among the `WORDS` for the letter k, so w_k has
# the cost -10 here, and each of the others has the cost 10. A linear layer applies its weight as `x @ w.T`, so
# the parameter receives the transpose of w_k.
#
# The steps, and the number of the 28 classes that are matched incorrectly without each step:
#
# 1. `name_features` (in `module_parameters`): extract side, layer, block and letter from the name of a parameter.
# Without names: 7. 2. `find_slots`: a packed parameter (query, key and value side by side) holds two or three
# weights. Without: 8. 3. `possible_layouts`: a square `nn.Parameter` may be applied as `x @ w` or as `w @ x`, a
# packed parameter may be ordered by head, and a head may be every h-th column. Shapes cannot show this. With the
# usual layout only: 5. 4. `find_axes`: find whether a slot can hold a weight, and in which order of its
# dimensions. Weights are matched by shape. The test inputs have prime sizes, so most weights differ in shape. 5.
# `rearrange_heads`: reorder or split the columns of heads for the module. Without: 3. 6. `match_weights`: assign
# all weights to slots with the smallest total cost (Hungarian method). Choosing the best slot for one weight at a
# time could leave no slot for the last weight. Without the order of definition: 1. 7. `copy_weights`: write the
# weights. Biases without a weight become 0, because the exercises have no such biases. Other parameters without a
# weight, and weights without a parameter, are reported to the learner.

IMPOSSIBLE = 1e6
"""Cost of a slot whose shape does not fit a weight."""
MAX_VECTOR_COST = 60.0
"""Largest name cost at which a slot may hold a bias, gain or shift.

All vectors of the same length fit by shape.
"""


@dataclass(frozen=True)
class WeightLayout:
    """One interpretation of a module's parameters. Shapes alone cannot decide between the layouts."""

    transposed: bool = False
    """Square matrices outside of `nn.Linear` are applied from the left."""
    by_head: int = 0
    """1 if query, key and value of head 1 come first, then query, key and value of head 2, in a packed projection
    or among the parameters of single heads; 2 if a square matrix packs query, key and value of one of 3 heads."""
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
    shapes = {name: tuple(n for n in value.shape if n > 1) for name, (value, _) in parameters.items()}
    square = [name for name, shape in shapes.items() if shape == (width, width)]
    raw = [name for name, shape in shapes.items() if len(shape) == 2 and parameters[name][1] == "other"]
    transposes = (False, True) if raw else (False,)
    narrow = [name for name, shape in shapes.items() if sorted(shape) == sorted((width, width // heads))]
    unnamed = heads == 3 and any("letter" not in name_features(name) for name in square)
    packed = narrow or unnamed or any(sum(shape) > 2 * width or len(shape) > 2 for shape in shapes.values())
    layouts = [
        WeightLayout(transposed, by_head, strided)
        for strided in ((0, 1, 2) if projections and heads > 1 else (0,))
        for by_head in ((0, 1, 2)[: 3 if heads == 3 else 2] if packed else (0,))
        for transposed in transposes
    ]
    if not projections or all("letter" in name_features(name) for name in square + narrow):
        return layouts
    orders = ["".join(letters) for letters in itertools.permutations("qkvo")][1:]
    return layouts + [
        WeightLayout(transposed, by_head, order=order)
        for by_head in ((0, 1) if narrow else (0,))
        for transposed in transposes
        for order in orders
    ]


View = Callable[[Array], Array]
"""Function that returns the part of a parameter that holds a weight, as a view.

The numbers of the view are in the order of the weight.
"""


@dataclass
class Slot:
    """A place for one weight: a parameter, or a part of a packed parameter."""

    name: str
    shape: tuple[int, ...]
    """Shape of the part, without dimensions of size 1."""
    owner: str
    """Kind of module that owns the parameter: linear, embedding, norm or other."""
    ones: bool
    """Whether all initial values are 1, as in the gain of a layer norm."""
    features: dict[str, str] = field(default_factory=dict)
    """The features of the parameter's name; see `name_features`."""
    packed: bool = False
    """Whether the slot is a part of a packed projection, which is in the order of `x @ w`."""
    open: View = field(default=lambda parameter: parameter)
    """Function that returns the part of a parameter, as a view."""


def find_slots(
    parameters: Mapping[str, tuple[Any, str]], width: int, heads: int, layout: WeightLayout
) -> list[Slot]:
    """Return the slots of the parameters.

    A parameter that packs several projections has several slots: side by side in one dimension, of the whole
    width or of one head, or along a dimension of their number.
    """
    slots = []
    for name, (value, owner) in parameters.items():
        shape, features = tuple(size for size in value.shape if size > 1), name_features(name)
        parts = _find_parts(shape, width, heads, layout, owner, features)
        if not parts:
            ones = len(shape) == 1 and bool((value == 1).all())
            slots.append(Slot(name, shape, owner, ones, features, open=partial(_open, shape=shape)))
        letters = "kv" if len(parts) == 2 else "kqvo" if "kqv" in name.lower() else "qkvo"
        for letter, part in zip(letters, parts, strict=False):
            view = partial(_open, shape=shape, part=part)
            own, part_shape = {**features, "letter": letter}, view(np.zeros(value.shape)).shape
            slots.append(Slot(name, part_shape, owner, False, own, packed=len(part_shape) == 2, open=view))
    return slots


def _open(parameter: Array, shape: tuple[int, ...], part: View = lambda whole: whole) -> Array:
    return part(parameter.reshape(shape))


def _find_parts(
    shape: tuple[int, ...], width: int, heads: int, layout: WeightLayout, owner: str, features: Mapping[str, str]
) -> list[View]:
    """Return the parts of a packed parameter (without dimensions of size 1), or nothing."""
    size = width // heads
    units = [sorted(unit) for unit in ((width, width), (width, size), (heads, size, width)) if 1 not in unit]
    axes = [
        axis
        for axis, count in enumerate(shape)
        if count in (2, 3, 4) and len(shape) > 2 and sorted(shape[:axis] + shape[axis + 1 :]) in units
    ]
    if axes and sorted(shape) not in units:
        axis = axes[-1 if layout.by_head else 0]
        return [partial(_at, axis=axis, index=index) for index in range(shape[axis])]
    # A linear layer (out, in) with out = width is not packed: it reduces a wide input.
    reduces = owner == "embedding" or (owner == "linear" and shape[:1] == (width,))
    for part, count in itertools.product((width, size), (3, 2)):
        square = count * part == width  # a packed head, as wide as the model: without a letter in its name
        if sorted(shape) != sorted((count * part, width)) or (reduces and not square):
            continue
        if not square or (layout.by_head == 2 and count == 3 and "letter" not in features):
            by_head = layout.by_head and part == width
            transposed = owner == "linear" if square else shape[0] > shape[1]
            return [
                partial(_columns, transposed=transposed, part=index, parts=count, heads=heads if by_head else 0)
                for index in range(count)
            ]
    return []


def _at(parameter: Array, axis: int, index: int) -> Array:
    return parameter[(slice(None),) * axis + (index,)]


def _columns(parameter: Array, transposed: bool, part: int, parts: int, heads: int) -> Array:
    """Return the columns of one part, of the form (D, columns). heads: their number, if each head has its own
    parts side by side, else 0."""
    wide = parameter.T if transposed else parameter
    if heads:
        return wide.reshape(len(wide), heads, parts, -1)[:, :, part]
    columns = wide.shape[1] // parts
    return wide[:, part * columns : (part + 1) * columns]


def find_axes(
    role: str, shape: tuple[int, ...], slot: Slot, heads: int, transposed: bool
) -> tuple[int, ...] | None:
    """Return the order of a slot's dimensions in which it holds a weight of this shape, or None if it cannot.

    role: the weight's name without its layer, for example "w_q".

    >>> find_axes("w_1", (2, 3), Slot("up.weight", (3, 2), "linear", False), 1, False)
    (1, 0)
    """
    if len(shape) == 1:
        return (0,) if slot.shape == shape else None
    rows, columns = shape
    if len(slot.shape) == 3:  # one dimension is the head
        whole = (heads, rows // heads, columns) if role.endswith("_o") else (rows, heads, columns // heads)
        orders = itertools.permutations(range(3))
        return next((axes for axes in orders if tuple(slot.shape[axis] for axis in axes) == whole), None)
    keep = (0, 1) if slot.shape == shape else None
    turn = (1, 0) if slot.shape == (columns, rows) else None
    if slot.owner == "embedding" or role in ("source", "target") or slot.packed:
        return keep
    if slot.owner == "linear":  # stores (out, in)
        # Luong's W_a may be applied to the state or to the memory: h W_a h̄ has no preferred side.
        return turn or (keep if role == "w_a" and rows != columns else None)
    return (turn or keep) if transposed else (keep or turn)


def rearrange_heads(
    weights: Mapping[str, Array], slots: list[Slot], width: int, heads: int, strided: int
) -> dict[str, Array]:
    """Return the weights with the columns of heads in the order of a module.

    If its heads take every h-th column (see `WeightLayout.strided`), the columns are reordered. If each head has
    its own parameters, a projection becomes one matrix per head, named `w_q@0` and so on.
    """
    size = width // heads
    blocks = sum(name.endswith("_o") for name in weights)
    separate = _separate_letters(slots, width, heads, blocks)
    rearranged: dict[str, Array] = {}
    for name, weight in weights.items():
        kind, _, letter = name.split(".")[-1].partition("_")
        projects = kind in ("w", "cross") and letter in tuple("qkvo")
        if strided and projects and letter != "o":
            weight = weight.reshape(width, heads, size).transpose(0, 2, 1).reshape(width, width)
        elif strided == 1 and letter == "o":
            weight = weight.reshape(heads, size, width).transpose(1, 0, 2).reshape(width, width)
        if projects and letter in separate:
            parts = np.split(weight, heads, axis=0 if letter == "o" else 1)
            rearranged |= {f"{name}@{head}": part for head, part in enumerate(parts)}
        else:
            rearranged[name] = weight
    return rearranged


def _separate_letters(slots: list[Slot], width: int, heads: int, blocks: int) -> str:
    narrow = sum(sorted(slot.shape) == sorted((width, width // heads)) for slot in slots)
    return {1: "o", 3: "qkv", 4: "qkvo"}.get(narrow // (heads * blocks), "") if heads > 1 and blocks else ""


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
    shapes = {name: weights[name].shape for name in _reorder(names, layout)}
    weight_ranks, slot_ranks = _ranks(shapes), _ranks({id(slot): slot.shape for slot in slots})
    for row, name in enumerate(names):
        features = weight_features(name, stacked, "cross_q" in weights) if projects else {}
        for column, slot in enumerate(slots):
            axes = find_axes(name.split(".")[-1], weights[name].shape, slot, heads, layout.transposed)
            name_cost = _cost(features, slot)
            if axes is None or (weights[name].ndim == 1 and name_cost > MAX_VECTOR_COST):
                continue
            # The order decides only between equal names: its cost of 0.01 is far below the cost of any feature.
            cost[row, column] = name_cost + 0.01 * (weight_ranks[name] - slot_ranks[id(slot)]) ** 2
            if slot.owner == "other" and len(axes) == 2:
                cost[row, column] += 0.05 * ((axes == (1, 0)) != layout.transposed)
            views[row, column] = partial(_view, open=slot.open, axes=axes)
    from scipy.optimize import linear_sum_assignment  # loads in a quarter of a second

    pairs = zip(*linear_sum_assignment(cost), strict=True)
    return {names[row]: (slots[column], views[row, column]) for row, column in pairs if (row, column) in views}


def _view(parameter: Array, open: View, axes: tuple[int, ...]) -> Array:
    return open(parameter).transpose(axes)


def _reorder(names: list[str], layout: WeightLayout) -> list[str]:
    """Return the names with the projections of each attention in the order of a layout."""
    blocks = [name.partition("@")[0].rpartition("_")[0] for name in names]

    def place(name: str) -> tuple[int, ...]:
        whole, _, head = name.partition("@")
        block, _, letter = whole.rpartition("_")
        if letter not in tuple("qkvo"):
            return (names.index(name),)
        order = layout.order.index(letter), int(head or 0)
        return (blocks.index(block), *(order[::-1] if layout.by_head else order))

    return sorted(names, key=place)


def _ranks(shapes: Mapping[Any, tuple[int, ...]]) -> dict[Any, int]:
    """Return the rank of each key among the keys with the same shape, in either orientation."""
    counts: dict[tuple[int, ...], int] = {}
    ranks: dict[Any, int] = {}
    for key, shape in shapes.items():
        group = tuple(sorted(shape))
        ranks[key] = counts[group] = counts.get(group, -1) + 1
    return ranks


# The costs follow no paper: their order matters, not their size. Measured on the 33 answers of
# tests/course/learners that are classes with weights (without the Transformer): with half or twice of any single
# cost, all are still matched correctly. Without the cost of block and letter 5 of them are matched incorrectly,
# without the order of definition 2. Without any other single cost, none is: those are for names that mislead.
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
    slots = find_slots(parameters, width, heads, layout)
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


TRACEBACK_LINES = 3
"""Maximum number of innermost lines of the learner's code that are shown with an error."""
MAX_ATTEMPTS = 4
"""Maximum number of combinations of library and layout that run on all cases if no combination gives the
correct outputs."""
CONSTRUCTOR_NAMES = {
    name: aliases.split()
    for name, aliases in {
        "width": "width d_model dim embed_dim n_embd num_hiddens size model_dim hidden hidden_size d dmodel",
        "heads": "heads num_heads n_heads nhead h n_head nheads num_attention_heads",
        "inner": "inner d_ff dff dim_feedforward hidden_dim ff ffn_dim d_inner inner_dim",
        "layers": "layers num_layers n_layers n depth num_encoder_layers num_decoder_layers",
        "source_size": "source_size src_vocab src_vocab_size source_vocab source_vocabulary n_src",
        "target_size": "target_size tgt_vocab tgt_vocab_size trg_vocab_size target_vocab n_tgt",
    }.items()
}
"""Names that learners use for a constructor's arguments."""
CALLERS = "regard_course.probe_models"
"""Module of the functions `Specification.call`. It needs PyTorch, which loads slowly."""
Answer = dict[str, Any]
Note = tuple[bool, str]
"""The text of a note, and whether the note alone makes the answer incorrect."""
RANDOM = (
    "two calls with the same input give different results, and random numbers are the reason: is dropout always"
    " active? Pass training=self.training, or use nn.Dropout, which eval() disables"
)
CHANGING = (
    "two calls with the same input give different results: the code keeps something from the first call (in an"
    " attribute, a global variable or a default argument), or has its own generator of random numbers"
)
HIDDEN_MODULES = (
    "{names} is a plain list or dictionary of modules, which PyTorch does not register: their weights would "
    "never be trained. Use nn.ModuleList or nn.ModuleDict"
)


def collect_answers(
    exercise: Specification,
    solution: Any,
    cases: Sequence[Case],
    is_right: Callable[[Answer], bool],
    send: Callable[[Answer], None],
    monitor: contextlib.AbstractContextManager[Any] | None = None,
) -> None:
    """Call a solution with all cases, and send each answer.

    An answer is `{"attempt": 0, "case": 0, "outputs": [...]}`, or has an error instead of outputs.

    The code may use NumPy or PyTorch, and the parameters may have several layouts. The first case is tried with
    each combination of library and layout. The first combination whose answer `is_right` is used for all cases.
    If no answer is right, up to `MAX_ATTEMPTS` combinations are used. This process does not know the expected
    outputs, so `is_right` asks another process. monitor: a context manager in which the first case is called.
    """
    if exercise.call:
        importlib.import_module(CALLERS)  # before the monitor records calls
    combinations = [
        (library, layout)
        for library in guess_libraries(solution)
        for layout in _layouts(exercise, solution, cases[0])
    ]
    tried: list[tuple[Answer, tuple[Library, WeightLayout]]] = []
    for library, layout in combinations:
        with monitor or contextlib.nullcontext():
            answer = answer_case(exercise, solution, cases[0], library, layout)
        if "outputs" in answer and is_right(answer):
            tried = [(answer, (library, layout))]
            break
        tried.append((answer, (library, layout)))
    usable = [attempt for attempt in tried if "outputs" in attempt[0]] or tried[:1]
    for number, (first, (library, layout)) in enumerate(usable[:MAX_ATTEMPTS]):
        send({**first, "attempt": number, "case": 0})
        for index, case in enumerate(cases[1:], 1):
            answer = answer_case(exercise, solution, case, library, layout)
            send({**answer, "attempt": number, "case": index})


def _layouts(exercise: Specification, solution: Any, case: Case) -> list[WeightLayout]:
    if not isinstance(solution, type) or not exercise.module_weights(case):
        return [WeightLayout()]
    try:
        parameters = find_parameters(initialize(exercise, solution, case))
    except Exception:
        return [WeightLayout()]
    projections = any(name.split(".")[-1] == "w_q" for name in exercise.module_weights(case))
    return possible_layouts(parameters, case.sizes["width"], case.sizes.get("heads", 1), projections)


def answer_case(
    exercise: Specification, solution: Any, case: Case, library: Library, layout: WeightLayout
) -> Answer:
    """Return the answer to one case: outputs, gradients and notes, or an error with the learner's lines."""
    report_progress()  # the number of cases, libraries and layouts is limited
    seed_generators()
    if case.functions_only and isinstance(solution, type):
        return {"skipped": True}
    try:
        if exercise.call:
            caller = getattr(importlib.import_module(CALLERS), exercise.call)
            outputs, words = caller(solution, case)
            notes = [(False, note) for note in words]
            return {"outputs": encode_outputs(outputs), "gradients": {}, "notes": notes}
        return _call_solution(exercise, solution, case, library, layout)
    except (MemoryError, EOFError):
        raise
    except NotImplementedError:
        return {"started": False, "error": "raises NotImplementedError", "lines": []}
    except Exception as error:
        if "allocate memory" in str(error):
            raise MemoryError from error
        return {"error": one_line(error), "lines": learner_lines(error, _folder(solution))}


def _call_solution(
    exercise: Specification, solution: Any, case: Case, library: Library, layout: WeightLayout
) -> Answer:
    differentiate = bool(case.gradients) and library == "torch"
    function, copied, values = solution, CopiedWeights(), dict(case.arguments)
    notes: list[Note] = []
    if isinstance(solution, type):
        function = initialize(exercise, solution, case)
        values = _call_arguments(exercise, case)
        weights = exercise.module_weights(case)
        if weights:
            copied = copy_weights(weights, function, case.sizes["width"], case.sizes.get("heads", 1), layout)
            notes += _weight_notes(copied, find_hidden_modules(function))
    arguments = {name: convert_argument(value, library, differentiate) for name, value in values.items()}
    seed_generators()  # again, because the initial weights of a module took random numbers
    result = call_function(function, arguments)
    outputs = convert_result(result, len(exercise.outputs))
    notes += _changed_arguments(values, arguments)
    notes += _repetition_notes(function, values, library, case, outputs)
    gradients = _gradients(exercise, case, result, arguments, function, copied) if differentiate else {}
    return {"outputs": encode_outputs(outputs), "gradients": gradients, "notes": notes}


def seed_generators() -> None:
    """Give the generators of random numbers of Python, NumPy and PyTorch a fixed state."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002  learners use the global generator
    torch = loaded_torch()
    if torch is not None:
        torch.manual_seed(0)


def _repetition_notes(
    function: Any, values: Mapping[str, Any], library: Library, case: Case, outputs: Outputs
) -> list[Note]:
    """Return a note if a second call with the same arguments has other results, with the reason.

    The reason is random numbers if a call with their first state has the first results again.
    """

    def repeat() -> Outputs:
        fresh = {name: convert_argument(value, library) for name, value in values.items()}
        return convert_result(call_function(function, fresh), len(outputs))

    if equal_outputs(case, repeat(), outputs):
        return []
    seed_generators()
    return [(True, RANDOM if equal_outputs(case, repeat(), outputs) else CHANGING)]


def _call_arguments(exercise: Specification, case: Case) -> dict[str, Any]:
    """Return the arguments of a module's call, without the arguments that the module stores as attributes."""
    return {name: value for name, value in case.arguments.items() if name not in exercise.module_arguments}


def initialize(exercise: Specification, cls: type, case: Case) -> Any:
    """Return an instance of a learner's class with the sizes of the case, in evaluation mode.

    Lazy layers of PyTorch are called once, because their parameters have no shapes before the first call.
    """
    module, torch = cls(**_constructor_arguments(exercise, cls, case)), loaded_torch()
    if hasattr(module, "eval"):
        module.eval()
    if torch is not None and isinstance(module, torch.nn.Module):
        lazy = torch.nn.parameter.UninitializedTensorMixin
        if any(isinstance(parameter, lazy) for parameter in module.parameters()):
            inputs = _call_arguments(exercise, case)
            call_function(module, {name: convert_argument(value, "torch") for name, value in inputs.items()})
    return module


def _constructor_arguments(exercise: Specification, cls: type, case: Case) -> dict[str, int]:
    """Return the constructor's arguments: first the arguments with known names, then the other required
    arguments in order."""
    parameters = [
        parameter
        for parameter in inspect.signature(cls).parameters.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    arguments: dict[str, int] = {}
    free = [name for name in exercise.constructor_sizes if name in case.sizes]
    for parameter in parameters:
        size = next((n for n in free if parameter.name.lower() in CONSTRUCTOR_NAMES.get(n, (n,))), None)
        if size is not None:
            arguments[parameter.name] = case.sizes[size]
            free.remove(size)
    for parameter in parameters:
        if parameter.name not in arguments and parameter.default is parameter.empty and free:
            arguments[parameter.name] = case.sizes[free.pop(0)]
    return arguments


def call_function(function: Any, arguments: Mapping[str, Any]) -> Any:
    """Call a function or module with positional arguments.

    A mask is omitted if the function does not accept a mask.
    """
    values = list(arguments.values())
    target = function
    if not callable(function) and hasattr(function, "forward"):
        target = function.forward
    with contextlib.suppress(TypeError, ValueError):
        signature = inspect.signature(getattr(function, "forward", target))
        names = list(arguments)
        while names and "mask" in names[-1] and not _accepts(signature, values):
            names.pop()
            values.pop()
        if not _accepts(signature, values):
            values = list(arguments.values())  # the error then concerns the arguments of the exercise
    return target(*values)


def _accepts(signature: inspect.Signature, values: Sequence[Any]) -> bool:
    try:
        signature.bind(*values)
    except TypeError:
        return False
    return True


def _weight_notes(copied: CopiedWeights, hidden: Sequence[str]) -> list[Note]:
    """Return notes on weights without a parameter and parameters without a weight."""
    if hidden:
        return [(True, HIDDEN_MODULES.format(names=", ".join(hidden)))]
    notes: list[Note] = []
    if copied.missing:
        names = ", ".join(copied.missing)
        notes.append(
            (False, f"your class has no parameter for {names}: is it missing, or does its shape differ?")
        )
    if copied.unused:
        names = ", ".join(copied.unused)
        notes.append(
            (False, f"no weight of this exercise fits these parameters, which keep their initial values: {names}")
        )
    return notes


def _changed_arguments(values: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[Note]:
    """Return a note for each array that the call changed."""
    notes: list[Note] = []
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            (after,) = convert_result(arguments[name], 1)
            if not equal_arrays(after, value.astype(np.float64)):
                notes.append((False, f"{name} is changed in place, so the caller loses its values: use a copy"))
    return notes


def _gradients(
    exercise: Specification, case: Case, result: Any, arguments: Any, function: Any, copied: CopiedWeights
) -> dict[str, Any]:
    """Return the directional derivative with respect to each argument, or None for an argument without a
    gradient."""
    torch = loaded_torch()
    first = result[0] if isinstance(result, tuple | list) else result
    gradients: dict[str, Any] = dict.fromkeys(case.gradients)
    if not hasattr(first, "backward") or not first.requires_grad:
        return gradients
    # Sum with 64 bits, to avoid additional rounding errors.
    weights = torch.tensor(case.output_weights(tuple(first.shape)), dtype=first.dtype)
    first.double().mul(weights.double()).sum().backward()
    directions = case.directions()
    in_module = {name: directions[name] for name in case.gradients if name not in arguments}
    for name in case.gradients:
        if name in arguments:
            gradients[name] = _derivative(arguments[name], directions[name])
    if in_module and isinstance(function, torch.nn.Module):
        gradients |= _weight_gradients(exercise, case, in_module, function, copied)
    return gradients


def _derivative(value: Any, direction: Any) -> float | None:
    if isinstance(value, Mapping):
        parts = [_derivative(part, direction[name]) for name, part in value.items()]
        known = [part for part in parts if part is not None]
        return sum(known) if known else None
    if value.grad is None:
        return None
    return float((value.grad.double().numpy() * direction).sum())


def _weight_gradients(
    exercise: Specification, case: Case, directions: dict[str, Any], module: Any, copied: CopiedWeights
) -> Answer:
    """Return the derivatives with respect to a module's weights, along directions with the shapes of its
    parameters."""
    gradients = {name: parameter.grad for name, parameter in module.named_parameters()}
    zeros = {name: np.zeros_like(value) for name, value in exercise.module_weights(case).items()}
    derivatives: Answer = {}
    for name, direction in directions.items():
        changes = zeros | (dict(direction) if isinstance(direction, Mapping) else {name: direction})
        known = [
            float((gradients[parameter].double().numpy() * buffer).sum())
            for parameter, buffer in copied.buffers(changes).items()
            if gradients.get(parameter) is not None
        ]
        derivatives[name] = sum(known) if known else None
    return derivatives


def one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def learner_lines(error: BaseException, folder: Path) -> list[str]:
    """Return the lines of an error's traceback that are in the learner's folder, the innermost line last."""
    course = str(Path(__file__).parent)
    lines: deque[tuple[str, int, str]] = deque(maxlen=TRACEBACK_LINES)
    is_learners: dict[str, bool] = {}
    step = error.__traceback__
    while step is not None:  # an unlimited recursion has millions of frames, so nothing else is kept
        code = step.tb_frame.f_code
        file = code.co_filename
        if file not in is_learners:
            in_folder = Path(file).parent == folder and not file.startswith(course)
            is_learners[file] = file.startswith("<ip") or in_folder  # "<ipython-input ...>" is a notebook's cell
        if is_learners[file]:
            lines.append((file, step.tb_lineno, code.co_name))
        step = step.tb_next
    return [f"line {line}, in {name}: {linecache.getline(file, line).strip()}" for file, line, name in lines]


def _folder(solution: Any) -> Path:
    try:
        return Path(inspect.getfile(solution)).parent
    except TypeError:
        return Path.cwd()
