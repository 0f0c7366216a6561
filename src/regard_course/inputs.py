"""What the process of a learner's code receives of an exercise. No module that it imports contains a solution."""

import inspect
import tomllib
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import numpy as np

from regard_course.translated import say

Array = np.ndarray[Any, np.dtype[Any]]
PADDING, START, END = 0, 1, 2
"""The special tokens of the exercises on sequences."""
COPY_VOCABULARY = 9
"""Vocabulary size of the task Copy: padding, start, end and six letters."""


def read_table(path: str) -> dict[str, Any]:
    """Return the content of a TOML file of the course."""
    return tomllib.loads((files("regard_course") / path).read_text(encoding="utf-8"))


MESSAGES = read_table("messages.toml")


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
        return {name: _random_like(self.arguments[name], name) for name in self.gradients}

    def output_weights(self, shape: tuple[int, ...]) -> Array:
        """Return random weights for the first output. Gradients are those of its weighted sum."""
        weights: Array = _generator("pull").normal(size=shape)
        if self.valid_steps is not None:
            weights = weights * self.valid_steps[..., None]
        return weights


@dataclass(frozen=True, kw_only=True, eq=False)
class Specification:
    """An exercise without its solution."""

    name: str
    """Name of the function to write."""
    parameters: tuple[inspect.Parameter, ...]
    """Parameters of the function to write."""
    outputs: tuple[str, ...]
    """Names of the outputs."""
    aliases: tuple[str, ...] = ()
    """Other accepted names of the function or class."""
    module_arguments: tuple[str, ...] = ()
    """Arguments that a class stores as attributes: weights, or the number of heads."""
    constructor_sizes: tuple[str, ...] = ()
    """Names of the constructor's arguments, in order."""
    call: str = ""
    """Function of `probe_models` that calls the answer, if the arguments are not sufficient for the call."""

    def matches(self, name: str) -> bool:
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
        return say("tanh of the sum of all")  # only the cell of the small cases is shown: its matrix is all ones

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
