"""Known mistakes: `Solution` with wrong steps, which are data in `mistakes.toml`, with texts for learners."""

import inspect
import math
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

from regard_course.inputs import read_table
from regard_course.mistakes.solution import Array, Solution

LARGE_HIDDEN = "large hidden scores"
"""Name of the inputs in which hidden keys have large scores; see `mistakes.toml`."""
KNOWN: dict[str, type[Solution]] = {}
"""The mistakes by name."""


def _exchange(outputs: tuple[Array, ...], changes: dict[int, Any]) -> tuple[Array, ...]:
    """Return outputs of which some, by their index, have other values."""
    return tuple(np.asarray(changes.get(index, output)) for index, output in enumerate(outputs))


def _gelu(states: Array) -> Array:
    from scipy.special import ndtr  # loads slowly

    return np.asarray(states * ndtr(states))


def _wave_for_each_dimension(self: Solution, length: int, width: int, factor: int) -> Array:
    angles = self.positions(length)[:, None] * self.base ** -(factor * self.indices(width) / width)
    return np.where(np.arange(width) % 2 == 0, np.sin(angles), np.cos(angles))


def _below(probabilities: Array, top_p: float) -> Array:
    """Return for which tokens the sum of probabilities, including the token itself, is below p."""
    order = np.argsort(-probabilities)
    return np.asarray(np.cumsum(probabilities[order]) < top_p)[np.argsort(order)]


def _make_step(name: str, code: str, base: type[Solution]) -> Callable[..., Any]:
    """Return a step with the parameters of the right one, from an expression or lines; `right` is the right step."""
    signature = inspect.signature(getattr(Solution, name))
    plain = [part.replace(annotation=part.empty) for part in signature.parameters.values()]
    lines = code.strip("\n") if "\n" in code else f"return {code}"
    names: dict[str, Any] = {
        **{function.__name__: function for function in (_exchange, _gelu, _wave_for_each_dimension, _below)},
        "np": np,
        "math": math,
        "Solution": Solution,
        "right": getattr(base, name),
    }
    source = f"def {name}({', '.join(map(str, plain))}):\n{textwrap.indent(lines, '    ')}\n"
    exec(compile(source, "mistakes.toml", "exec"), names)  # data of this package
    step: Callable[..., Any] = names[name]
    return step


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _make_mistake(name: str, data: dict[str, Any]) -> type[Solution]:
    base = KNOWN.get(data.get("base", ""), Solution)
    steps = {step: _make_step(step, code, base) for step, code in data.get("steps", {}).items()}
    numbers = {number: _tuples(value) for number, value in data.get("numbers", {}).items()}
    groups = TEXTS["inputs"]
    texts = {
        "did": data["did"],
        "instead": data["instead"],
        "paper": TEXTS["papers"][data["paper"]],
        "companion": data.get("companion", False),
        "broken": frozenset(case for key in data.get("broken", ()) for case in groups.get(key, [key])),
        "rounded": frozenset(data.get("rounded", ())),
    }
    KNOWN[name] = type(name, (base,), {"__module__": __name__, **numbers, **steps, **texts})
    return KNOWN[name]


TEXTS = read_table("mistakes/mistakes.toml")
MISTAKES: tuple[type[Solution], ...] = tuple(_make_mistake(*item) for item in TEXTS["mistakes"].items())
"""All mistakes, in the order of the exercises."""
