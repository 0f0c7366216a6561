"""A language for programs on sequences, of operations that attention and feed-forward layers can compute.

The language is RASP (Weiss et al. 2021, "Thinking Like Transformers", section 3). An expression has a value at
each step of a sequence. The operations are:

    select(keys, queries, predicate)    the steps to which each step attends     attention weights
    aggregate(selector, values)         the value at the selected step           attention output
    width(selector)                     the number of selected steps             attention, then feed-forward
    average(selector, numbers)          the mean over the selected steps         attention, then feed-forward
    elementwise(function, a, b)         a function of one or two expressions     feed-forward

>>> mirrored = elementwise(lambda length, index: length - 1 - index, width(select_all()), indices)
>>> evaluate(aggregate(select(indices, mirrored), tokens), "abcd")
['d', 'c', 'b', 'a']

A step without a value has the value None, for example if nothing is selected. A function of None is None, None is
never selected, and `otherwise` replaces None.

The steps of the side "input" are those of the text that is read. The steps of the side "output" are those that
are written: the answers of an encoder, or the target of an encoder-decoder. Attention from output to input steps
is cross-attention.

Departures from RASP: `aggregate` reads one value, and the mean of numbers is a separate operation. A selector
compares keys and queries directly, or several pairs of them (`&`); there is no `or` and `not` of selectors.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any, Literal

from regard.errors import InputError, shorten

Value = Any  # Value of an expression at one step: a str, int, bool or Fraction; None without a value
Side = Literal["input", "output"]


@dataclass(frozen=True, eq=False)
class Expression:
    """A value for each step of one side."""

    side: Side

    def map(self, function: Callable[[Any], Value]) -> "Expression":
        """Return a function of this expression.

        >>> evaluate(tokens.map(str.upper), "ab")
        ['A', 'B']
        """
        return elementwise(function, self)

    def otherwise(self, value: Value) -> "Expression":
        """Return this expression with `value` in place of None.

        >>> evaluate(aggregate(select(indices, indices.map(lambda i: i - 1)), tokens).otherwise("-"), "abc")
        ['-', 'a', 'b']
        """
        return Otherwise(self.side, self, value)

    @property
    def parts(self) -> "tuple[Expression, ...]":
        """The expressions that this one reads, also in the conditions of its selector."""
        parts: list[Expression] = []
        for value in vars(self).values():
            values = value.parts if isinstance(value, Selector) else value if isinstance(value, tuple) else (value,)
            parts += [part for part in values if isinstance(part, Expression)]
        return tuple(parts)

    @cached_property
    def varies(self) -> bool:
        """Whether the values depend on tokens. Other values depend only on positions and lengths."""
        return isinstance(self, Tokens) or any(part.varies for part in self.parts)


@dataclass(frozen=True, eq=False)
class Tokens(Expression):
    """The tokens of a side; on the side "output", the token written before each step, and None at first."""


@dataclass(frozen=True, eq=False)
class Indices(Expression):
    """The index of each step, from 0."""


@dataclass(frozen=True, eq=False)
class Constant(Expression):
    """The same value at each step."""

    value: Value


@dataclass(frozen=True, eq=False)
class Elementwise(Expression):
    """A function of the values of one or two expressions at each step."""

    function: Callable[..., Value]
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, eq=False)
class Otherwise(Expression):
    """An expression with `value` in place of None."""

    argument: Expression
    value: Value


@dataclass(frozen=True, eq=False)
class Condition:
    """A condition of a selector: `predicate(key, query)` for the values of two expressions."""

    keys: Expression
    queries: Expression
    predicate: Callable[[Any, Any], bool]


@dataclass(frozen=True, eq=False)
class Selector:
    """The steps to which each step attends: those for which all conditions are true."""

    key_side: Side
    query_side: Side
    conditions: tuple[Condition, ...] = ()

    def __and__(self, other: "Selector") -> "Selector":
        if (self.key_side, self.query_side) != (other.key_side, other.query_side):
            raise InputError(
                f"selectors from {self.query_side} to {self.key_side} and from {other.query_side} to "
                f"{other.key_side} cannot be joined: use expressions of the same sides"
            )
        return Selector(self.key_side, self.query_side, self.conditions + other.conditions)

    @property
    def parts(self) -> tuple[Expression, ...]:
        return tuple(part for pair in self.conditions for part in (pair.keys, pair.queries))


@dataclass(frozen=True, eq=False)
class Attended(Expression):
    """A result of attention."""

    selector: Selector


@dataclass(frozen=True, eq=False)
class Aggregate(Attended):
    """The value at the selected step."""

    values: Expression


@dataclass(frozen=True, eq=False)
class Average(Attended):
    """The mean of numbers over the selected steps, or their number if `numbers` is None."""

    numbers: Expression | None


tokens, indices = Tokens("input"), Indices("input")
written, steps = Tokens("output"), Indices("output")


def constant(value: Value, side: Side = "input") -> Expression:
    return Constant(side, value)


def select(keys: Expression, queries: Expression, predicate: Callable[[Any, Any], bool] = operator.eq) -> Selector:
    """Select, for each step of `queries`, the steps of `keys` for which `predicate(key, query)` is true.

    >>> evaluate(width(select(tokens, constant("a"))), "abca")
    [2, 2, 2, 2]
    """
    for part in (keys, queries):
        _check_kind(part, Expression)
    _check_function(predicate)
    return Selector(keys.side, queries.side, (Condition(keys, queries, predicate),))


def select_all(key_side: Side = "input", query_side: Side = "input") -> Selector:
    return Selector(key_side, query_side)


def aggregate(selector: Selector, values: Expression) -> Expression:
    """Return the value at the selected step, or None. `evaluate` raises `InputError` for different values."""
    _check_kind(selector, Selector)
    _check_kind(values, Expression)
    if values.side != selector.key_side:
        raise InputError(f"values of the side {values.side} do not fit keys of the side {selector.key_side}")
    return Aggregate(selector.query_side, selector, values)


def width(selector: Selector) -> Expression:
    """Return the number of selected steps.

    >>> evaluate(width(select(tokens, tokens)), "abba")
    [2, 2, 2, 2]
    """
    _check_kind(selector, Selector)
    return Average(selector.query_side, selector, None)


def average(selector: Selector, numbers: Expression) -> Expression:
    """Return the mean of whole numbers over the selected steps as a `Fraction`, and 0 if no step is selected.

    >>> evaluate(average(select_all(), tokens.map(int)), "112")
    [Fraction(4, 3), Fraction(4, 3), Fraction(4, 3)]
    """
    _check_kind(selector, Selector)
    _check_kind(numbers, Expression)
    return Average(selector.query_side, selector, numbers)


def elementwise(function: Callable[..., Value], *arguments: Expression) -> Expression:
    """Return a function of one or two expressions of the same side."""
    _check_function(function)
    for argument in arguments:
        _check_kind(argument, Expression)
    if not 1 <= len(arguments) <= 2 or len({argument.side for argument in arguments}) > 1:
        sides = ", ".join(argument.side for argument in arguments)
        raise InputError(f"elementwise got expressions of the sides {sides}: give one or two of the same side")
    return Elementwise(arguments[0].side, function, arguments)


@dataclass
class Evaluation:
    """Values of expressions for one text, by a direct interpreter.

    `output`: number of output steps of an encoder, or the text that an encoder-decoder has written. `causal`:
    whether each input step selects only itself and earlier steps. Output steps never select later output steps.
    """

    text: str
    output: int | str = ""
    causal: bool = False
    known: dict[Expression, list[Value]] = field(default_factory=dict)

    def tokens(self, side: Side) -> Sequence[str | None]:
        if side == "input":
            return self.text
        return [None] * self.output if isinstance(self.output, int) else [None, *self.output]

    def values(self, expression: Expression) -> list[Value]:
        if expression not in self.known:
            self.known[expression] = self._compute(expression)
        return self.known[expression]

    def selected(self, selector: Selector) -> list[list[int]]:
        keys, queries = (range(len(self.tokens(side))) for side in (selector.key_side, selector.query_side))
        causal = selector.key_side == selector.query_side and (self.causal or selector.key_side == "output")
        rows = [[key for key in keys if not causal or key <= query] for query in queries]
        for pair in selector.conditions:
            key_values, query_values = self.values(pair.keys), self.values(pair.queries)
            rows = [
                [key for key in row if None not in (key_values[key], query) and pair.predicate(key_values[key], query)]
                for query, row in zip(query_values, rows, strict=True)
            ]
        return rows

    def _compute(self, expression: Expression) -> list[Value]:
        if isinstance(expression, Tokens):
            return list(self.tokens(expression.side))
        if isinstance(expression, Indices):
            return list(range(len(self.tokens(expression.side))))
        if isinstance(expression, Constant):
            return [expression.value] * len(self.tokens(expression.side))
        if isinstance(expression, Otherwise):
            return [expression.value if value is None else value for value in self.values(expression.argument)]
        if isinstance(expression, Elementwise):
            rows = zip(*map(self.values, expression.arguments), strict=True)
            return [None if None in row else expression.function(*row) for row in rows]
        if isinstance(expression, Aggregate):
            values = self.values(expression.values)
            return [_single([values[key] for key in row]) for row in self.selected(expression.selector)]
        assert isinstance(expression, Average)
        selected = self.selected(expression.selector)
        if expression.numbers is None:
            return [len(row) for row in selected]
        numbers = self.values(expression.numbers)
        return [Fraction(sum(numbers[key] for key in row), max(len(row), 1)) for row in selected]


def evaluate(expression: Expression, text: str, output: int | str = "", *, causal: bool = False) -> list[Value]:
    """Return the value of an expression at each step for a text; arguments as in `Evaluation`.

    >>> evaluate(width(select(tokens, tokens)), "abba", causal=True)
    [1, 1, 2, 2]
    """
    return Evaluation(text, output, causal).values(expression)


def _check_kind(value: Any, kind: type[Expression | Selector]) -> None:
    if kind is Expression and isinstance(value, str | int | float):
        raise InputError(f"{value!r} is not an expression: write constant({value!r})")
    if not isinstance(value, kind):
        shown = "an expression" if isinstance(value, Expression) else shorten(str(value))
        noun = "a selector such as select(tokens, tokens)" if kind is Selector else "an expression such as tokens"
        raise InputError(f"{shown} is not {noun}")


def _check_function(function: Any) -> None:
    if not callable(function):
        raise InputError(f"{shorten(str(function))} is not a function, such as operator.eq or lambda value: ...")


def _single(values: list[Value]) -> Value:
    if len(set(values)) > 1:
        shown = ", ".join(map(repr, values))
        raise InputError(f"aggregate selects steps with the values {shown}: select one step, or use average")
    return values[0] if values else None


Family = Literal["encoder", "decoder-only", "encoder-decoder"]
"""encoder: attention in both directions, and an answer at each output step; decoder-only: causal attention, and
an answer at each input step; encoder-decoder: an answer that is written step by step."""


@dataclass(frozen=True, eq=False)
class Program:
    """A function of texts. All texts over `alphabet` of 1 to `longest` symbols are inputs.

    >>> from regard_lab.programs.language import aggregate, indices, select, tokens
    >>> before = aggregate(select(indices, indices.map(lambda index: index - 1)), tokens)
    >>> program = Program("previous", "", "abc", before, family="decoder-only")
    >>> program.answer("cab")
    [None, 'c', 'a']
    """

    name: str
    summary: str  # Description in one line
    alphabet: str  # Symbols of inputs, one character each
    result: Expression  # The answer at each step; None where there is no answer, and at the end of a written answer
    _: KW_ONLY
    family: Family
    longest: int = 5  # Largest number of symbols of an input
    outputs: int = 1  # Number of output steps of an encoder; largest number of symbols that an encoder-decoder writes
    symbols: str = ""  # Symbols of written answers, for an encoder-decoder. Empty: those of inputs
    roles: Mapping[Expression, str] = field(default_factory=dict)
    """Roles, in the terms of `regard.interpret.roles`, of the heads that compute these expressions."""

    def __post_init__(self) -> None:
        if self.result.side != self.answer_side:
            raise InputError(
                f"program {self.name}: the result of a program for family {self.family} has a value at each "
                f"{self.answer_side} step, not at each {self.result.side} step"
            )

    @property
    def answer_side(self) -> Side:
        return "input" if self.family == "decoder-only" else "output"

    def alphabet_of(self, side: Side) -> str:
        return self.alphabet if side == "input" else (self.symbols or self.alphabet)

    def steps_of(self, side: Side) -> int:
        if side == "input":
            return self.longest
        return self.outputs + 1 if self.family == "encoder-decoder" else self.outputs

    def evaluation(self, text: str, answer: str = "") -> Evaluation:
        """Return the interpreter for a text; `answer`: what an encoder-decoder has written."""
        output: int | str = answer if self.family == "encoder-decoder" else self.outputs
        return Evaluation(text, output, causal=self.family == "decoder-only")

    def answer(self, text: str, answer: str = "") -> list[Value]:
        return self.evaluation(text, answer).values(self.result)

    def write(self, text: str) -> str:
        """Return the text that an encoder-decoder writes: the symbols before the first None."""
        answer = ""
        while (symbol := self.answer(text, answer)[-1]) is not None:
            answer += str(symbol)
            if len(answer) > self.outputs:
                raise InputError(f"program {self.name} writes more than {self.outputs} symbols: increase outputs")
        return answer

    @cached_property
    def inputs(self) -> int:
        return sum(len(self.alphabet) ** length for length in range(1, self.longest + 1))

    def texts(self, length: int) -> list[str]:
        return ["".join(letters) for letters in product(self.alphabet, repeat=length)]
