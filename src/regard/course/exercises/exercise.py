"""An exercise: a stub for the learner, and inputs on which the answers are compared with those of `Solution`."""

import functools
import inspect
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from regard.course.mistakes import Solution

Array = np.ndarray[Any, np.dtype[Any]]
# The truncation error of a central difference is about NUDGE², and its rounding error about 1e-16 / NUDGE. The
# solution computes with 64 bits, so at 1e-5 both errors are far below 5e-3, the tolerance for learners' 32-bit
# gradients.
NUDGE = 1e-5
"""Size of the change to an argument when a gradient is measured."""
CACHE_SIZE = 512
"""Number of cached answers of `Solution`: twice the number of answers of all exercises."""

PADDING, START, END = 0, 1, 2
"""The special tokens of the exercises on sequences."""
COPY_VOCABULARY = 9
"""Vocabulary size of the task Copy: padding, start, end and six letters."""
PRIMES = (2, 3, 5, 7)
"""Sizes that `vary_sizes` permutes."""


def vary_sizes(seed: int, *sizes: int) -> list[int]:
    """Return the sizes for a seed: unchanged for seed 0, otherwise with permuted primes. Equal sizes remain
    equal and different sizes remain different.

    >>> vary_sizes(0, 2, 5, 15)
    [2, 5, 15]
    """
    primes = np.random.default_rng(seed).permutation(PRIMES).tolist() if seed else PRIMES
    return [int(dict(zip(PRIMES, primes, strict=True)).get(size, size)) for size in sizes]


def normalize_name(name: str) -> str:
    """Return a name in lowercase without separators.

    >>> normalize_name("MultiHead_Attention")
    'multiheadattention'
    """
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One input of an exercise. The arrays must not be changed, because results are cached by case."""

    name: str
    """The property that the input tests, as shown in the report."""
    arguments: Mapping[str, Any]
    """Arguments of the function, in order."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Constructor arguments of a learner's class, by name."""
    valid_steps: Array | None = None
    """(B, T) bool, the steps of the first output that are compared. None: all steps."""
    gradients: tuple[str, ...] = ()
    """Arguments whose gradients are compared."""
    diagnose: bool = True
    """Whether the diagnosis of mistakes uses the input."""
    outputs: tuple[str, ...] = ()
    """Names of the outputs, if they differ from the output names of the exercise."""
    functions_only: bool = False
    """Whether the input is omitted for classes, because its sizes are too similar to match weights by shape."""

    def directions(self) -> dict[str, Any]:
        """Return the random direction in which each argument of `gradients` is changed."""
        return {name: _random_like(self.arguments[name], name) for name in self.gradients}

    def output_weights(self, shape: tuple[int, ...]) -> Array:
        """Return random weights for the first output. Gradients are gradients of the weighted sum of this
        output."""
        weights: Array = _generator("pull").normal(size=shape)
        if self.valid_steps is not None:
            weights = weights * self.valid_steps[..., None]
        return weights


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """An exercise: a function or class that the learner writes."""

    title: str
    """Short description."""
    source: str = ""
    """Paper and section that the exercise follows."""
    solution: Callable[..., Any]
    """The method of `Solution` that answers the exercise. The stub has its name, signature and docstring."""
    cases: Callable[[int], list[Case]]
    """A function that returns the inputs for a seed."""
    outputs: tuple[str, ...]
    """Names of the outputs."""
    aliases: tuple[str, ...] = ()
    """Other accepted names of the function or class."""
    module_arguments: tuple[str, ...] = ()
    """Arguments that a class stores as attributes: weights, or the number of heads."""
    constructor_sizes: tuple[str, ...] = ()
    """Names of the constructor's arguments, in order."""
    call: Callable[[Any, Case], tuple[Any, ...]] | None = None
    """A function that calls the learner's function, if the case's arguments are not sufficient for the call."""
    small_cases: Callable[[], list[Case]] = list
    """Further inputs that are small enough for a calculation by hand, besides the cases named "by hand"."""
    specification: Callable[..., Any] | None = None
    """Function whose name, signature and docstring are the stub, if not `solution`."""
    instruction: str = "Write it with NumPy or with PyTorch"

    def __post_init__(self) -> None:
        """Cache the inputs, so that each seed always has the same `Case` objects."""
        object.__setattr__(self, "cases", functools.lru_cache(maxsize=2)(self.cases))

    @property
    def name(self) -> str:
        """Name of the function to write."""
        return (self.specification or self.solution).__name__

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """Parameters of the function to write."""
        parameters = inspect.signature(self.specification or self.solution).parameters.values()
        return [parameter for parameter in parameters if parameter.name != "self"]

    @property
    def stub(self) -> str:
        """Python file that the learner starts from."""
        # Without annotations a parameter is written as `mask=None`.
        arguments = ", ".join(str(part.replace(annotation=part.empty)) for part in self.parameters)
        lines = (inspect.getdoc(self.specification or self.solution) or "").splitlines()
        text = "\n".join(f"    {line}" if line else "" for line in lines)
        docstring = f'    """{text.strip()}' + ('\n    """' if len(lines) > 1 else '"""')
        citation = f" ({self.source})" if self.source else ""
        return (
            f'"""Exercise: {self.title}{citation}.\n\n'
            f'{self.instruction}, then: regard check THIS_FILE.py\n"""\n\n\n'
            f"def {self.name}({arguments}):\n{docstring}\n    raise NotImplementedError\n"
        )

    def matches(self, name: str) -> bool:
        """Return whether `name` is a name of this exercise, in any spelling: "MultiHead_Attention" too."""
        return normalize_name(name) in {normalize_name(known) for known in (self.name, *self.aliases)}

    def module_weights(self, case: Case) -> dict[str, Array]:
        """Return the weights that a class stores as attributes, by name."""
        weights: dict[str, Array] = {}
        for name in self.module_arguments:
            value = case.arguments[name]
            if isinstance(value, Mapping):
                weights |= value
            elif isinstance(value, np.ndarray):
                weights[name] = value
        return weights

    def expected(self, case: Case) -> tuple[Array, ...]:
        """Return the right outputs."""
        return _expected(self.solution, case)

    def expected_gradients(self, case: Case) -> dict[str, tuple[float, float]]:
        """Return the directional derivative by each argument of `case.gradients`, measured on both sides.

        The weighted sum of the first output is differentiated along `case.directions()`. The two
        measurements differ if the input of a ReLU changes its sign between the sides.
        """
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
            weighted_sum(**{name: _move(case.arguments[name], direction, distance)})
            for distance in (-NUDGE, NUDGE)
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


def _random_like(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _random_like(part, key) for key, part in value.items()}
    return _generator(name).normal(size=np.shape(value))


def _generator(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))


class RandomLanguageModel:
    """Random model for the exercises on search. The probabilities depend on all previous tokens."""

    def __init__(self, seed: int, size: int) -> None:
        generator = np.random.default_rng(seed)
        self.last, self.before = 0.8 * generator.normal(size=(2, size, size))
        self.position = 0.8 * generator.normal(size=(24, size))
        self.wrap: Callable[[Array], Any] = np.asarray

    def __call__(self, tokens: Iterable[Any]) -> Any:
        """Return log-probabilities (V,) for a list of tokens."""
        history = [int(token) for token in np.asarray(list(tokens)).reshape(-1)]
        logits = self.position[len(history) % len(self.position)].copy()
        if history:
            logits += self.last[history[-1]]
        for token in history[:-1]:
            logits += self.before[token] / len(history)
        logits -= logits.max()
        return self.wrap(logits - np.log(np.exp(logits).sum()))


class TanhCell:
    """Recurrent cell for the exercises on decoders: `tanh([input; state] A)`."""

    def __init__(self, matrix: Array) -> None:
        self.matrix: Any = matrix
        self.tanh: Any = np.tanh
        self.concatenate: Any = np.concatenate

    def __str__(self) -> str:
        return "tanh of the sum of all"  # only the cell of the small cases is shown: its matrix is all ones

    def __call__(self, cell_input: Any, state: Any) -> Any:
        """Return the next state (B, D) of an input (B, any width) and a state (B, D)."""
        return self.tanh(self.concatenate([cell_input, state], -1) @ self.matrix)


def copy_words(seed: int, count: int, longest: int = 5) -> tuple[Array, Array]:
    """Return random words of at least two letters, and the same words as targets with start, end and padding.

    >>> source, target = copy_words(seed=0, count=3, longest=4)
    >>> source.shape, target.shape, target[:, 0].tolist()
    ((3, 4), (3, 6), [1, 1, 1])
    """
    generator = np.random.default_rng(seed)
    source = np.zeros((count, longest), np.int64)
    target = np.zeros((count, longest + 2), np.int64)
    target[:, 0] = START
    for row, length in enumerate(generator.integers(2, longest + 1, count)):
        source[row, :length] = generator.integers(END + 1, COPY_VOCABULARY, length)
        target[row, 1 : length + 1] = source[row, :length]
        target[row, length + 1] = END
    return source, target
