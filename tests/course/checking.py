"""Checking a learner's code in this process, which is quicker than in one of its own."""

import sys
import types
import warnings
from pathlib import Path
from typing import Any

from regard.course import ExerciseReport
from regard.course.candidates import find_candidates
from regard.course.exercises import find_exercise
from regard.course.grading import judge
from regard.course.learner_calls import answers_of

LEARNERS = Path(__file__).parent / "learners"


def names_of(source: str) -> dict[str, Any]:
    """Return what a learner's file defines."""
    module = types.ModuleType("learner")
    sys.modules["learner"] = module
    exec(compile(source, "learner.py", "exec"), vars(module))
    return vars(module)


def checked(source: str, name: str, seed: int = 0) -> ExerciseReport:
    """Return the report on a file's answer to one exercise."""
    exercise, names = find_exercise(name), names_of(source)
    called = find_candidates(names, exercise).exercises[name]
    cases = exercise.cases(seed)
    told: list[dict[str, Any]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # wrong code divides by zero
        answers_of(exercise, names[called], cases, exercise.expected(cases[0]), told.append)
    readings: list[list[dict[str, Any]]] = []
    for each in told:
        if each["reading"] == len(readings):
            readings.append([])
        readings[each["reading"]].append(each)
    return judge(exercise, called, cases, readings)


def named(report: ExerciseReport) -> list[list[str]]:
    """Return the mistakes of every explanation, by name."""
    return [[finding.name for finding in each.findings] for each in report.diagnoses]
