"""Find the known mistakes, or pairs of them, that give the same answers as a learner's code on the same random inputs.
Answers without an explanation are left to `first_step`."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from regard_course.arrays import Outputs, equal_arrays, equal_outputs
from regard_course.exercises.course import EXERCISES
from regard_course.exercises.exercise import Exercise, as_outputs
from regard_course.inputs import Array, Case
from regard_course.mistakes.solution import Solution
from regard_course.translated import say

Mistake = type[Solution]
Answers = Sequence[Outputs | None]
"""Outputs of each case; None for a case that failed."""
MAX_SHOWN = 12
"""Largest array size that an example shows in full."""
CACHE_SIZE = 1 << 16
"""Number of cached outputs: enough for all mistakes on all inputs, and the same number for pairs."""
HIDDEN = -1e4
"""Largest number that code writes in place of -inf to hide a score."""
ATTRIBUTES = ("did", "instead", "paper", "companion", "broken", "rounded")
"""Attributes of a mistake's class that are not steps of the solution."""


@dataclass(frozen=True, kw_only=True)
class SmallExample:
    """A small input on which a mistake changes the output."""

    exercise: str
    inputs: str
    right: str
    wrong: str


def run_solution(solution: Mistake, exercise: Exercise, case: Case) -> Outputs | None:
    """Return the outputs of a solution, or None if it fails. They are cached and must not be changed."""
    hashable: Any = solution  # mypy does not treat classes as hashable
    return _run_cached(hashable, exercise, case)


@functools.lru_cache(maxsize=CACHE_SIZE)
def _run_cached(solution: Any, exercise: Exercise, case: Case) -> Outputs | None:
    with np.errstate(all="ignore"):
        try:
            return as_outputs(getattr(solution(), exercise.name)(**case.arguments))
        except (ValueError, IndexError, ZeroDivisionError, KeyError):
            return None


def explains(
    mistake: Mistake, exercise: Exercise, cases: Sequence[Case], answers: Answers, *, strict: bool = True
) -> bool:
    """Return whether a mistake gives the learner's answers, and fails where they fail. If `strict` is False, cases in
    which only one of them fails are ignored (libraries differ), but the mistake must give an incorrect answer."""
    agrees = False
    for case, answer in zip(cases, answers, strict=True):
        if not case.diagnose:
            continue
        outputs = run_solution(mistake, exercise, case)
        if strict and (answer is None) != (outputs is None):
            return False
        if answer is not None and outputs is not None:
            broken = case.name in mistake.broken and _is_broken(answer, exercise.expected(case))
            skipped = broken or case.name in mistake.rounded
            if not skipped and not equal_outputs(case, _infinite(answer, outputs), outputs):
                return False
            agrees = agrees or strict or _changes_output(mistake, exercise, case)
    return agrees


def _is_broken(answer: Outputs, right: Outputs) -> bool:
    """Return whether an answer contains NaN or infinity, or rows of zeros that replace them."""
    return any(
        not np.isfinite(array).all()
        or (array.shape == known.shape and bool(((array == 0).all(-1) & (known != 0).any(-1)).any()))
        for array, known in zip(answer, right, strict=False)
    )


def _infinite(answer: Outputs, outputs: Outputs) -> Outputs:
    """Return an answer with -inf in place of large negative numbers where the outputs are -inf."""
    return [
        np.where(np.isneginf(right) & (array <= HIDDEN), -np.inf, array) if array.shape == right.shape else array
        for array, right in zip(answer, outputs, strict=False)
    ]


@functools.cache
def relevant_mistakes(exercise: Exercise) -> list[Mistake]:
    """Return the mistakes that give an incorrect output in an exercise, not only an error."""
    cases = [case for case in exercise.cases(0) if case.diagnose]
    return [
        mistake
        for mistake in exercise.mistakes
        if any(
            _changes_output(mistake, exercise, case) and run_solution(mistake, exercise, case) is not None
            for case in cases
        )
    ]


def _changes_output(mistake: Mistake, exercise: Exercise, case: Case) -> bool:
    right = run_solution(exercise.base, exercise, case)
    outputs = run_solution(mistake, exercise, case)
    return outputs is None or right is None or not equal_outputs(case, outputs, right)


@functools.cache
def _combine(first: Any, second: Any) -> Mistake | None:  # mypy does not treat classes as hashable
    """Return a solution with two mistakes, always the same class, or None if both replace the same step."""
    steps = [{name for name in vars(each) if not name.startswith("__")} - {*ATTRIBUTES} for each in (first, second)]
    if steps[0] & steps[1]:
        return None
    joined = {name: getattr(first, name) | getattr(second, name) for name in ("broken", "rounded")}
    return type(f"{first.__name__}_and_{second.__name__}", (first, second), joined)


def diagnose_one(exercise: Exercise, cases: Sequence[Case], answers: Answers) -> list[list[Mistake]]:
    """Return every mistake that explains the answers without other mistakes."""
    relevant = relevant_mistakes(exercise)
    explanations = [[mistake] for mistake in relevant if explains(mistake, exercise, cases, answers)]
    if not explanations and None in answers:
        explanations = [[mistake] for mistake in relevant if explains(mistake, exercise, cases, answers, strict=False)]
    return explanations


def diagnose_two(exercise: Exercise, cases: Sequence[Case], answers: Answers) -> list[list[Mistake]]:
    """Return every pair of mistakes that explains the answers, without companions (which have an effect only beside
    another mistake) that change no output of this exercise."""
    relevant = relevant_mistakes(exercise)
    companions = [mistake for mistake in exercise.mistakes if mistake.companion and mistake not in relevant]
    # Small answers are the fastest to compare.
    order = sorted(
        zip(cases, answers, strict=True), key=lambda pair: (pair[1] is None, pair[1][0].size if pair[1] else 0)
    )
    ordered = [case for case, _ in order], [answer for _, answer in order]
    explanations: list[list[Mistake]] = []
    mistakes: list[Any] = [*relevant, *companions]
    for pair in combinations(mistakes, 2):
        combined = _combine(*pair)
        if combined is None or not explains(combined, exercise, *ordered):
            continue
        named = [mistake for mistake in pair if mistake in relevant]
        cancels = not any(case.diagnose and _changes_output(combined, exercise, case) for case in cases)
        if named and not cancels and named not in explanations:  # two companions may have no effect
            explanations.append(named)
    return explanations


def find_example(mistake: Mistake, exercise: Exercise) -> SmallExample | None:
    """Return the first small input, of this exercise or an earlier one, on which a mistake changes the output. If
    no input is small enough to show, the example is one number of the output for a larger input."""
    earlier = EXERCISES[: EXERCISES.index(exercise)] if exercise in EXERCISES else ()
    small = [
        (item, case, True)
        for item in (*earlier, exercise)
        for case in (*(case for case in item.cases(0) if case.name == "by hand"), *item.small_cases())
    ]
    large = [(exercise, case, False) for case in exercise.cases(0) if case.diagnose]
    for item, case, is_small in [*small, *large]:
        if not _changes_output(mistake, item, case):
            continue
        right, wrong = run_solution(item.base, item, case), run_solution(mistake, item, case)
        assert right is not None, "the correct solution never fails"
        if is_small:
            arguments = [(name, value) for name, value in case.arguments.items() if value is not None]
            example = SmallExample(
                exercise=item.name,
                inputs=", ".join(f"{name} = {show_value(value)}" for name, value in arguments),
                right=_show_outputs(item, right),
                wrong=say("an error") if wrong is None else _show_outputs(item, wrong),
            )
            if example.right != example.wrong:  # a batch of one is shown like an output without a batch
                return example
        elif wrong is not None:
            return _largest_difference(item, case, right, wrong)
    return None


def _show_outputs(exercise: Exercise, outputs: Outputs) -> str:
    if len(outputs) == 1:
        return show_value(outputs[0])
    return ", ".join(f"{say(name)} {show_value(array)}" for name, array in zip(exercise.outputs, outputs, strict=True))


def _largest_difference(exercise: Exercise, case: Case, right: Outputs, wrong: Outputs) -> SmallExample:
    """Return the first incorrect output, or the number in this output that differs most."""
    number = next(
        n for n, (a, b) in enumerate(zip(wrong, right, strict=True)) if not equal_arrays(a, b, case.valid_steps)
    )
    name, pair = say(exercise.outputs[number]), (wrong[number], right[number])
    where = say("the input '{0}'", say(case.name))
    if pair[0].shape != pair[1].shape or pair[0].size <= MAX_SHOWN:
        large = any(array.size > MAX_SHOWN for array in pair)
        words = [
            say("{0} of shape {1}", name, array.shape) if large else f"{name} {show_value(array)}" for array in pair
        ]
    else:
        error = np.nan_to_num(np.abs(pair[0] - pair[1]), nan=np.inf, posinf=np.inf)
        if case.valid_steps is not None:
            error = np.where(case.valid_steps[..., None], error, 0)
        index = np.unravel_index(int(np.argmax(error)), error.shape)
        words = [f"{name}{[int(i) for i in index]} = {array[index]:.4g}" for array in pair]
    return SmallExample(exercise=exercise.name, inputs=where, right=words[1], wrong=words[0])


def show_value(value: Any) -> str:
    """Return a value as one short line. A batch of one is shown without its first dimension.

    >>> show_value(np.array([[[1.0, 0.5]]]))
    '[[1. , 0.5]]'
    """
    if isinstance(value, Mapping):  # the parameters of the small cases
        return say("1 on every diagonal, biases 0.5, gains 2, shifts 1")
    if isinstance(value, tuple):
        return ", ".join(show_value(part) for part in value)
    if not isinstance(value, np.ndarray):
        return str(value)
    array: Array = value[0] if value.ndim == 3 and len(value) == 1 else value
    if value.dtype.kind != "f":
        return " ".join(str(array.tolist()).split())
    with np.printoptions(precision=3, suppress=True, linewidth=1_000):
        return " ".join(np.array2string(array, separator=", ").split()).replace("[ ", "[").replace(" ]", "]")
