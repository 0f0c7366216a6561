"""Exercises from a file outside the package: a correct function, its inputs, and wrong functions with names."""

import dataclasses
import functools
import numbers
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import InputError, one_line
from regard_course.diagnosis import relevant_mistakes
from regard_course.exercises.exercise import Exercise
from regard_course.inputs import Case
from regard_course.mistakes.solution import Solution
from regard_course.worker import load_file

Inputs = Callable[[int], Mapping[str, Mapping[str, Any]]]
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
        names = {"__doc__": function.__doc__, "paper": "", name: step, **attributes}
        return type(function.__name__, (Solution,), names)

    def cases(seed: int) -> list[Case]:
        return [
            Case(
                name=case,
                arguments=dict(arguments),
                gradients=tuple(
                    key for key, value in arguments.items() if case == GRADIENTS and _is_float(value)
                ),
            )
            for case, arguments in inputs(seed).items()
        ]

    base = derive(reference)
    return Exercise(
        title=name.replace("_", " "),
        solution=getattr(base, name),
        template=reference,
        cases=cases,
        outputs=tuple(outputs),
        base=base,
        mistakes=tuple(derive(wrong, instead=instead) for wrong, instead in mistakes),
    )


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


@functools.lru_cache(maxsize=4)
def load_exercises(path: Path) -> tuple[Exercise, ...]:
    """Run a teacher's file, and return its exercises.

    Raises `InputError` if the file or an exercise is invalid.
    """
    if not path.is_file() or path.suffix != ".py":
        raise InputError(f"file {str(path)!r} of exercises does not exist, or its name does not end in .py")
    try:
        names = load_file(path)
    except Exception as error:
        raise InputError(f"{path.name} cannot be run: {one_line(error, 300)}") from error
    exercises = tuple(value for value in names.values() if isinstance(value, Exercise))
    if not exercises:
        raise InputError(
            f"{path.name} defines no exercise: write NAME = make_exercise(function, inputs, mistakes)"
        )
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
    silent = [mistake.__name__ for mistake in exercise.mistakes if not (mistake.__doc__ or "").strip()]
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
