"""Random inputs of an exercise, from a table of the shapes of its arguments and of the sizes of its inputs."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from regard_course.inputs import Array, Case
from regard_course.mistakes.known import LARGE_HIDDEN

PRIMES = (2, 3, 5, 7)
"""Sizes that another seed permutes."""
MASKS, HIDDEN = ("mask", "memory_mask"), ("scores", "memory", "key", "states")
"""Names of masks, and of the arguments whose steps they hide."""
CASE_OPTIONS = {field.name for field in fields(Case)}


class Draw:
    """One input while it is drawn. The shape of an array is a text, for example "b t h*s"."""

    def __init__(self, seed: int, sizes: Mapping[str, int]) -> None:
        self.seed, self.sizes = seed, sizes
        self.generator = np.random.default_rng(seed + sum(sizes.values()))
        self.arguments: dict[str, Any] = {}
        """The arguments that are drawn already."""

    def size(self, letters: str) -> int:
        """Return the size that letters stand for, for example "t", "3", "h*s" or "m+d"."""
        return sum(
            math.prod(self.sizes[part] if part in self.sizes else int(part) for part in product.split("*"))
            for product in letters.split("+")
        )

    def shape(self, letters: str) -> tuple[int, ...]:
        """Return the sizes that letters stand for."""
        return tuple(map(self.size, letters.split()))

    def __call__(self, letters: str) -> Array:
        """Return random numbers of a shape."""
        return self.generator.normal(size=self.shape(letters))


Rule = Callable[[Draw], Any] | str | float | None
"""How an argument is drawn: a function, the shape of random numbers, or a value."""


class Row(NamedTuple):
    """An input of a table."""

    name: str
    sizes: tuple[int, ...]
    options: dict[str, Any]


def row(name: str, *sizes: int, **options: Any) -> Row:
    """Return an input with these sizes. `options`: other rules for its arguments, and fields of `Case`."""
    return Row(name, sizes, options)


def fixed(name: str, *, sizes: Mapping[str, int] | None = None, functions: bool = False, **arguments: Any) -> Case:
    """Return an input that is the same for every seed. Lists become arrays."""
    arrays = {key: np.array(value) if isinstance(value, list) else value for key, value in arguments.items()}
    return Case(name=name, arguments=arrays, sizes=sizes or {}, functions_only=functions)


def number(letters: str) -> Callable[[Draw], int]:
    """Return the rule for an argument that is a size."""
    return lambda draw: draw.size(letters)


def draw_cases(
    letters: str, rules: Mapping[str, Rule], *rows: Row | Case, constructor: Mapping[str, str] | None = None
) -> Callable[[int], list[Case]]:
    """Return the function that draws the inputs of an exercise for a seed.

    Sizes are different primes, so that swapped axes change the shape or the numbers of a result. Another seed
    permutes them: equal sizes remain equal, and different sizes remain different.

    letters: the letter of each size of a row; sizes with an uppercase letter are the same for every seed.
    rules: how each argument is drawn. constructor: the sizes that a learner's class receives, by name.

    >>> cases = draw_cases("b t", {"states": "b t"}, row("two steps", 3, 2), fixed("by hand", states=[[1.0]]))
    >>> [(case.name, case.arguments["states"].shape) for case in cases(0)]
    [('two steps', (3, 2)), ('by hand', (1, 1)), ('not contiguous', (3, 2))]
    """

    def draw_case(seed: int, row: Row) -> Case:
        sizes = dict(zip(letters.split(), row.sizes, strict=True))
        primes = np.random.default_rng(seed).permutation(PRIMES).tolist() if seed else PRIMES
        permuted = dict(zip(PRIMES, primes, strict=True))
        draw = Draw(seed, {key: n if key.isupper() else permuted.get(n, n) for key, n in sizes.items()})
        for name, rule in {**rules, **{key: row.options[key] for key in row.options if key in rules}}.items():
            value = draw(rule) if isinstance(rule, str) else rule(draw) if callable(rule) else rule
            draw.arguments[name] = value
        options = {key: value for key, value in row.options.items() if key in CASE_OPTIONS}
        classes = {name: draw.size(size) for name, size in (constructor or {}).items()}
        return Case(name=row.name, arguments=draw.arguments, sizes=classes, **options)

    def draw(seed: int) -> list[Case]:
        cases = [row if isinstance(row, Case) else draw_case(seed, row) for row in rows]
        drawn = [case for case in cases if not case.functions_only and case not in rows]
        return [*cases, *itertools.chain(*(corner(drawn) for corner in (_large_hidden_scores, _not_contiguous)))]

    return draw


def _large_hidden_scores(cases: Sequence[Case]) -> list[Case]:
    """Return an input in which hidden keys have scores that are far larger or smaller than the others. Keys,
    memory or states are large at two steps that are hidden from all queries, so their scores are large. Scores
    have no bound in the papers, but right code may write the constant -1e9 in place of -inf or add it. Therefore no
    score exceeds some millions. Large hidden states are queries too, with large scores of allowed keys: the
    results at these steps, which nobody reads, are not compared."""
    for case in cases:
        mask_name = next((name for name in MASKS if isinstance(case.arguments.get(name), np.ndarray)), "")
        name = next((name for name in HIDDEN if name in case.arguments), "")
        if not mask_name or not name or case.arguments[mask_name].all():
            continue
        mask, values = case.arguments[mask_name].copy(), case.arguments[name].copy()
        if name == "scores":
            values[~mask] *= 1e6
        else:
            seen = mask.reshape(len(mask), -1, mask.shape[-1]).sum(1)
            for element, key in enumerate(seen.argmin(-1)):
                if seen[element].min() == seen[element].max() and seen[element].all():
                    continue  # nothing is hidden
                values[element, key] *= 1e3 if name == "states" else 1e5
                mask[element, ..., key] = False
                if mask.shape[-1] > 2:  # a large score for each sign of a query
                    values[element, key - 1] = -values[element, key] / 2
                    mask[element, ..., key - 1] = False
                mask[element, ..., (key + 1) % mask.shape[-1]] |= ~mask[element].any(-1)
        arguments = {**case.arguments, name: values, mask_name: mask}
        valid = mask.any(1) if name == "states" else None
        return [dataclasses.replace(case, name=LARGE_HIDDEN, arguments=arguments, gradients=(), valid_steps=valid)]
    return []


def _not_contiguous(cases: Sequence[Case]) -> list[Case]:
    """Return an input whose arrays have the memory layout of a transposed array, if it has matrices."""
    for case in cases[:1]:
        if any(isinstance(value, np.ndarray) and value.ndim > 1 for value in case.arguments.values()):
            arguments = {
                name: np.asfortranarray(value) if isinstance(value, np.ndarray) else value
                for name, value in case.arguments.items()
            }
            return [dataclasses.replace(case, name="not contiguous", arguments=arguments, diagnose=False)]
    return []


def random_mask(letters: str) -> Callable[[Draw], Array]:
    """Return the rule for a mask (B, Tq, Tk) in which each query may attend to some keys, and at least two
    queries to each key. If there is a single query, all keys are allowed."""

    def draw_mask(draw: Draw) -> Array:
        batch, queries, keys = draw.shape(letters)
        mask: Array = draw.generator.random((batch, queries, keys)) < 0.4
        for key in range(keys):
            mask[:, key % queries, key] = mask[:, (key + 2) % queries, key] = True
        for query in range(queries):
            mask[:, query, (2 * query + 1) % keys] = True
        return mask

    return draw_mask


def with_empty_rows(letters: str, *rows: tuple[int, int]) -> Callable[[Draw], Array]:
    """Return the rule for a random mask that hides all keys in some rows (batch element, query)."""

    def draw_mask(draw: Draw) -> Array:
        mask = random_mask(letters)(draw)
        for row in rows:
            mask[row] = False
        return mask

    return draw_mask


def padding_mask(letters: str) -> Callable[[Draw], Array]:
    """Return the rule for a mask (B, T) or (B, rows, T) that hides padding: at least one step of the first
    sentence, and none of the last one of several."""

    def draw_mask(draw: Draw) -> Array:
        batch, *rows, length = draw.shape(letters)
        lengths = np.maximum(1, length - 1 - draw.generator.integers(0, 3, batch))
        lengths[0] = max(1, length - 1)
        lengths[1:][-1:] = length
        visible = np.arange(length) < lengths[:, None]
        return np.broadcast_to(visible[:, None], (batch, *rows, length)).copy() if rows else visible

    return draw_mask


def parameter(name: str, width: str, inner: str) -> Callable[[Draw], Array]:
    """Return the rule for a weight, bias, gain or shift of a layer. Gains and shifts are random too, so that a
    mistake in their use changes the output."""

    def draw_parameter(draw: Draw) -> Array:
        if name.startswith(("gain", "shift")):
            return draw.generator.normal(1 if name.startswith("gain") else 0, 0.5, draw.size(width))
        # Weights of this size keep the states near 1, so that neither softmax nor tanh saturates.
        shapes = {"w_1": f"{width} {inner}", "b_1": inner, "w_2": f"{inner} {width}", "b_2": width}
        values = draw(shapes.get(name, f"{width} {width}"))
        return values * (0.5 if values.ndim == 1 else 1.5 * len(values) ** -0.5)

    return draw_parameter


def parameters(names: Sequence[str], width: str, inner: str) -> Callable[[Draw], dict[str, Array]]:
    """Return the rule for a dictionary of parameters."""
    return lambda draw: {name: parameter(name, width, inner)(draw) for name in names}
