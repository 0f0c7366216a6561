"""Checking a learner's own code: `regard check FILE.py` and `regard.check(object)`."""

import dataclasses
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.course.candidates import is_library
from regard.course.exercises import EXERCISES, Exercise, find_exercise
from regard.course.grading import judge
from regard.course.report import LINES, PRINTS, CheckReport, ExerciseReport
from regard.course.sandbox import SECONDS, Told, run_file, run_object
from regard.errors import InputError, MachineError
from regard.io import write_new


def check(object: str | Path | Callable[..., Any], exercise: str | None = None) -> CheckReport:
    """Check a learner's own code: a Python file, or a function or class.

    `exercise`: which exercise it is an answer to; None: told by the names in the file, or by the object's name.
    The code runs in a process of its own, with limits of time and memory. Its answers are compared with plain
    loops in 64 bits on many inputs, and where they are wrong, with those of usual mistakes.
    Raises `InputError` where there is no such file or exercise, or nothing that answers one, and `MachineError`
    where the system cannot limit a process.
    """
    if os.name != "posix":
        raise MachineError(
            "code cannot be checked on this system, whose processes have no limits: use Linux or macOS"
        )
    known = None if exercise is None else find_exercise(exercise)
    if isinstance(object, str | Path):
        return check_file(Path(object), known)
    if not hasattr(object, "__name__"):
        object = type(object)  # a module that was made already: its class is checked
    name = object.__name__
    known = known or _exercise_of(name)
    if is_library(_file_of(object)):
        told = Told(imported={known.name: (name, object.__module__)})
        return _report(name, told, {})
    told = run_object(object, _folder_of(object), known.name)
    return _report(name, told, {known.name: name})


def check_file(path: Path, exercise: Exercise | None = None, *, seconds: float = SECONDS) -> CheckReport:
    """Check the answers in a file, each exercise's within so many seconds of the processor."""
    if path.is_dir():
        raise InputError(f"{str(path)!r} is a folder: give one of its files, as in {path}/01_...py")
    if not path.is_file():
        raise InputError(f"file {str(path)!r} is not there: give the path of a Python file")
    if path.suffix != ".py":
        raise InputError(f"file {str(path)!r} is no Python file: its name has to end in .py")
    told = run_file(path, exercise.name if exercise else None, seconds=seconds)
    if told.found == {} and not told.imported:
        wanted = exercise.name if exercise else ", ".join(each.name for each in EXERCISES)
        there = ", ".join(told.names) or "nothing"
        raise InputError(
            f"{path.name} has no answer to an exercise: it defines {there}; call yours one of {wanted}"
        )
    return _report(path.name, told, told.found or {})


def _exercise_of(name: str) -> Exercise:
    for each in EXERCISES:
        if each.answers_to(name):
            return each
    choices = ", ".join(each.name for each in EXERCISES)
    raise InputError(
        f"object {name!r} is called like no exercise: say which it is by exercise=, one of {choices}"
    )


def _folder_of(object: Any) -> Path:
    file = _file_of(object)
    return Path(file).parent if file else Path.cwd()


def _file_of(object: Any) -> str:
    try:
        return inspect.getfile(inspect.unwrap(object))
    except (TypeError, OSError, ValueError):
        return ""


def _cut(prints: str) -> str:
    """Return the beginning of what was printed: each case prints it again, and some do so twice."""
    lines = prints.splitlines()
    begun = "\n".join(lines[:LINES])[:PRINTS]
    if len(begun) < len(prints):
        begun += f"\n... ({len(lines):,} lines in all, {len(prints):,} characters)"
    return begun


def _report(name: str, told: Told, found: dict[str, str]) -> CheckReport:
    """Return what is to be said of what a process told."""
    prints = _cut(told.prints.strip())
    reports = []
    if "" in told.troubles:
        words, lines = told.troubles[""]
        reports.append(
            ExerciseReport(exercise=name, title=name, object="", state="stopped", trouble=words, lines=lines)
        )
    for exercise, called in found.items():
        reports.append(_exercise_report(find_exercise(exercise), called, told))
    reports = [_as_helper(report, reports, told) for report in reports]
    for exercise, (called, module) in told.imported.items():
        title, words = find_exercise(exercise).title, f"{called} is imported from {module}: write your own"
        reports.append(
            ExerciseReport(exercise=exercise, title=title, object=called, state="imported", trouble=words)
        )
    return CheckReport(name=name, exercises=reports, prints=prints)


def _exercise_report(exercise: Exercise, called: str, told: Told) -> ExerciseReport:
    replaced = (
        [f"your file replaces {', '.join(told.replaced)}, for the checker and all libraries too"]
        if told.replaced
        else []
    )
    if exercise.name in told.troubles or not told.answers.get(exercise.name):
        words, lines = told.troubles.get(exercise.name, ("was not reached", []))
        return ExerciseReport(
            exercise=exercise.name,
            title=exercise.title,
            object=called,
            state="stopped",
            trouble=words,
            lines=lines,
            notes=replaced,
        )
    report = judge(exercise, called, exercise.cases(0), told.answers[exercise.name])
    notes = [
        f"the work of {called} is done by {name}, not by your own code"
        for name in told.library.get(exercise.name, [])
    ]
    if others := told.passed_over.get(exercise.name):
        notes.append(f"{called} was taken for this exercise, not {', '.join(others)}")
    return dataclasses.replace(report, notes=[*report.notes, *notes, *replaced])


def _as_helper(report: ExerciseReport, reports: list[ExerciseReport], told: Told) -> ExerciseReport:
    """Return the report on a helper, where one is: it is not right as an answer, and another answer uses it.

    That answer is right, or the helper fails on every input, as one does that takes something else.
    """
    if report.state not in ("wrong", "stopped") or not report.exercise:
        return report
    users = [
        each
        for each in reports
        if report.object in told.calls.get(each.exercise, []) and each.object not in told.calls[report.exercise]
    ]
    right = [each for each in users if each.state == "right"]
    failing = report.state == "wrong" and all(each.verdict == "failed" for each in report.cases)
    if not right and not (users and failing):
        return report
    user = (right or users)[0]
    words = f"{user.object} uses it; as an answer to {report.exercise} it would be {report.state}"
    return ExerciseReport(
        exercise=report.exercise, title=report.title, object=report.object, state="helper", trouble=words
    )


def stubs_in(folder: Path) -> dict[Path, bytes]:
    """Return what a learner starts from, one file for each exercise."""
    return {
        folder / f"{number:02d}_{each.name}.py": each.stub.encode() for number, each in enumerate(EXERCISES, 1)
    }


def write_stubs(folder: Path) -> list[Path]:
    """Write what a learner starts from; raises `InputError` where one of the files is there already."""
    return write_new(stubs_in(folder))
