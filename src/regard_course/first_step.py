"""Find the first quantity at which a run of a learner's code leaves the right solution.

The quantities of the right solution are the results of its steps on one input: scores, weights, contexts and so on
(`quantities` in `mistakes.toml`). They are searched by value among all arrays of the learner's run, in any order of
their dimensions. A quantity that never occurs is still right if a later quantity that depends on it occurs: code may
join steps. What depends on a quantity is measured: the right solution runs with another value of it.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard_course.arrays import ROUNDING, Outputs, equal_arrays
from regard_course.diagnosis import HIDDEN, SmallExample, show_value
from regard_course.exercises.exercise import Exercise, as_outputs
from regard_course.inputs import Array, Case
from regard_course.mistakes.known import TEXTS
from regard_course.report import Finding

SCALAR_ROUNDING = 1e-5
"""Largest relative difference of single numbers, which are equal by chance more often than arrays."""
FEW = {"one step", "one key", "one source step", "a batch of one", "one head"} | {
    *("by hand", "a single token", "equal sizes", "equal scores")
}
"""Inputs on which different quantities have equal values, used only if all others are right."""
MAX_SHOWN = 12
FIRST = "The first quantity that differs"
MAX_DEPTH = 2
"""Number of dimensions, for example batch and head, over which a loop of the learner may compute parts."""
Texts = dict[str, dict[str, Any]]
QUANTITIES: Texts = TEXTS["quantities"]
PLACES: dict[str, str] = TEXTS["places"]


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """An intermediate result of the right solution."""

    step: str
    """Name of the step, or "returned" for a result."""
    words: str
    paper: str
    value: Array


def record_quantities(exercise: Exercise, case: Case, changed: int | None = None) -> list[Quantity]:
    """Return the quantities of the right solution in their order. changed: the number of a quantity that gets
    another value."""
    found: list[Quantity] = []
    places: list[str] = []
    generator = np.random.default_rng(0)

    def add(step: str, words: str, value: Any) -> Any:
        array = np.asarray(value, np.float64)
        paper = TEXTS["papers"][QUANTITIES[step]["paper"]]
        if len(found) == changed:
            array = array + (1 + np.abs(array)) * generator.normal(size=array.shape)
            value = array
        found.append(Quantity(step=step, words=" ".join([words, *places[-1:]]), paper=paper, value=array))
        return value

    def around(name: str, right: Callable[..., Any]) -> Callable[..., Any]:
        texts = QUANTITIES.get(name, {})

        def step(self: Any, *values: Any, **named: Any) -> Any:
            if name in PLACES:
                places.append(PLACES[name])
            if "before" in texts:
                values = (add(name, texts["before"], values[0]), *values[1:])
            result = right(self, *values, **named)
            if "parts" in texts:
                parts = zip(texts["parts"], result, strict=True)
                result = type(result)(add(name, words, part) for words, part in parts)
            elif texts:
                result = add(name, texts["name"], result)
            if name in PLACES:
                places.pop()
            return result

        return step

    steps = {name: around(name, getattr(exercise.base, name)) for name in {**QUANTITIES, **PLACES}}
    steps.pop(exercise.name, None)
    solution = type("Recording", (exercise.base,), steps)
    with np.errstate(all="ignore"):
        outputs = as_outputs(getattr(solution(), exercise.name)(**case.arguments))
    source = exercise.source or "This exercise's stub"
    found += [
        Quantity(step="returned", words=f"the returned {name}", paper=source, value=np.asarray(value, np.float64))
        for name, value in zip(exercise.outputs, outputs, strict=True)
    ]
    return found


class _Recording:
    """The arrays of a learner's run, to be searched by value."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        self.arrays = arrays
        self._by_size: dict[int, list[tuple[Array, Array]]] = defaultdict(list)
        for array in arrays:
            hidden = np.maximum(array, HIDDEN)
            self._by_size[array.size].append((hidden, np.sort(hidden, axis=None)))

    def contains(self, value: Array, depth: int = MAX_DEPTH, *, ordered: bool = False) -> bool:
        """Return whether an array occurs, in any order of its dimensions, or its parts along the first
        dimensions. ordered: only in its own order."""
        wanted = np.maximum(value, HIDDEN)
        numbers = np.sort(wanted, axis=None)
        if any(
            _equal(known, numbers) and _equal_up_to_order(array, wanted, ordered=ordered)
            for array, known in self._by_size[value.size]
        ):
            return True
        if not depth or value.ndim < 2 or value.size <= len(value):
            return False
        axes = range(min(2, value.ndim - 1))
        return any(
            all(self.contains(part, depth - 1, ordered=ordered) for part in np.moveaxis(value, axis, 0))
            for axis in axes
        )

    def nearest(self, value: Array, right: Sequence[Quantity]) -> Array | None:
        """Return the array of the same shape, up to dimensions of size 1, that differs least and is no other
        quantity of the right solution."""
        shape = np.squeeze(value).shape
        choices = [array.reshape(value.shape) for array in self.arrays if np.squeeze(array).shape == shape]
        others = [item.value.reshape(value.shape) for item in right if np.squeeze(item.value).shape == shape]
        choices = [array for array in choices if not any(_equal(array, other) for other in others)]

        def distance(array: Array) -> float:
            finite = np.isfinite(array) & np.isfinite(value)
            return float(np.abs(array[finite] - value[finite]).mean()) if finite.any() else np.inf

        return min(choices, key=distance, default=None)


def _equal(left: Array, right: Array) -> bool:
    if left.shape != right.shape:
        return False
    finite = np.isfinite(left) & np.isfinite(right)
    if not np.array_equal(left[~finite], right[~finite], equal_nan=True):
        return False
    rounding = ROUNDING if right.size > 1 else SCALAR_ROUNDING
    scale = max(1.0 if right.size > 1 else 1e-3, float(np.abs(right[finite]).max(initial=0)))
    return float(np.abs(left[finite] - right[finite]).max(initial=0)) <= rounding * scale


def _equal_up_to_order(array: Array, wanted: Array, *, ordered: bool) -> bool:
    if _equal(array.reshape(wanted.shape), wanted):
        return True
    if ordered:
        return False
    left, right = np.squeeze(array), np.squeeze(wanted)
    # A transposed array of the learner, or an array whose transposition was split or joined.
    return any(_equal(left.transpose(axes).reshape(right.shape), right) for axes in _orders(left.ndim)) or any(
        _equal(left, right.transpose(axes).reshape(left.shape)) for axes in _orders(right.ndim)
    )


def _orders(dimensions: int) -> list[tuple[int, ...]]:
    return list(itertools.permutations(range(dimensions)))[1:] if dimensions <= 5 else []


def choose_case(cases: Sequence[Case], wrong: Sequence[bool]) -> Case | None:
    """Return the smallest input with a wrong answer on which the quantities differ from each other."""
    choices = [case for case, is_wrong in zip(cases, wrong, strict=True) if is_wrong]
    choices = [case for case in choices if case.name not in FEW] or choices
    return min(choices, key=_size, default=None)


def _size(case: Case) -> int:
    return sum(value.size for value in case.arguments.values() if isinstance(value, np.ndarray))


def find_first_step(
    exercise: Exercise, case: Case, runs: Sequence[Sequence[Array]], outputs: Outputs | None
) -> Finding | None:
    """Return the first quantity that differs, in the run that stays right longest. runs: the arrays of the
    learner's runs. outputs: the learner's results, or None after an error."""
    quantities = record_quantities(exercise, case)
    if quantities[0].step == "returned":
        return None
    steps = [(_first(exercise, case, quantities, recording), recording) for recording in map(_Recording, runs) if runs]
    if not steps:
        return None
    (index, before), recording = max(steps, key=lambda item: item[0][0])
    if index == len(quantities):  # every quantity occurs: what is returned differs
        pairs = zip(outputs or (), [item for item in quantities if item.step == "returned"], strict=False)
        wrong = [n for n, (mine, item) in enumerate(pairs) if not equal_arrays(mine, item.value, case.valid_steps)]
        if not wrong or outputs is None:
            return None
        index = len(quantities) - len(exercise.outputs) + wrong[0]
        mine: Array | None = outputs[wrong[0]]
    else:
        mine = recording.nearest(quantities[index].value, quantities)
    item = quantities[index]
    known = f"Your run has {quantities[before].words}, but" if before is not None else "Your run has"
    return Finding(
        name=item.step,
        did=f"{FIRST}: {item.words}.",
        instead=f"{known} nowhere {item.words}." if item.step != "returned" else f"{known} returns something else.",
        paper=item.paper,
        example=_show(exercise, case, item, mine),
    )


def _first(
    exercise: Exercise, case: Case, quantities: Sequence[Quantity], recording: _Recording
) -> tuple[int, int | None]:
    """Return the number of the first quantity that is wrong, and of the last one before it that occurs."""
    inner = [item for item in quantities if item.step != "returned"]
    occurs = []
    for item in inner:
        constant = item.value.size > 1 and bool((item.value == item.value.flat[0]).all())
        plain = constant or np.isnan(item.value).any()
        ordered = bool(QUANTITIES[item.step].get("ordered"))
        occurs.append(None if plain else recording.contains(item.value, ordered=ordered))
    last = None
    for index, here in enumerate(occurs):
        if here:
            last = index
        elif here is False:
            changed = record_quantities(exercise, case, index)
            later = [
                number
                for number in range(index + 1, len(inner))
                if occurs[number] and not _equal(changed[number].value, inner[number].value)
            ]
            if not later:
                return index, last
    return len(quantities), last


def _show(exercise: Exercise, case: Case, item: Quantity, mine: Array | None) -> SmallExample:
    right = item.value
    if mine is None:
        yours, should = "no array of this shape", f"shape {right.shape}"
    elif right.size <= MAX_SHOWN or mine.shape != right.shape:
        yours, should = (
            show_value(array) if array.size <= MAX_SHOWN else f"shape {array.shape}" for array in (mine, right)
        )
    else:
        with np.errstate(invalid="ignore"):
            error = np.nan_to_num(np.abs(mine - right), nan=0, posinf=np.inf)
        place = np.unravel_index(int(np.argmax(error)), error.shape)
        where = f"[{', '.join(str(int(number)) for number in place)}]"
        yours, should = (f"{array[place]:.4g} at {where}" for array in (mine, right))
    return SmallExample(exercise=exercise.name, inputs=f"the input {case.name!r}", right=should, wrong=yours)
