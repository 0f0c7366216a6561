"""An exercise: a stub for the learner, and inputs on which the answers are compared with those of `Solution`."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from regard_course.inputs import Array, Case, Specification
from regard_course.mistakes.known import MISTAKES
from regard_course.mistakes.solution import Solution

# The truncation error of a central difference is about NUDGE², and its rounding error about 1e-16 / NUDGE. The
# solution computes with 64 bits, so at 1e-5 both errors are far below 5e-3, the tolerance for learners' 32-bit
# gradients.
NUDGE = 1e-5
"""Size of the change to an argument when a gradient is measured."""
CACHE_SIZE = 512
"""Number of cached answers of `Solution`: twice the number of answers of all exercises."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Exercise(Specification):
    """An exercise: a function or class that the learner writes."""

    name: str = ""
    parameters: tuple[inspect.Parameter, ...] = ()
    """Name and parameters of `template` or `solution`; set by `__post_init__`."""
    title: str
    """Short description."""
    statement: str = ""
    """The docstring of the stub; by default the docstring of `template` or `solution`."""
    words: tuple[str, str] = ("Exercise", "then")
    """Words of the stub's first lines, in the language of the title."""
    source: str = ""
    """Paper and section that the exercise follows."""
    solution: Callable[..., Any]
    """The method of `Solution` that answers the exercise. The stub has its name, signature and docstring."""
    cases: Callable[[int], list[Case]]
    """A function that returns the inputs for a seed."""
    small_cases: Callable[[], list[Case]] = list
    """Further inputs that are small enough for a calculation by hand, besides the cases named "by hand"."""
    template: Callable[..., Any] | None = None
    """Function whose name, signature and docstring are the stub, if not `solution`."""
    instruction: str = "Write it with NumPy or with PyTorch"
    command: str = "regard check THIS_FILE.py"
    base: type[Solution] = Solution
    """Class with the correct method of this name."""
    mistakes: Sequence[type[Solution]] = MISTAKES
    """The mistakes that incorrect answers are compared with."""

    def __post_init__(self) -> None:
        """Set what the function tells. Cache the inputs, so that each seed always has the same `Case` objects."""
        function = self.template or self.solution
        parameters = [part for part in inspect.signature(function).parameters.values() if part.name != "self"]
        # Annotations may refer to modules that contain solutions.
        plain = tuple(part.replace(annotation=part.empty) for part in parameters)
        object.__setattr__(self, "name", function.__name__)
        object.__setattr__(self, "parameters", plain)
        object.__setattr__(self, "statement", self.statement or inspect.getdoc(function) or "")
        object.__setattr__(self, "cases", functools.lru_cache(maxsize=2)(self.cases))

    @property
    def specification(self) -> Specification:
        """The exercise without its solution."""
        return Specification(**{part.name: getattr(self, part.name) for part in fields(Specification)})

    @property
    def stub(self) -> str:
        """Python file that the learner starts from."""
        arguments = ", ".join(map(str, self.parameters))
        lines = self.statement.splitlines()
        text = "\n".join(f"    {line}" if line else "" for line in lines)
        docstring = f'    """{text.strip()}' + ('\n    """' if len(lines) > 1 else '"""')
        citation = f" ({self.source})" if self.source else ""
        label, then = self.words
        return (
            f'"""{label}: {self.title}{citation}.\n\n'
            f'{self.instruction}, {then}: {self.command}\n"""\n\n\n'
            f"def {self.name}({arguments}):\n{docstring}\n    raise NotImplementedError\n"
        )

    def expected(self, case: Case) -> tuple[Array, ...]:
        """Return the right outputs."""
        return _expected(self.solution, case)

    def expected_gradients(self, case: Case) -> dict[str, tuple[float, float]]:
        """Return the directional derivative of the weighted sum of the first output along `case.directions()`, measured
        on both sides, which differ if the input of a ReLU changes its sign."""
        return _expected_gradients(self.solution, case)


@functools.lru_cache(maxsize=CACHE_SIZE)
def _expected(solution: Callable[..., Any], case: Case) -> tuple[Array, ...]:
    return _solve(solution, case.arguments)


@functools.lru_cache(maxsize=CACHE_SIZE)
def _expected_gradients(solution: Callable[..., Any], case: Case) -> dict[str, tuple[float, float]]:
    def weighted_sum(**changes: Any) -> float:
        first = _solve(solution, {**case.arguments, **changes})[0]
        return float((first * case.output_weights(first.shape)).sum())

    middle, gradients = weighted_sum(), {}
    for name, direction in case.directions().items():
        before, after = (
            weighted_sum(**{name: _move(case.arguments[name], direction, distance)}) for distance in (-NUDGE, NUDGE)
        )
        gradients[name] = ((middle - before) / NUDGE, (after - middle) / NUDGE)
    return gradients


def _solve(solution: Callable[..., Any], arguments: Mapping[str, Any]) -> tuple[Array, ...]:
    with np.errstate(all="ignore"):  # a fully masked row is 0 / 0 at first
        return as_outputs(solution(Solution(), **arguments))


def as_outputs(result: Any) -> tuple[Array, ...]:
    """Return the result of a function as a tuple of arrays."""
    return tuple(np.asarray(output) for output in (result if isinstance(result, tuple) else (result,)))


def _move(value: Any, direction: Any, distance: float) -> Any:
    if isinstance(value, Mapping):
        return {name: _move(part, direction[name], distance) for name, part in value.items()}
    return value + distance * direction
