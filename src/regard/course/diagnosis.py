"""Which usual mistakes would have answered what a learner's code answered.

Each mistake of the catalogue is run on the same inputs. The answer is compared with all of them, and, where none
alone explains it, with pairs of them.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from regard.course.catalogue import MISTAKES, Workings
from regard.course.exercises import EXERCISES, Case, Exercise
from regard.course.exercises.exercise import as_outputs
from regard.course.likeness import Outputs, agree

Mistake = type[Workings]
Answers = Sequence[Outputs | None]
"""What was answered to each case; None where nothing was."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """A small input on which a mistake makes a difference."""

    exercise: str
    inputs: str
    right: str
    wrong: str


def work_out(workings: Mistake, exercise: Exercise, case: Case) -> Outputs | None:
    """Return what these workings answer, or None where they cannot."""
    with np.errstate(all="ignore"):
        try:
            return as_outputs(getattr(workings(), exercise.name)(**case.arguments))
        except (ValueError, IndexError, ZeroDivisionError, KeyError):
            return None


def explains(workings: Mistake, exercise: Exercise, cases: Sequence[Case], answers: Answers) -> bool:
    """Whether these workings answer every case as it was answered, and fail where nothing was."""
    agreed = 0
    for case, given in zip(cases, answers, strict=True):
        if not case.telling:
            continue
        found = work_out(workings, exercise, case)
        if (given is None) != (found is None):
            return False
        if given is not None and found is not None:
            if not agree(case, given, found):
                return False
            agreed += 1
    return agreed > 0


@functools.cache
def usual_mistakes(name: str) -> list[Mistake]:
    """Return the mistakes that make a difference in an exercise."""
    exercise = next(each for each in EXERCISES if each.name == name)
    cases = [each for each in exercise.cases(0) if each.telling]
    return [each for each in MISTAKES if any(_differs(each, exercise, case) for case in cases)]


def _differs(mistake: Mistake, exercise: Exercise, case: Case) -> bool:
    right = work_out(Workings, exercise, case)
    found = work_out(mistake, exercise, case)
    return found is None or right is None or not agree(case, found, right)


def both(one: Mistake, other: Mistake) -> Mistake | None:
    """Return workings with two mistakes, or None where both are made in the same step."""
    if set(_steps(one)) & set(_steps(other)):
        return None
    return type(f"{one.__name__}And{other.__name__}", (one, other), {})


def _steps(mistake: Mistake) -> list[str]:
    words = ("instead", "paper", "companion")
    return [name for name in vars(mistake) if not name.startswith("__") and name not in words]


def diagnose(exercise: Exercise, cases: Sequence[Case], answers: Answers) -> list[list[Mistake]]:
    """Return every set of one or two mistakes that explains the answers; empty where none does.

    Pairs are only tried where no mistake explains them alone. Of a pair, a mistake that makes no difference in
    this exercise by itself is not named.
    """
    usual = usual_mistakes(exercise.name)
    alone = [[each] for each in usual if explains(each, exercise, cases, answers)]
    if alone:
        return alone
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


def _likely(exercise: Exercise, cases: Sequence[Case], answers: Answers) -> tuple[list[Case], list[Any]]:
    """Return the cases in the order in which they rule out most at least cost: the smallest answered ones
    first.
    """
    paired = sorted(
        zip(cases, answers, strict=True),
        key=lambda each: (each[1] is None, each[1][0].size if each[1] else 0),
    )
    return [case for case, _ in paired], [answer for _, answer in paired]


def example_of(mistakes: Sequence[Mistake], exercise: Exercise) -> Example | None:
    """Return the first and smallest input on which these mistakes show, of this exercise or of a part of it."""
    workings = mistakes[0] if len(mistakes) == 1 else both(mistakes[0], mistakes[1])
    assert workings is not None, "two mistakes of one step are no pair"
    last = next(place for place, each in enumerate(EXERCISES) if each.name == exercise.name)
    for each in EXERCISES[: last + 1]:
        for case in reversed(each.cases(0)):
            if case.name == "by hand" and _differs(workings, each, case):
                right, wrong = work_out(Workings, each, case), work_out(workings, each, case)
                return Example(
                    exercise=each.name,
                    inputs=", ".join(
                        f"{name} = {shown(value)}" for name, value in case.arguments.items() if value is not None
                    ),
                    right=shown(right),
                    wrong="no answer" if wrong is None else shown(wrong),
                )
    return None


def shown(value: Any) -> str:
    """Return a value as one short line."""
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
