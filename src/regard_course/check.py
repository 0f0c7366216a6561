"""Check a learner's code: `regard check FILE.py` and `regard.check(object)`."""

import contextlib
import dataclasses
import functools
import inspect
import numbers
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regard.arguments import public
from regard.errors import InputError, MachineError, one_line
from regard.io import write_new
from regard_course.candidates import is_library
from regard_course.diagnosis import relevant_mistakes
from regard_course.exercises.course import EXERCISES, find_exercise
from regard_course.exercises.exercise import Exercise
from regard_course.grading import begin_report, grade
from regard_course.handed_in import file_problem, show_name
from regard_course.inputs import MESSAGES, Array, Case
from regard_course.mistakes.solution import Solution
from regard_course.report import MAX_CHARACTERS, MAX_LINES, CheckReport, ExerciseReport
from regard_course.sandbox import NO_EXERCISE, SECONDS, Assignment, ForkServer, JobResult, run_file, run_object
from regard_course.translated import ENGLISH, say, speak
from regard_course.worker import load_file

# Exercises from a file outside the package: a correct function, its inputs, and wrong functions with names.

Inputs = Callable[[int], Mapping[str, Mapping[str, Any]]]
Record = Callable[[Exercise, Case], list[list[Array]]]
GRADIENTS = "gradients"


def make_exercise(
    reference: Callable[..., Any],
    inputs: Inputs,
    mistakes: Sequence[tuple[Callable[..., Any], str]] = (),
    *,
    outputs: Sequence[str] = ("result",),
) -> Exercise:
    """Return an exercise from a correct function.

    reference: the correct function, written with NumPy. Its name, parameters and docstring are the stub.
    inputs: a function of a seed that returns the inputs by name, each a dictionary of all arguments. Draw them
    with `np.random.default_rng(seed)`. For the input with the name "gradients", the gradients of arrays of
    floats are compared too.
    mistakes: pairs of a wrong function with the same parameters, whose docstring describes its error, and the
    correction as a sentence.
    outputs: names of the results, if the function returns a tuple.

    >>> def double(values):
    ...     '''Return twice the values.'''
    ...     return 2 * values
    >>> make_exercise(double, lambda seed: {"three": {"values": np.ones(3)}}).name
    'double'
    """
    name = reference.__name__

    def derive(function: Callable[..., Any], **attributes: Any) -> type[Solution]:
        def method(self: Solution, *positional: Any, **named: Any) -> Any:
            return function(*positional, **named)

        step = functools.update_wrapper(method, function, assigned=("__name__", "__doc__"))
        names = {"did": " ".join((function.__doc__ or "").split()), name: step, **attributes}
        return type(function.__name__, (Solution,), names)

    def make_case(case: str, arguments: Mapping[str, Any]) -> Case:
        arrays = {key: value for key, value in arguments.items() if isinstance(value, np.ndarray)}
        floats = [key for key, value in arrays.items() if value.dtype.kind == "f"]
        return Case(name=case, arguments=dict(arguments), gradients=tuple(floats) if case == GRADIENTS else ())

    base = derive(reference)
    return Exercise(
        title=name.replace("_", " "),
        solution=getattr(base, name),
        template=reference,
        cases=lambda seed: [make_case(*item) for item in inputs(seed).items()],
        outputs=tuple(outputs),
        base=base,
        mistakes=tuple(derive(wrong, instead=instead) for wrong, instead in mistakes),
    )


@functools.lru_cache(maxsize=4)
def load_exercises(path: Path) -> tuple[Exercise, ...]:
    """Run a teacher's file, and return its exercises. Raises `InputError` if it is invalid."""
    if not path.is_file() or path.suffix != ".py":
        raise InputError(f"file {str(path)!r} of exercises does not exist, or its name does not end in .py")
    try:
        names = load_file(path)
    except Exception as error:
        raise InputError(f"{path.name} cannot be run: {one_line(error, 300)}") from error
    exercises = tuple(value for value in names.values() if isinstance(value, Exercise))
    if not exercises:
        raise InputError(f"{path.name} defines no exercise: write NAME = make_exercise(function, inputs, mistakes)")
    for exercise in exercises:
        _check_exercise(path, exercise)
    command = f"regard check THIS_FILE.py --exercises {path.name}"
    return tuple(dataclasses.replace(exercise, command=command) for exercise in exercises)


def _check_exercise(path: Path, exercise: Exercise) -> None:
    """Raise `InputError` if the inputs or the reference fail, or if no input shows a mistake."""
    where = f"exercise {exercise.name} of {path.name}"
    parameters = [parameter.name for parameter in exercise.parameters]
    try:
        for seed in (0, 1):
            for case in exercise.cases(seed):
                if list(case.arguments) != parameters:
                    raise ValueError(f"the input {case.name!r} must have the arguments {', '.join(parameters)}")
                if not all(map(_is_plain, case.arguments.values())):
                    raise ValueError(f"the input {case.name!r} may contain arrays, numbers, text and lists only")
                if len(exercise.expected(case)) != len(exercise.outputs):
                    raise ValueError(f"the reference must return {len(exercise.outputs)} results (see outputs=)")
    except Exception as error:
        raise InputError(f"{where} fails: {one_line(error, 300)}") from error
    hidden = [mistake.__name__ for mistake in exercise.mistakes if mistake not in relevant_mistakes(exercise)]
    if hidden:
        raise InputError(f"{where}: no input shows the mistake {hidden[0]}: add an input on which it is wrong")
    silent = [mistake.__name__ for mistake in exercise.mistakes if not mistake.did]
    if silent:
        raise InputError(f"{where}: the mistake {silent[0]} has no docstring: describe what the code does wrong")


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_plain, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "fiub"
    return value is None or isinstance(value, str | numbers.Number)


@public
def check(
    object: str | Path | Callable[..., Any],
    exercise: str | None = None,
    *,
    seed: int = 0,
    exercises: str | Path | None = None,
    language: str = ENGLISH,
) -> CheckReport:
    """Check a learner's code: a Python file, or a function or class.

    The code runs in a separate process with time and memory limits, which receives only the inputs. The results are
    compared with a correct solution on many inputs. Incorrect ones are compared with those of known mistakes.

    object: path of a file, or a function, class or module instance.
    exercise: the exercise that the object answers; by default derived from the names in the file or the
    object's name.
    seed: seed of the inputs. Another seed draws other inputs of the same kinds.
    exercises: Python file with exercises of your own (see `make_exercise`), which replace those of the course.
    language: language of the report: "en", "de", or the folder of a translation.

    Raises `InputError` if the file, exercise or language does not exist, or if the file has no answer, and
    `MachineError` if the system cannot limit a process.

    >>> def score(query, key):
    ...     return query @ key.transpose(0, 2, 1)
    >>> regard.check(score)  # doctest: +SKIP
    <CheckReport: score: score wrong>
    """
    with speak(language):
        assignment = choose_exercises(exercise, seed=seed, exercises=exercises)
        if isinstance(object, str | Path):
            return check_file(Path(object), assignment)
        if not hasattr(object, "__name__"):
            object = type(object)  # an instance of a module: its class is checked
        name, file = object.__name__, ""
        fitting = [item for item in assignment.exercises if assignment.chosen or item.matches(name)]
        if not fitting:
            choices = ", ".join(item.name for item in assignment.exercises)
            raise InputError(f"no exercise has the name {name!r}: choose one of these with exercise=: {choices}")
        chosen = fitting[0]
        assignment = dataclasses.replace(assignment, exercises=(chosen,), chosen=True)
        with contextlib.suppress(TypeError, OSError, ValueError):
            file = inspect.getfile(inspect.unwrap(object))
        if is_library(file):
            result = JobResult(imported={chosen.name: (name, object.__module__)})
            return _report(name, result, {}, assignment, lambda item, case: [])
        run = functools.partial(run_object, object, Path(file).parent if file else Path.cwd(), assignment)
        return _report(
            name, run(), {chosen.name: name}, assignment, lambda item, case: run(record=(item.name, case)).recordings
        )


def choose_exercises(exercise: str | None, *, seed: int = 0, exercises: str | Path | None = None) -> Assignment:
    """Return one exercise or all exercises, of the course or of a teacher's file. Raises `InputError` for an
    unknown exercise or an invalid file, and `MachineError` if the system cannot limit a process."""
    if os.name != "posix":
        raise MachineError(
            "code cannot be checked on this system, which cannot limit processes: use Linux, macOS, or WSL on Windows"
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
        run = functools.partial(run_file, path, server=running, seconds=seconds, home=home)
        result = run(assignment)

        def record(exercise: Exercise, case: Case) -> list[list[Array]]:
            alone = dataclasses.replace(assignment, exercises=(exercise,))
            return run(alone, record=(exercise.name, case)).recordings

        if result.exercises == {} and not result.imported:
            names = ", ".join(exercise.name for exercise in assignment.exercises)
            defined = ", ".join(result.names) or say("nothing")
            raise NoAnswerError(say(MESSAGES["no_answer"], show_name(path.name), defined, names))
        return _report(show_name(path.name), result, result.exercises or {}, assignment, record)


class NoAnswerError(InputError):
    """Raised if a file contains no answer to an exercise."""


def _report(
    name: str, result: JobResult, exercises: dict[str, str], assignment: Assignment, record: Record
) -> CheckReport:
    """Return the report on a file or an object. `exercises`: answer to each. `record`: arrays of another run."""
    reports = []
    if NO_EXERCISE in result.failures:
        words, lines = result.failures[NO_EXERCISE]
        reports.append(
            ExerciseReport(exercise=name, title=name, object="", state="stopped", trouble=words, lines=lines)
        )
    for exercise, answer in exercises.items():
        reports.append(_exercise_report(assignment.find(exercise), answer, result, assignment.seed, record))
    reports = [_mark_helper(report, reports, result) for report in reports]
    for exercise, (answer, module) in result.imported.items():
        begun = begin_report(assignment.find(exercise), answer, assignment.seed)
        trouble = say("{0} is imported from {1}: write your own", answer, module)
        reports.append(dataclasses.replace(begun, state="imported", trouble=trouble))
    prints = result.prints.strip()  # every input prints the output again: only its beginning is shown
    shown = "\n".join(prints.splitlines()[:MAX_LINES])[:MAX_CHARACTERS]
    if len(shown) < len(prints):
        numbers = f"{len(prints.splitlines()):,}", f"{len(prints):,}"
        shown += "\n... " + say("({0} lines, {1} characters in total)", *numbers)
    return CheckReport(name=name, exercises=reports, prints=shown)


def _exercise_report(exercise: Exercise, name: str, result: JobResult, seed: int, record: Record) -> ExerciseReport:
    names = ", ".join(result.replaced)
    replaced = [say("your file replaces {0}, also for the checker and all libraries", names)] if names else []
    if exercise.name in result.failures or not result.answers.get(exercise.name):
        words, lines = result.failures.get(exercise.name, (say("was not reached"), []))
        report = begin_report(exercise, name, seed)
        return dataclasses.replace(report, state="stopped", trouble=words, lines=lines, notes=replaced)
    report = grade(exercise, name, seed, result.answers[exercise.name], functools.partial(record, exercise))
    notes = [say(MESSAGES["library"], function, name) for function in result.library.get(exercise.name, [])]
    if others := result.passed_over.get(exercise.name):
        notes.append(say("{0} is checked for this exercise, not {1}", name, ", ".join(others)))
    return dataclasses.replace(report, notes=[*report.notes, *notes, *replaced])


def _mark_helper(report: ExerciseReport, reports: list[ExerciseReport], result: JobResult) -> ExerciseReport:
    """Mark the report of an incorrect answer as a helper's report if another answer uses the function. The other
    answer must be correct, or the helper must fail on every input because its arguments differ."""
    if report.state not in ("wrong", "stopped") or not report.exercise:
        return report
    users = [
        user
        for user in reports
        if report.object in result.calls.get(user.exercise, []) and user.object not in result.calls[report.exercise]
    ]
    right = [user for user in users if user.state == "right"]
    failing = report.state == "wrong" and all(case.verdict == "failed" for case in report.cases)
    if not right and not (users and failing):
        return report
    user = (right or users)[0]
    words = say(MESSAGES["helper"], user.object, report.exercise, say(report.state))
    without: dict[str, Any] = {"cases": [], "diagnoses": [], "notes": [], "lines": [], "ending": "", "first_step": None}
    return dataclasses.replace(report, state="helper", trouble=words, **without)


def build_stubs(folder: Path, exercises: Sequence[Exercise] = EXERCISES) -> dict[Path, bytes]:
    return {
        folder / f"{number:02d}_{exercise.name}.py": exercise.stub.encode()
        for number, exercise in enumerate(exercises, 1)
    }


def write_stubs(folder: Path, exercises: str | Path | None = None) -> list[Path]:
    """Write the start file of each exercise. Raises `InputError` if a file already exists."""
    return write_new(build_stubs(folder, EXERCISES if exercises is None else load_exercises(Path(exercises))))
