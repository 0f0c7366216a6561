"""First half of the compiler: which head and which feed-forward unit computes which expression.

A model's residual stream is divided into subspaces, as in Tracr (Lindner et al. 2023, "Tracr: Compiled
Transformers as a Laboratory for Interpretability", section 3). The tokens, the indices and the result of each
operation have one dimension for each possible value (one-hot); None is the zero vector. An average has one
number, which the feed-forward layer after its head converts to a one-hot vector.

Every text has one additional step, whose key is chosen if no other key is selected: "^" before the text, the end
of a source, or the beginning of a target. All expressions are None at this step. Dimension `ONE` is 1 at every
step, `MARK` is 1 at the additional step only. A function of one expression needs no unit: it is a matrix,
multiplied into the weights that read it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise, product
from typing import NamedTuple

import torch
from torch import Tensor

from regard.errors import InputError
from regard_lab.programs.language import (
    Aggregate,
    Attended,
    Average,
    Constant,
    Elementwise,
    Expression,
    Indices,
    Otherwise,
    Program,
    Side,
    Tokens,
    Value,
)

ONE, MARK = 0, 1
WIDTH = 2048  # Width of the stream during planning. The compiler keeps the occupied dimensions only
TOKEN, POSITION = "token", "position"  # Sources of what a model reads: the embedding of tokens, and positions
INPUTS = "inputs"  # Node of both


class Reading(NamedTuple):
    """How a layer reads an expression from the residual stream."""

    values: tuple[Value, ...]  # Possible values, without None
    matrix: Tensor  # (values, WIDTH): maps a state to the one-hot vector of the value, and to zero for None
    ready: int  # Number of the sublayer that writes the expression; -1 for the embedding
    node: str = ""  # The node that writes the expression, `TOKEN` or `POSITION`; empty for a constant
    varies: bool = False  # Whether the value depends on tokens
    nullable: bool = False  # Whether the value can be None

    @property
    def writers(self) -> set[str]:
        """Return the node that writes the expression as the sender of edges; empty if no edge carries tokens."""
        return {INPUTS if self.node in (TOKEN, POSITION) else self.node} if self.varies else set()


class Unit(NamedTuple):
    """One unit of a feed-forward layer, which adds `outer * relu(inner . state)` to the state."""

    inner: Tensor  # (WIDTH,)
    outer: dict[Value, float]  # Amount that is added to each value of an expression


def unit_rows(columns: range) -> Tensor:
    rows = torch.zeros(len(columns), WIDTH)
    rows[range(len(columns)), list(columns)] = 1.0
    return rows


def ordered_values(values: Iterable[Value]) -> tuple[Value, ...]:
    return tuple(sorted(set(values), key=lambda value: (isinstance(value, str), value)))


def apply(function: Callable[[Value], Value], reading: Reading) -> Reading:
    """Return how to read a function of an expression: a row sums the rows of all values with the same result."""
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
    """Return units that convert a number in one dimension to the one-hot vector of a value. `points`: possible numbers
    in ascending order, and `values`: the value of each. Two units make a step from 0 to 1 between neighbouring points;
    the ramp covers half of the gap. `marked`: whether `MARK` turns all units off."""
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


class Match(NamedTuple):
    """One comparison of a head: the score of a key increases by 1 where it is true."""

    queries: Reading
    keys: Reading
    truth: Tensor  # (key values, query values), 1 where the predicate is true


class HeadTruth(NamedTuple):
    """What is known about a head; see `circuit`."""

    needed: bool | None
    used: bool
    sufficient: bool | None


class PlannedSet(NamedTuple):
    """Heads whose effect shows together only."""

    kind: str  # "replace": one of the heads is enough; "backup": the last one acts if the others are off; "oppose"
    nodes: tuple[str, ...]


NEEDED = HeadTruth(needed=True, used=True, sufficient=True)
UNNEEDED = HeadTruth(needed=False, used=False, sufficient=False)


class PlannedHead(NamedTuple):
    """One attention head."""

    layer: str
    node: str  # LAYER.HEAD
    expression: Attended
    matches: list[Match]
    default: float  # Score of the additional step, in units of one comparison
    value: Tensor  # (dimensions, WIDTH): what the head reads
    columns: Sequence[int]  # Dimensions to which the head writes


@dataclass
class Planner:
    """Heads and units that compute a program."""

    program: Program
    heads: dict[str, list[PlannedHead]] = field(default_factory=dict)  # By name of the attention layer
    truths: dict[str, HeadTruth] = field(default_factory=dict)  # By node of a head
    sets: list[PlannedSet] = field(default_factory=list)
    units: dict[str, list[tuple[Tensor, Tensor]]] = field(default_factory=dict)
    """What each unit reads and adds, (WIDTH,) each, by name of the feed-forward layer."""
    edges: set[tuple[str, str]] = field(default_factory=set)  # Edges that carry what depends on tokens
    width: dict[Side, int] = field(default_factory=lambda: {"input": MARK + 1, "output": MARK + 1})
    """Number of occupied dimensions of the stream of each side."""
    readings: dict[Expression, Reading] = field(default_factory=dict)
    depth: dict[Side, int] = field(default_factory=lambda: {"input": 0, "output": 0})  # Number of layers of each side
    positions: dict[Side, range] = field(default_factory=dict)
    """Dimensions of the positions, and of the tokens, of each side."""
    tokens: dict[Side, range] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Allocate dimensions for tokens and positions, and plan the result."""
        for side in ("input", "output") if self.program.answer_side == "output" else ("input",):
            self.tokens[side] = self.allocate(side, len(self.program.alphabet_of(side)))
            self.positions[side] = self.allocate(side, self.program.steps_of(side))
        self.result = self.read(self.program.result)
        self.connect([self.result], "logits")

    def allocate(self, side: Side, count: int) -> range:
        self.width[side] += count
        if self.width[side] > WIDTH:
            raise InputError(
                f"program {self.program.name} needs more than {WIDTH} dimensions: use fewer values or expressions"
            )
        return range(self.width[side] - count, self.width[side])

    def read(self, expression: Expression) -> Reading:
        if expression not in self.readings:
            self.readings[expression] = self._plan(expression)
        return self.readings[expression]

    def _plan(self, expression: Expression) -> Reading:
        side = expression.side
        if isinstance(expression, Tokens):
            tokens = tuple(self.program.alphabet_of(side))
            rows = unit_rows(self.tokens[side])
            return Reading(tokens, rows, -1, TOKEN, varies=True, nullable=side == "output")
        if isinstance(expression, Indices):
            steps, rows = tuple(range(self.program.steps_of(side))), unit_rows(self.positions[side])
            if side == "output" or self.program.family != "encoder-decoder":
                return Reading(steps, rows, -1, POSITION)
            # The end of a source stands at any position, so its position is removed by the first feed-forward layer.
            rows[:, MARK] = -1.0
            return self.write_units(side, 0, steps, copies(steps, rows), [Reading(steps, rows, -1, POSITION)])
        if isinstance(expression, Constant):
            matrix = unit_rows(range(ONE, ONE + 1))
            matrix[0, MARK] = -1.0 if side == "input" else 0.0
            return Reading((expression.value,), matrix, -1)
        if isinstance(expression, Otherwise):
            reading = self.read(expression.argument)
            units = copies(reading.values, reading.matrix)
            missing = -reading.matrix.sum(0)
            missing[ONE] += 1.0
            missing[MARK] -= 2.0 if side == "input" else 0.0
            units.append(Unit(missing, {expression.value: 1.0}))
            values = ordered_values([*reading.values, expression.value])
            return self.write_units(side, reading.ready, values, units, [reading])
        if isinstance(expression, Elementwise):
            if len(expression.arguments) == 1:
                return apply(expression.function, self.read(expression.arguments[0]))
            return self._plan_combination(expression)
        if isinstance(expression, Aggregate):
            return self.plan_aggregate(expression)
        assert isinstance(expression, Average)
        return self._plan_average(expression)

    def plan_aggregate(self, expression: Aggregate) -> Reading:
        values = self.read(expression.values)
        columns = self.allocate(expression.side, len(values.values))
        head, time = self.plan_head(expression, values, values.matrix, columns, -0.5)
        return Reading(values.values, unit_rows(columns), time, head.node, expression.varies, nullable=True)

    def _plan_average(self, expression: Average) -> Reading:
        """Plan a head that computes an average, and units that make a one-hot vector of it. A width is read from the
        weight of the additional step: 1 / (1 + n) with n selected steps."""
        longest, points = self.program.steps_of(expression.selector.key_side), dict[Fraction, Value]()
        if expression.numbers is None:
            numbers, value = Reading((), unit_rows(range(0)), -1), unit_rows(range(MARK, MARK + 1))
            least = 0 if expression.selector.conditions else 1  # every text has a step
            points = {Fraction(1, 1 + n): n for n in range(longest, least - 1, -1)}
        else:
            numbers = self.read(expression.numbers)
            value = (torch.tensor([float(number) for number in numbers.values]) @ numbers.matrix).unsqueeze(0)
            least, most = (int(choose([0, *numbers.values])) for choose in (min, max))
            means = {Fraction(k, n) for n in range(1, longest + 1) for k in range(least * n, most * n + 1)}
            points = {mean: mean for mean in sorted(means)}
        [column] = columns = self.allocate(expression.side, 1)
        head, time = self.plan_head(expression, numbers, value, columns, 0.0 if numbers.node == "" else -0.5)
        read = Reading((), unit_rows(columns), time, head.node, expression.varies)
        units = step_units(column, list(points), list(points.values()), marked=expression.side == "input")
        return self.write_units(expression.side, time, tuple(points.values()), units, [read])

    def _plan_combination(self, expression: Elementwise) -> Reading:
        """Plan a unit for each pair of values, which is positive if both values are present."""
        first, second = (self.read(argument) for argument in expression.arguments)
        units, nullable = list[Unit](), first.nullable or second.nullable
        for (a, row), (b, column) in product(*(zip(r.values, r.matrix, strict=True) for r in (first, second))):
            if (value := expression.function(a, b)) is None:
                nullable = True
                continue
            inner = row + column
            inner[ONE] -= 1.0
            units.append(Unit(inner, {value: 1.0}))
        values = ordered_values(value for unit in units for value in unit.outer)
        reading = self.write_units(expression.side, max(first.ready, second.ready), values, units, [first, second])
        return reading._replace(nullable=nullable)

    def plan_head(
        self, expression: Attended, source: Reading, value: Tensor, columns: Sequence[int], default: float
    ) -> tuple[PlannedHead, int]:
        """Plan a head, and return it with the number of its sublayer. `value`: (dimensions, WIDTH), what the head reads
        of `source`. `default`: score of the additional step, relative to that of a selected step."""
        selector, matches = expression.selector, []
        for pair in selector.conditions:
            keys, queries = self.read(pair.keys), self.read(pair.queries)
            truth = [[float(pair.predicate(key, query)) for query in queries.values] for key in keys.values]
            matches.append(Match(queries, keys, torch.tensor(truth)))
        times = [match.queries.ready for match in matches]
        if selector.key_side == selector.query_side:
            times += [source.ready, *(match.keys.ready for match in matches)]
            if selector.key_side == "output":
                self._check_written(expression)
        layer, time = self._attention_after(selector.key_side, selector.query_side, max(times, default=-1))
        heads = self.heads.setdefault(layer, [])
        head = PlannedHead(layer, f"{layer}.{len(heads)}", expression, matches, len(matches) + default, value, columns)
        heads.append(head)
        # Resampling cannot change what depends on positions only.
        varies = expression.varies or None
        self.truths[head.node] = HeadTruth(varies, True, varies)
        read = {"query": [match.queries for match in matches], "key": [match.keys for match in matches]}
        for part, readings in {**read, "value": [source]}.items():
            self.connect(readings, f"{head.node}.{part}")
        return head, time

    def connect(self, readings: Iterable[Reading], receiver: str) -> None:
        self.edges |= {(writer, receiver) for reading in readings for writer in reading.writers}

    def write_units(
        self, side: Side, ready: int, values: tuple[Value, ...], units: list[Unit], readings: list[Reading]
    ) -> Reading:
        """Plan units in the first feed-forward layer after sublayer `ready`; return how to read their output."""
        period = 2 if side == "input" else 3
        number = max(ready, 0) // period
        number += number * period + period - 1 <= ready
        self._check_layers(side)
        self.depth[side] = max(self.depth[side], number + 1)
        layer = f"{self.stack(side)}.{number}.feed_forward"
        columns = self.allocate(side, len(values))
        for inner, outer in units:
            output = torch.zeros(WIDTH)
            for value, weight in outer.items():
                output[columns[values.index(value)]] += weight
            self.units.setdefault(layer, []).append((inner, output))
        self.connect(readings, layer)
        varies = any(reading.varies for reading in readings)
        return Reading(values, unit_rows(columns), number * period + period - 1, layer, varies)

    def stack(self, side: Side) -> str:
        return "encoder" if side == "input" and self.program.family != "decoder-only" else "decoder"

    def _attention_after(self, keys: Side, queries: Side, ready: int) -> tuple[str, int]:
        """Return the first attention layer after sublayer `ready`, and the number of its sublayer."""
        if self.program.family == "encoder" and queries == "output":
            if keys == "output" or ready >= 0:
                self._check_layers("output")
            return "cross", 1
        period, offset = (2, 0) if queries == "input" else (3, int(keys == "input"))
        number = (ready - offset) // period + 1 if ready >= offset else 0
        self.depth[queries] = max(self.depth[queries], number + 1)
        kind = "self_attention" if keys == queries else "cross"
        return f"{self.stack(queries)}.{number}.{kind}", number * period + offset

    def _check_layers(self, side: Side) -> None:
        if side == "output" and self.program.family == "encoder":
            raise InputError(
                f"program {self.program.name} computes on output steps, but an encoder only reads its answers "
                f"there: compute on input steps, and use aggregate last"
            )

    def _check_written(self, expression: Attended) -> None:
        """Raise `InputError` if a key or value of attention between output steps is not a function of tokens."""
        selector = expression.selector
        read = [pair.keys for pair in selector.conditions]
        read += [part for part in expression.parts if part not in selector.parts]
        if not selector.conditions or not all(_of_tokens(part) for part in read):
            raise InputError(
                f"program {self.program.name} selects output steps by other keys or values than their tokens: "
                f"use functions of `written`"
            )


def _of_tokens(expression: Expression) -> bool:
    if isinstance(expression, Elementwise):
        return all(map(_of_tokens, expression.arguments))
    return isinstance(expression, Tokens)
