"""How compiled layers read values from the residual stream, and how their units write values to it.

The dimensions of a stream: `ONE` is 1 at every step, and `MARK` is 1 at the additional step of a text only. All
other dimensions belong to one value of one expression each."""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from regard_lab.programs.language import Value

ONE, MARK = 0, 1
WIDTH = 2048
"""Width of the stream during planning. The compiler keeps the occupied dimensions only."""
TOKEN, POSITION = "token", "position"
"""Sources of what a model reads: the embedding of tokens, and positions."""
INPUTS = "inputs"
"""Node of both."""


class Reading(NamedTuple):
    """How a layer reads an expression from the residual stream."""

    values: tuple[Value, ...]
    """Possible values, without None."""
    matrix: Tensor
    """(values, WIDTH): maps a state to the one-hot vector of the value, and to zero for None."""
    ready: int
    """Number of the sublayer that writes the expression; -1 for the embedding."""
    node: str = ""
    """The node that writes the expression, `TOKEN` or `POSITION`; empty for a constant."""
    varies: bool = False
    """Whether the value depends on tokens."""
    nullable: bool = False
    """Whether the value can be None."""

    @property
    def writers(self) -> set[str]:
        """Return the node that writes the expression as the sender of edges; empty if no edge carries tokens."""
        return {INPUTS if self.node in (TOKEN, POSITION) else self.node} if self.varies else set()


class Unit(NamedTuple):
    """One unit of a feed-forward layer, which adds `outer * relu(inner . state)` to the state."""

    inner: Tensor
    """(WIDTH,)."""
    outer: dict[Value, float]
    """Amount that is added to each value of an expression."""


def unit_rows(columns: range) -> Tensor:
    rows = torch.zeros(len(columns), WIDTH)
    rows[range(len(columns)), list(columns)] = 1.0
    return rows


def ordered_values(values: Iterable[Value]) -> tuple[Value, ...]:
    """Return distinct values in order.

    >>> ordered_values([3, 1, 3]), ordered_values("ba")
    ((1, 3), ('a', 'b'))
    """
    return tuple(sorted(set(values), key=lambda value: (isinstance(value, str), value)))


def apply(function: Callable[[Value], Value], reading: Reading) -> Reading:
    """Return how to read a function of an expression.

    Each row of the new matrix is the sum of the rows of all values with the same result, so no unit is needed.
    """
    results = [function(value) for value in reading.values]
    values = ordered_values(result for result in results if result is not None)
    matrix = torch.zeros(len(values), WIDTH)
    for result, row in zip(results, reading.matrix, strict=True):
        if result is not None:
            matrix[values.index(result)] += row
    return reading._replace(values=values, matrix=matrix, nullable=reading.nullable or None in results)


def copies(values: Sequence[Value], rows: Tensor) -> list[Unit]:
    return [Unit(row, {value: 1.0}) for value, row in zip(values, rows, strict=True)]


def step_units(column: int, points: Sequence[Fraction], values: Sequence[Value], *, marked: bool) -> list[Unit]:
    """Return units that convert a number in one dimension to the one-hot vector of a value.

    `points`: possible numbers in ascending order, and `values`: the value of each. Two units make a step from 0
    to 1 between neighbouring points; the ramp covers half of the gap. `marked`: whether `MARK` turns all units
    off."""
    first = torch.zeros(WIDTH)
    first[ONE] = 1.0
    steps = [(first, 1.0, values[0], None)]
    for (low, high), (before, after) in zip(pairwise(points), pairwise(values), strict=True):
        slope = 2.0 / float(high - low)
        for shift, sign in ((0.5, 1.0), (-0.5, -1.0)):
            inner = torch.zeros(WIDTH)
            inner[column], inner[ONE] = slope, shift - slope * float(low + high) / 2
            steps.append((inner, sign, after, before))
    units = []
    for inner, sign, after, before in steps:
        if marked:
            inner[MARK] = -2.0 - inner[ONE].abs() - inner[column].abs() * max(map(abs, map(float, points)))
        units.append(Unit(inner, {after: sign} | ({} if before is None else {before: -sign})))
    return units
