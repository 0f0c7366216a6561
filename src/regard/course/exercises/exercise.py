"""What an exercise is: a stub for the learner, its answer in plain loops, and inputs to try both on."""

import dataclasses
import functools
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
NUDGE = 1e-5
"""By how much inputs are moved to measure a slope."""
KEPT = 512
"""Answers in plain loops that are kept: those of all exercises, and of as many again."""


PRIMES = (2, 3, 5, 7)
"""Sizes that change places from seed to seed: what was alike stays alike, what was different different."""


def varied(seed: int, *sizes: int) -> list[int]:
    """Return sizes for a seed: for 0 as they stand, else with the primes among them in other places."""
    places = np.random.default_rng(seed).permutation(PRIMES).tolist() if seed else PRIMES
    return [int(dict(zip(PRIMES, places, strict=True)).get(size, size)) for size in sizes]


def plain_name(name: str) -> str:
    """Return a name without what its writer chose: capitals and underscores."""
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One input of an exercise, whose arrays nobody changes: what is worked out for it is kept."""

    name: str
    """What it tries."""
    arguments: Mapping[str, Any]
    """What a function is called with, in this order."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """What a class is built with, by name."""
    counts: Array | None = None
    """Which steps of the first output count, (B, T); None: all."""
    slopes: tuple[str, ...] = ()
    """Arguments by which gradients are compared."""
    report_metrics: bool = True
    """Whether the catalogue's mistakes are tried on it too."""
    outputs: tuple[str, ...] = ()
    """What its outputs are called, where they are not those of the exercise."""
    plain: bool = False
    """Whether only functions are asked: in these sizes nothing tells where in a module a weight belongs."""

    def directions(self) -> dict[str, Any]:
        """Return in which direction each argument of `slopes` is nudged."""
        return {name: _noise(self.arguments[name], name) for name in self.slopes}

    def pull(self, shape: tuple[int, ...]) -> Array:
        """Return by what each number of the first output, of this shape, counts in the sum whose slope is
        taken.
        """
        pull: Array = _generator("pull").normal(size=shape)
        if self.counts is not None:
            pull = pull * self.counts[..., None]
        return pull


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """Something to write oneself."""

    name: str
    """Name of the function that is asked for."""
    title: str
    """What it is, in a few words."""
    stub: str
    """What the learner starts from, a Python file."""
    reference: Callable[..., Any]
    """The answer, in plain loops."""
    cases: Callable[[int], list[Case]]
    """Inputs for a seed."""
    outputs: tuple[str, ...]
    """What comes back."""
    names: tuple[str, ...] = ()
    """What else the learner's function or class may be called."""
    held: tuple[str, ...] = ()
    """Arguments that a class of the learner's holds itself: weights, or how many heads."""
    builds: tuple[str, ...] = ()
    """Sizes that such a class is built with, in order."""
    watch: Callable[[Any, Case], tuple[Any, ...]] | None = None
    """How to call the learner's function, where that takes more than its arguments."""
    small: Callable[[], list[Case]] = list
    """Inputs that are small enough to be worked out by hand, beside the cases called so, to show mistakes on."""

    def __post_init__(self) -> None:
        """Draw the inputs of a seed once."""
        object.__setattr__(self, "cases", functools.lru_cache(maxsize=2)(self.cases))

    def answers_to(self, name: str) -> bool:
        """Whether this exercise is meant by `name`."""
        return plain_name(name) in {plain_name(each) for each in (self.name, *self.names)}

    def expected(self, case: Case) -> tuple[Array, ...]:
        """Return the right outputs."""
        return _expected(self.reference, case)

    def slopes(self, case: Case) -> dict[str, tuple[float, float]]:
        """Return by how much the pulled sum of the first output grows with each argument, measured by nudging it
        to one side and to the other: two figures, which differ where a ReLU turns on in between.
        """
        return _slopes(self.reference, case)


@functools.lru_cache(maxsize=KEPT)
def _expected(reference: Callable[..., Any], case: Case) -> tuple[Array, ...]:
    return as_outputs(reference(**case.arguments))


@functools.lru_cache(maxsize=KEPT)
def _slopes(reference: Callable[..., Any], case: Case) -> dict[str, tuple[float, float]]:
    def pulled(**changes: Any) -> float:
        first = as_outputs(reference(**{**case.arguments, **changes}))[0]
        return float((first * case.pull(first.shape)).sum())

    unmoved, found = pulled(), {}
    for name, direction in case.directions().items():
        before, after = (pulled(**{name: _moved(case.arguments[name], direction, by)}) for by in (-NUDGE, NUDGE))
        found[name] = ((unmoved - before) / NUDGE, (after - unmoved) / NUDGE)
    return found


def as_outputs(found: Any) -> tuple[Array, ...]:
    """Return what a function gave as a tuple of arrays."""
    return tuple(np.asarray(each) for each in (found if isinstance(found, tuple) else (found,)))


def _moved(value: Any, direction: Any, by: float) -> Any:
    if isinstance(value, Mapping):
        return {name: _moved(each, direction[name], by) for name, each in value.items()}
    return value + by * direction


def _noise(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return {each: _noise(one, each) for each, one in value.items()}
    return _generator(name).normal(size=np.shape(value))


def _generator(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))


class Chances:
    """What a search asks: log-probabilities of the next token, given all tokens so far."""

    def __init__(self, seed: int, size: int) -> None:
        generator = np.random.default_rng(seed)
        self.last, self.before = 0.8 * generator.normal(size=(2, size, size))
        self.place = 0.8 * generator.normal(size=(24, size))
        self.wrap: Callable[[Array], Any] = np.asarray

    def __call__(self, tokens: Iterable[Any]) -> Any:
        """Return (V,) for a list of tokens."""
        known = [int(token) for token in np.asarray(list(tokens)).reshape(-1)]
        logits = self.place[len(known) % len(self.place)].copy()
        if known:
            logits += self.last[known[-1]]
        for token in known[:-1]:
            logits += self.before[token] / len(known)
        logits -= logits.max()
        return self.wrap(logits - np.log(np.exp(logits).sum()))


class TanhCell:
    """A recurrent cell that is given: `tanh([input; state] A)`."""

    def __init__(self, matrix: Array) -> None:
        self.matrix: Any = matrix
        self.tanh: Any = np.tanh
        self.join: Any = np.concatenate

    def __str__(self) -> str:
        return "tanh of the sum of all"  # as it is where a cell is shown: a matrix of ones

    def __call__(self, entering: Any, state: Any) -> Any:
        """Return the next state (B, D) of an input (B, any) and a state (B, D)."""
        return self.tanh(self.join([entering, state], -1) @ self.matrix)


def changed(case: Case, **changes: Any) -> Case:
    """Return a case with something else."""
    return dataclasses.replace(case, **changes)
