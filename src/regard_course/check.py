"""Check a learner's code: `regard check FILE.py` and `regard.check(object)`."""

import contextlib
import dataclasses
import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from regard.arguments import public
from regard.errors import InputError, MachineError
from regard.io.writing import write_new
from regard_course.candidates import is_library
from regard_course.exercises import EXERCISES, find_exercise
from regard_course.exercises.exercise import Exercise
from regard_course.grading import begin_report, grade
from regard_course.handed_in import file_problem, show_name
from regard_course.own import load_exercises
from regard_course.processes import ForkServer
from regard_course.report import MAX_CHARACTERS, MAX_LINES, CheckReport, ExerciseReport
from regard_course.sandbox import NO_EXERCISE, SECONDS, Assignment, JobResult, run_file, run_object


@public
def check(
    object: str | Path | Callable[..., Any],
    exercise: str | None = None,
    *,
    seed: int = 0,
    exercises: str | Path | None = None,
) -> CheckReport:
    """Check a learner's code: a Python file, or a function or class.

    The code runs in a separate process with time and memory limits, which receives only the inputs. The results
    are compared with a correct solution on many inputs. Incorrect results are compared with the results of known
    mistakes.

    object: path of a file, or a function, class or module instance.
    exercise: the exercise that the object answers; by default derived from the names in the file or the
    object's name.
    seed: seed of the inputs. Another seed draws other inputs of the same kinds.
    exercises: Python file with exercises of your own (see `make_exercise`), which replace those of the course.

    Raises `InputError` if the file or exercise does not exist, or if the file has no answer, and `MachineError`
    if the system cannot limit a process.

    >>> def score(query, key):
    ...     return query @ key.transpose(0, 2, 1)
    >>> regard.check(score)  # doctest: +SKIP
    <CheckReport: score: score wrong>
    """
    assignment = choose_exercises(exercise, seed=seed, exercises=exercises)
    if isinstance(object, str | Path):
        return check_file(Path(object), assignment)
    if not hasattr(object, "__name__"):
        object = type(object)  # an instance of a module: its class is checked
    name = object.__name__
    chosen = assignment.exercises[0] if assignment.chosen else _find_by_name(name, assignment.exercises)
    assignment = Assignment(exercises=(chosen,), chosen=True, seed=seed)
    if is_library(_source_file(object)):
        result = JobResult(imported={chosen.name: (name, object.__module__)})
        return _report(name, result, {}, assignment)
    file = _source_file(object)
    result = run_object(object, Path(file).parent if file else Path.cwd(), assignment)
    return _report(name, result, {chosen.name: name}, assignment)


def choose_exercises(exercise: str | None, *, seed: int = 0, exercises: str | Path | None = None) -> Assignment:
    """Return one exercise or all exercises, of the course or of a teacher's file.

    Raises `InputError` for an unknown exercise or an invalid file, and `MachineError` if the system cannot limit
    a process.
    """
    if os.name != "posix":
        raise MachineError(
            "code cannot be checked on this system, which cannot limit processes: use Linux, macOS, or WSL on"
            " Windows"
        )
    pool = EXERCISES if exercises is None else load_exercises(Path(exercises))
    if exercise is None:
        return Assignment(exercises=pool, seed=seed)
    return Assignment(exercises=(find_exercise(exercise, pool),), chosen=True, seed=seed)


def check_file(
    path: Path,
    assignment: Assignment | None = None,
    *,
    seconds: float = SECONDS,
    server: ForkServer | None = None,
    home: Path | None = None,
) -> CheckReport:
    """Check the answers in a file.

    seconds: limit of the processor time of each exercise without progress. home: a person's folder; the code is
    stopped if it reads a link in this folder that leaves it.

    Raises `InputError` if the file does not exist or contains no answer.
    """
    if path.is_dir():
        raise InputError(f"{str(path)!r} is a folder: choose one of its files, as in {path}/01_...py")
    if not path.exists():
        raise InputError(f"file {str(path)!r} does not exist: give the path of a Python file")
    if words := file_problem(path):
        raise InputError(f"file {str(path)!r} {words}: give the path of a Python file")
    if path.suffix != ".py":
        raise InputError(f"file {str(path)!r} is not a Python file: its name must end in .py")
    assignment = assignment or choose_exercises(None)
    with contextlib.nullcontext(server) if server else ForkServer() as running:
        result = run_file(path, assignment, running, seconds=seconds, home=home)
    if result.exercises == {} and not result.imported:
        names = ", ".join(exercise.name for exercise in assignment.exercises)
        defined = ", ".join(result.names) or "nothing"
        raise NoAnswerError(
            f"{show_name(path.name)} contains no answer to an exercise: it defines {defined}; use one of the "
            f"names {names}"
        )
    return _report(show_name(path.name), result, result.exercises or {}, assignment)


class NoAnswerError(InputError):
    """Raised if a file contains no answer to an exercise."""


def _find_by_name(name: str, exercises: Sequence[Exercise]) -> Exercise:
    for exercise in exercises:
        if exercise.matches(name):
            return exercise
    choices = ", ".join(exercise.name for exercise in exercises)
    raise InputError(f"no exercise has the name {name!r}: choose one of these with exercise=: {choices}")


def _source_file(object: Any) -> str:
    try:
        return inspect.getfile(inspect.unwrap(object))
    except (TypeError, OSError, ValueError):
        return ""


def _truncate(prints: str) -> str:
    """Return the beginning of the code's output, because every input prints the output again."""
    lines = prints.splitlines()
    beginning = "\n".join(lines[:MAX_LINES])[:MAX_CHARACTERS]
    if len(beginning) < len(prints):
        beginning += f"\n... ({len(lines):,} lines, {len(prints):,} characters in total)"
    return beginning


def _report(name: str, result: JobResult, exercises: dict[str, str], assignment: Assignment) -> CheckReport:
    """Return the report on the answers in a file or an object.

    `exercises` has the name of the answer to each exercise.
    """
    reports = []
    if NO_EXERCISE in result.failures:
        words, lines = result.failures[NO_EXERCISE]
        reports.append(
            ExerciseReport(exercise=name, title=name, object="", state="stopped", trouble=words, lines=lines)
        )
    for exercise, answer in exercises.items():
        reports.append(_exercise_report(assignment.find(exercise), answer, result, assignment.seed))
    reports = [_mark_helper(report, reports, result) for report in reports]
    for exercise, (answer, module) in result.imported.items():
        begun = begin_report(assignment.find(exercise), answer, assignment.seed)
        trouble = f"{answer} is imported from {module}: write your own"
        reports.append(dataclasses.replace(begun, state="imported", trouble=trouble))
    return CheckReport(name=name, exercises=reports, prints=_truncate(result.prints.strip()))


def _exercise_report(exercise: Exercise, name: str, result: JobResult, seed: int) -> ExerciseReport:
    replaced = (
        [f"your file replaces {', '.join(result.replaced)}, also for the checker and all libraries"]
        if result.replaced
        else []
    )
    if exercise.name in result.failures or not result.answers.get(exercise.name):
        words, lines = result.failures.get(exercise.name, ("was not reached", []))
        report = begin_report(exercise, name, seed)
        return dataclasses.replace(report, state="stopped", trouble=words, lines=lines, notes=replaced)
    report = grade(exercise, name, seed, result.answers[exercise.name])
    notes = [
        f"{function} does the work of {name}, not your own code"
        for function in result.library.get(exercise.name, [])
    ]
    if others := result.passed_over.get(exercise.name):
        notes.append(f"{name} is checked for this exercise, not {', '.join(others)}")
    return dataclasses.replace(report, notes=[*report.notes, *notes, *replaced])


def _mark_helper(report: ExerciseReport, reports: list[ExerciseReport], result: JobResult) -> ExerciseReport:
    """Mark the report of an incorrect answer as a helper's report if another answer uses the function.

    The other answer must be correct, or the helper must fail on every input because its arguments differ.
    """
    if report.state not in ("wrong", "stopped") or not report.exercise:
        return report
    users = [
        user
        for user in reports
        if report.object in result.calls.get(user.exercise, [])
        and user.object not in result.calls[report.exercise]
    ]
    right = [user for user in users if user.state == "right"]
    failing = report.state == "wrong" and all(case.verdict == "failed" for case in report.cases)
    if not right and not (users and failing):
        return report
    user = (right or users)[0]
    words = f"{user.object} uses it; as an answer to {report.exercise} it would be {report.state}"
    without: dict[str, Any] = {"cases": [], "diagnoses": [], "notes": [], "lines": [], "ending": ""}
    return dataclasses.replace(report, state="helper", trouble=words, **without)


def build_stubs(folder: Path, exercises: Sequence[Exercise] = EXERCISES) -> dict[Path, bytes]:
    return {
        folder / f"{number:02d}_{exercise.name}.py": exercise.stub.encode()
        for number, exercise in enumerate(exercises, 1)
    }


def write_stubs(folder: Path, exercises: str | Path | None = None) -> list[Path]:
    """Write the start file of each exercise of the course, or of a teacher's file. Raises `InputError` if a file
    already exists."""
    return write_new(build_stubs(folder, EXERCISES if exercises is None else load_exercises(Path(exercises))))
