"""Find the first quantity at which a run of a learner's code leaves the right solution.

The quantities of the right solution are the results of its steps on one input: scores, weights, contexts and so on
(`quantities` in `mistakes.toml`). They are searched by value among all arrays of the learner's run, in any order of
their dimensions. A quantity that never occurs is still right if a later quantity that depends on it occurs: code may
join steps. What depends on a quantity is measured: the right solution runs with another value of it. A quantity that
is missing is named only if the run has another array of its shape, which is neither an input nor right: code may also
leave out a quantity.
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
from regard_course.inputs import MESSAGES, Array, Case
from regard_course.mistakes.known import TEXTS
from regard_course.report import Finding
from regard_course.search_steps import find_search_step, is_search
from regard_course.translated import say

SCALAR_ROUNDING = 1e-5
"""Largest relative difference of single numbers, which are equal by chance more often than arrays."""
LEAST_SCALE = 1e-2
"""Numbers of an array are compared relative to the largest one, or to this."""
MAX_SHOWN, MAX_SHAPES = 12, 3
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
    """Return the quantities of the right solution in their order. changed: number of the one that is replaced."""
    found: list[Quantity] = []
    places: list[str] = []
    generator = np.random.default_rng(0)

    def add(step: str, words: str, value: Any) -> Any:
        array = np.asarray(value, np.float64)
        paper = TEXTS["papers"][QUANTITIES[step]["paper"]]
        if len(found) == changed:
            array = array + (1 + np.abs(array)) * generator.normal(size=array.shape)
            value = array
        shown = " ".join(map(say, [words, *places[-1:]]))
        found.append(Quantity(step=step, words=shown, paper=say(paper), value=array))
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
    source = say(exercise.source or "This exercise's stub")
    found += [
        Quantity(
            step="returned", words=say("the returned {0}", say(name)), paper=source, value=np.asarray(value, np.float64)
        )
        for name, value in zip(exercise.outputs, outputs, strict=True)
    ]
    return found


class _Recording:
    """The arrays of a learner's run, to be searched by value."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        self.arrays = arrays
        self._by_size: dict[int, list[tuple[Array, Array]]] = defaultdict(list)
        for array in arrays:
            self._by_size[array.size].append((array, np.sort(array, axis=None)))

    def contains(self, value: Array, depth: int = MAX_DEPTH, *, ordered: bool = False) -> bool:
        """Return whether an array occurs, or its parts along the first dimensions. ordered: only in its own order."""
        numbers = np.sort(value, axis=None)
        if any(
            _equal(known, numbers) and _equal_up_to_order(array, value, ordered=ordered)
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

    def others(self, value: Array, known: Sequence[Array]) -> list[Array]:
        """Return the arrays of a shape, in any order of its dimensions, that are not known, or of a wrong shape: with
        as many dimensions but the sizes of no known array. Without any, return those of its parts."""
        sizes = [_sizes(array.shape) for array in known]
        kind = value.ndim, value.shape.count(1)
        for depth in range(MAX_DEPTH + 1):
            shape = _sizes(value.shape[depth:])
            parts = [
                part
                for array in known
                for whole in range(depth + 1)
                for part in array.reshape(-1, *array.shape[min(whole, array.ndim) :])
            ]
            parts = [part for part in parts if _sizes(part.shape) == shape]
            choices = [
                array
                for array in self.arrays
                if _sizes(array.shape) == shape
                or ((array.ndim, array.shape.count(1)) == kind and _sizes(array.shape) not in sizes)
            ]
            choices = [array for array in choices if not any(_equal_up_to_order(array, part) for part in parts)]
            if choices or depth >= value.ndim - 1:
                return choices
        return []


def _sizes(shape: Sequence[int]) -> list[int]:
    return sorted(size for size in shape if size > 1)


def _nearest(value: Array, choices: Sequence[Array]) -> Array | None:
    """Return the array of the same shape, up to dimensions of size 1, that differs least."""

    def distance(array: Array) -> tuple[int, float]:
        finite = np.isfinite(array) & np.isfinite(value)
        infinite = int((np.isfinite(array) != np.isfinite(value)).sum())
        return infinite, float(np.abs(array[finite] - value[finite]).mean()) if finite.any() else np.inf

    shape = np.squeeze(value).shape
    same = [array.reshape(value.shape) for array in choices if np.squeeze(array).shape == shape]
    return min(same, key=distance, default=None)


def _equal(left: Array, right: Array) -> bool:
    """Return whether arrays are equal up to rounding. A score that hides a key is equal to all such scores."""
    if left.shape != right.shape:
        return False
    compared = np.isfinite(left) & np.isfinite(right) & ((left > HIDDEN) | (right > HIDDEN))
    hidden, wanted = (np.maximum(array[~compared], HIDDEN) for array in (left, right))
    if not np.array_equal(hidden, wanted, equal_nan=True):
        return False
    rounding = ROUNDING if right.size > 1 else SCALAR_ROUNDING
    scale = max(LEAST_SCALE, float(np.abs(right[compared]).max(initial=0)))
    return float(np.abs(left[compared] - right[compared]).max(initial=0)) <= rounding * scale


def _proportional(left: Array, right: Array) -> bool:
    """Return whether an array is another one times a number that is not 0."""
    if np.squeeze(left).shape != np.squeeze(right).shape:
        return False
    left = left.reshape(right.shape)
    place = np.unravel_index(int(np.argmax(np.abs(right))), right.shape)
    return bool(left[place]) and bool(right[place]) and _equal(left / left[place], right / right[place])


def _equal_up_to_order(array: Array, wanted: Array, *, ordered: bool = False) -> bool:
    same = array.size == wanted.size
    if ordered or not same or _equal(array.reshape(wanted.shape), wanted):
        return same and _equal(array.reshape(wanted.shape), wanted)
    left, right = np.squeeze(array), np.squeeze(wanted)
    # A transposed array of the learner, or an array whose transposition was split or joined.
    return any(_equal(left.transpose(axes).reshape(right.shape), right) for axes in _orders(left.ndim)) or any(
        _equal(left, right.transpose(axes).reshape(left.shape)) for axes in _orders(right.ndim)
    )


def _orders(dimensions: int) -> list[tuple[int, ...]]:
    return list(itertools.permutations(range(dimensions)))[1:] if dimensions <= 5 else []


def choose_case(exercise: Exercise, cases: Sequence[Case], wrong: Sequence[bool]) -> Case | None:
    """Return the input with a wrong answer that has most different quantities, the smallest one of several."""

    def rank(case: Case) -> tuple[int, int]:
        if is_search(case):
            longest = case.arguments["longest"]
            return min(longest, 2), -longest * case.arguments.get("width", 1)
        inputs, count = _inputs(case), 0
        for item in record_quantities(exercise, case):
            if item.step != "returned" and _is_usable(item.value) and not _Recording(inputs).contains(item.value):
                inputs.append(item.value)
                count += 1
        return count, -sum(array.size for array in _inputs(case))

    return max((case for case, is_wrong in zip(cases, wrong, strict=True) if is_wrong), key=rank, default=None)


def _is_usable(value: Array) -> bool:
    """Return whether a quantity can be searched: it has no NaN, and different numbers if it has several."""
    return bool(not np.isnan(value).any() and (value.size == 1 or (value != value.flat[0]).any()))


def find_first_step(
    exercise: Exercise, case: Case, runs: Sequence[Sequence[Array]], outputs: Outputs | None
) -> Finding | None:
    """Return the first quantity that differs, in the run that stays right longest. runs: the arrays of the
    learner's runs. outputs: the learner's results, or None after an error."""
    if is_search(case):
        return find_search_step(exercise, case, runs, outputs)
    quantities = record_quantities(exercise, case)
    results = [item for item in quantities if item.step == "returned"]
    pairs = zip(outputs or (), results, strict=False)
    wrong = [item for mine, item in pairs if not equal_arrays(mine, item.value, case.valid_steps)]
    recordings = map(_Recording, runs or [[]])
    steps = [
        (_first(exercise, case, quantities, recording, wrong, outputs is None), recording) for recording in recordings
    ]
    (_, index, before), recording = max(steps, key=lambda item: item[0][0])
    if index is None:
        return None
    item = quantities[index]
    known_arrays = [*_inputs(case), *(part.value for part in quantities)]
    if item.step != "returned":
        mine = _nearest(item.value, recording.others(item.value, known_arrays))
    else:
        mine = outputs[results.index(item)] if outputs is not None else None
    others = [array for array in recording.arrays if not any(_equal(array, part) for part in known_arrays)]
    shapes = dict.fromkeys(array.shape for array in others)
    ending = "fails" if outputs is None else "returns" if item.step == "returned" else "lacks"
    known = [quantities[before].words] if before is not None else []
    return Finding(
        name=item.step,
        did=say(MESSAGES["first"], item.words),
        instead=say(MESSAGES[f"has_and_{ending}" if known else ending], item.words, *known),
        paper=item.paper,
        example=_show(exercise, case, item, mine, list(shapes)[-MAX_SHAPES:]),
    )


def _inputs(case: Case) -> list[Array]:
    values = [
        part for value in case.arguments.values() for part in (value.values() if isinstance(value, dict) else [value])
    ]
    return [np.asarray(value, np.float64) for value in values if isinstance(value, np.ndarray)]


def _first(
    exercise: Exercise,
    case: Case,
    quantities: Sequence[Quantity],
    recording: _Recording,
    wrong: Sequence[Quantity],
    failed: bool,
) -> tuple[int, int | None, int | None]:
    """Return how many quantities occur, and the numbers of the first wrong and of the last right one before it, or
    None. wrong: results that are returned with another value. failed: whether an error ended the run."""
    inner = [item for item in quantities if item.step != "returned"]
    occurs = []
    for item in inner:
        ordered = bool(QUANTITIES[item.step].get("ordered"))
        occurs.append(recording.contains(item.value, ordered=ordered) if _is_usable(item.value) else None)
    # A result that is right inside, and is returned with another value, shows nothing about what came before it.
    lost = {n: result for n, item in enumerate(inner) for result in wrong if _equal(item.value, result.value)}
    known, missing = [*_inputs(case), *(item.value for item in quantities)], list[tuple[int, int]]()
    for index, here in enumerate(occurs):
        if here and index in lost:
            missing.append((quantities.index(lost[index]), index))
        elif here is False:
            changed = record_quantities(exercise, case, index)
            later = [number for number in range(index + 1, len(inner)) if occurs[number] and number not in lost]
            if any(not _equal(changed[number].value, inner[number].value) for number in later):
                continue
            missing.append((index, index))
    right = [number for number, here in enumerate(occurs) if here]
    if failed:  # what comes after the last quantity
        places = [place for place in missing if place[1] > max(right, default=-1)]
    else:
        places = [n for n in missing if n[0] >= len(inner) or recording.others(inner[n[0]].value, known)]
        number, following = (places[0][0], places[0][0] + 1) if places else (len(inner), len(inner))
        # Code may scale the queries before it multiplies them by the keys: with another factor, the scale is wrong.
        if following < len(inner) and occurs[following] is False:
            value = inner[number].value
            others = recording.others(value, known)
            if all(any(_proportional(array, value) for array in part) for part in ([inner[following].value], others)):
                places[0] = following, following
    item = wrong[0] if wrong else quantities[len(inner)]
    first = places[0] if places else (quantities.index(item), len(inner))
    if not places and not right and inner:
        return 0, None, None
    right = [number for number in right if number <= first[1]]
    return sum(map(bool, occurs)), first[0], right[-1] if right else None


def _show(
    exercise: Exercise, case: Case, item: Quantity, mine: Array | None, shapes: Sequence[tuple[int, ...]]
) -> SmallExample:
    """Return the quantity with the learner's value, or else with the last shapes of the learner's other arrays."""
    right = item.value
    if mine is None:
        shown = ", ".join(map(str, shapes)) or "-"
        yours, should = say("no array of this shape, but {0}", shown), say("shape {0}", right.shape)
    elif right.size <= MAX_SHOWN or mine.shape != right.shape:
        yours, should = (
            show_value(array) if array.size <= MAX_SHOWN else say("shape {0}", array.shape) for array in (mine, right)
        )
    else:
        with np.errstate(invalid="ignore"):
            error = np.nan_to_num(np.abs(mine - right), nan=0, posinf=np.inf)
        place = np.unravel_index(int(np.argmax(error)), error.shape)
        where = f"[{', '.join(str(int(number)) for number in place)}]"
        yours, should = (say("{0} at {1}", f"{array[place]:.4g}", where) for array in (mine, right))
    shown = say("the input '{0}'", say(case.name))
    return SmallExample(exercise=exercise.name, inputs=shown, right=should, wrong=yours)
