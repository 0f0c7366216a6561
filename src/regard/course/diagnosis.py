"""Which usual mistakes would have answered what a learner's code answered.

Each mistake of the catalogue is run on the same inputs. The answer is compared with all of them, and, where none
alone explains it, with pairs of them, and then with sets of three.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from regard.course.catalogue import MISTAKES, Workings
from regard.course.exercises import EXERCISES, Case, Exercise
from regard.course.exercises.exercise import as_outputs
from regard.course.likeness import Outputs, agree, alike

Mistake = type[Workings]
Answers = Sequence[Outputs | None]
"""What was answered to each case; None where nothing was."""
FEW = 12
"""Numbers that an example shows all of."""
SOME, TRIES = 36, 40_000
"""Mistakes of which all sets of three are tried on an input; and sets that are tried before the search ends."""
KEPT = 1 << 16
"""Answers of the catalogue that are kept: of every mistake to every input, and of as many pairs again."""


@dataclass(frozen=True, kw_only=True)
class SmallExample:
    """A small input on which a mistake makes a difference."""

    exercise: str
    inputs: str
    right: str
    wrong: str


def work_out(workings: Mistake, exercise: Exercise, case: Case) -> Outputs | None:
    """Return what these workings answer, or None where they cannot; it is kept, and not to be changed."""
    untyped: Any = workings  # mypy does not take classes for hashable
    return _worked_out(untyped, exercise, case)


@functools.lru_cache(maxsize=KEPT)
def _worked_out(workings: Any, exercise: Exercise, case: Case) -> Outputs | None:
    with np.errstate(all="ignore"):
        try:
            return as_outputs(getattr(workings(), exercise.name)(**case.arguments))
        except (ValueError, IndexError, ZeroDivisionError, KeyError):
            return None


def explains(
    workings: Mistake, exercise: Exercise, cases: Sequence[Case], answers: Answers, *, strictly: bool = True
) -> bool:
    """Whether these workings answer every case as it was answered, and fail where nothing was.

    Not `strictly`: where only one of them fails, that says nothing (shapes that do not fit stop one library and
    not another), as long as a wrong answer agrees somewhere.
    """
    report_metrics = False
    for case, given in zip(cases, answers, strict=True):
        if not case.report_metrics:
            continue
        found = work_out(workings, exercise, case)
        if strictly and (given is None) != (found is None):
            return False
        if given is not None and found is not None:
            broken = case.name in workings.broken and not all(np.isfinite(each).all() for each in given)
            if not broken and not agree(case, given, found):
                return False
            report_metrics = report_metrics or strictly or _differs(workings, exercise, case)
    return report_metrics


@functools.cache
def usual_mistakes(name: str) -> list[Mistake]:
    """Return the mistakes that give wrong answers in an exercise, not only none."""
    exercise = next(each for each in EXERCISES if each.name == name)
    cases = [each for each in exercise.cases(0) if each.report_metrics]
    return [
        each
        for each in MISTAKES
        if any(_differs(each, exercise, case) and work_out(each, exercise, case) is not None for case in cases)
    ]


def _differs(mistake: Mistake, exercise: Exercise, case: Case) -> bool:
    right = work_out(Workings, exercise, case)
    found = work_out(mistake, exercise, case)
    return found is None or right is None or not agree(case, found, right)


def both(one: Mistake, other: Mistake) -> Mistake | None:
    """Return workings with two mistakes, or None where both are made in the same step."""
    pair: tuple[Any, Any] = (one, other)
    return _both(*pair)


@functools.cache
def _both(one: Any, other: Any) -> Mistake | None:
    if set(_steps(one)) & set(_steps(other)):
        return None
    return type(f"{one.__name__}And{other.__name__}", (one, other), {})


def _steps(mistake: Mistake) -> list[str]:
    words = ("instead", "paper", "companion", "broken")
    return [name for name in vars(mistake) if not name.startswith("__") and name not in words]


def diagnose_one(exercise: Exercise, cases: Sequence[Case], answers: Answers) -> list[list[Mistake]]:
    """Return every mistake that explains the answers by itself."""
    usual = usual_mistakes(exercise.name)
    alone = [[each] for each in usual if explains(each, exercise, cases, answers)]
    if not alone and None in answers:
        alone = [[each] for each in usual if explains(each, exercise, cases, answers, strictly=False)]
    return alone


def diagnose_two(exercise: Exercise, cases: Sequence[Case], answers: Answers) -> list[list[Mistake]]:
    """Return every pair of mistakes that explains the answers together.

    A mistake that makes no difference in this exercise by itself is not named.
    """
    usual = usual_mistakes(exercise.name)
    found: list[list[Mistake]] = []
    companions = [each for each in MISTAKES if each.companion and each not in usual]
    order = _likely(exercise, cases, answers)
    for one, other in combinations([*usual, *companions], 2):
        together = both(one, other)
        if together is None or not explains(together, exercise, order[0], order[1]):
            continue
        named = [each for each in (one, other) if each in usual]
        if named not in found:
            found.append(named)
    return found


@dataclass(frozen=True)
class ThreeTogether:
    """What became of the search for three mistakes that explain answers together."""

    found: list[list[Mistake]]
    whole: bool
    """Whether the search came to its end, and not to TRIES."""


def diagnose_three(exercise: Exercise, cases: Sequence[Case], answers: Answers) -> ThreeTogether:
    """Return the sets of three mistakes that explain the answers.

    The cases are taken one by one, first those on which few mistakes show. Each keeps the sets that explain
    it, and the next one adds mistakes that show there and not before: of more than SOME, a mistake that changes
    no answer to a case by itself is taken to change none together with others.
    """
    usual = usual_mistakes(exercise.name)
    showing = {
        case.name: [each for each in usual if len(usual) <= SOME or _differs(each, exercise, case)]
        for case in cases
        if case.report_metrics
    }
    paired = [pair for pair in zip(cases, answers, strict=True) if pair[0].report_metrics]
    paired.sort(key=lambda pair: (pair[1] is None, len(showing[pair[0].name])))
    kept: list[tuple[Mistake, ...]] = [()]
    decided: set[Any] = set()
    tries = 0
    for case, answer in paired:
        fresh = [each for each in showing[case.name] if each not in decided]
        decided.update(fresh)
        grown = [
            (*known, *more)
            for known in kept
            for count in range(4 - len(known))
            for more in combinations(fresh, count)
        ]
        tries += len(grown)
        if tries > TRIES:
            return ThreeTogether([], whole=False)
        kept = [each for each in grown if (made := _together(each)) and _answers(made, exercise, case, answer)]
    ordered = _likely(exercise, cases, answers)
    full = [
        each
        for each in kept
        if len(each) == 3 and (made := _together(each)) and explains(made, exercise, *ordered)
    ]
    return ThreeTogether([list(each) for each in full], whole=True)


def _answers(mistake: Mistake, exercise: Exercise, case: Case, answer: Outputs | None) -> bool:
    if answer is None:
        return work_out(mistake, exercise, case) is None
    return explains(mistake, exercise, [case], [answer])


def _together(mistakes: Sequence[Mistake]) -> Mistake | None:
    """Return workings with several mistakes, or None where two are made in the same step."""
    steps = [step for each in mistakes for step in _steps(each)]
    if len(set(steps)) < len(steps):
        return None
    return type("And".join(each.__name__ for each in mistakes), tuple(mistakes), {}) if mistakes else Workings


def _likely(exercise: Exercise, cases: Sequence[Case], answers: Answers) -> tuple[list[Case], list[Any]]:
    """Return the cases in the order in which they rule out most at least cost: the smallest answered ones
    first.
    """
    paired = sorted(
        zip(cases, answers, strict=True),
        key=lambda each: (each[1] is None, each[1][0].size if each[1] else 0),
    )
    return [case for case, _ in paired], [answer for _, answer in paired]


def example_of(workings: Mistake, exercise: Exercise) -> SmallExample | None:
    """Return the first small input on which a mistake shows, of this exercise or of a part of it.

    Where none is small enough to be written down, it is one number of a larger one.
    """
    last = next(place for place, each in enumerate(EXERCISES) if each.name == exercise.name)
    parts = EXERCISES[: last + 1]
    small = [(each, case, True) for each in parts for case in _small(each)]
    large = [(exercise, case, False) for case in exercise.cases(0) if case.report_metrics]
    for each, case, whole in [*small, *large]:
        if not _differs(workings, each, case):
            continue
        right, wrong = work_out(Workings, each, case), work_out(workings, each, case)
        assert right is not None, "right workings answer everything"
        if whole:
            return SmallExample(
                exercise=each.name,
                inputs=", ".join(f"{name} = {shown(value)}" for name, value in _written(case)),
                right=_labelled(each, right),
                wrong="no answer" if wrong is None else _labelled(each, wrong),
            )
        if wrong is not None:
            return _one_number(each, case, right, wrong)
    return None


def _small(exercise: Exercise) -> list[Case]:
    return [*(case for case in exercise.cases(0) if case.name == "by hand"), *exercise.small()]


def _written(case: Case) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in case.arguments.items() if value is not None]


def _labelled(exercise: Exercise, outputs: Outputs) -> str:
    if len(outputs) == 1:
        return shown(outputs[0])
    return ", ".join(f"{name} {shown(each)}" for name, each in zip(exercise.outputs, outputs, strict=True))


def _one_number(exercise: Exercise, case: Case, right: Outputs, wrong: Outputs) -> SmallExample:
    """Return the output, or the number of it, in which an answer is furthest from the right one."""
    place = next(
        n for n, (one, other) in enumerate(zip(wrong, right, strict=True)) if not alike(one, other, case.counts)
    )
    one, other = wrong[place], right[place]
    name = exercise.outputs[place]
    if one.shape != other.shape or one.size <= FEW:
        several = one.size > FEW or other.size > FEW
        words = [f"{name} of shape {each.shape}" if several else f"{name} {shown(each)}" for each in (one, other)]
    else:
        apart = np.nan_to_num(np.abs(one - other), nan=np.inf, posinf=np.inf)
        if case.counts is not None:
            apart = np.where(case.counts[..., None], apart, 0)
        where = np.unravel_index(int(np.argmax(apart)), apart.shape)
        words = [f"{name}{[int(each) for each in where]} = {each[where]:.4g}" for each in (one, other)]
    return SmallExample(exercise=exercise.name, inputs=f"the input {case.name!r}", right=words[1], wrong=words[0])


def shown(value: Any) -> str:
    """Return a value as one short line."""
    if isinstance(value, Mapping):
        return "1 on every diagonal, biases 0.5, gains 2, shifts 1"
    if isinstance(value, tuple):
        return ", ".join(shown(each) for each in value)
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        with np.printoptions(precision=3, suppress=True, linewidth=1_000):
            squeezed = value[0] if value.ndim == 3 and len(value) == 1 else value
            return (
                " ".join(np.array2string(squeezed, separator=", ").split()).replace("[ ", "[").replace(" ]", "]")
            )
    if isinstance(value, np.ndarray):
        return " ".join(str((value[0] if value.ndim == 3 and len(value) == 1 else value).tolist()).split())
    return str(value)
