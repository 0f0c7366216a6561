"""A learner's program as tables, so that it can be checked and compiled without the learner's code.

A program of `regard.programs.language` reads texts over a finite alphabet. Each of its functions and predicates
is therefore a finite table. `describe_program` computes the tables in the process of the learner's code, as
values for JSON. `read_program` turns them into expressions again, in the process that checks the program.
"""

import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from typing import Any

from regard.errors import InputError, shorten
from regard.programs.language import (
    Aggregate,
    Average,
    Condition,
    Constant,
    Elementwise,
    Expression,
    Indices,
    Otherwise,
    Selector,
    Tokens,
    Value,
    indices,
    tokens,
)

Part = Expression | Selector
MAX_VALUES, MAX_TEXT = 128, 100
"""Largest numbers of possible values of an expression, and of characters of a value."""
RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "≠": operator.ne,
    "<": operator.lt,
    "≤": operator.le,
    ">": operator.gt,
    "≥": operator.ge,
}
"""Comparisons of a key (left) with a query (right)."""


def record_lines(file: str) -> dict[int, int]:
    """Record the line of a file in which each expression and selector is created from now on, by its id."""
    lines: dict[int, int] = {}

    def create(kind: type[Any], *_: Any, **__: Any) -> Any:
        created, frame = object.__new__(kind), sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != file:
            frame = frame.f_back  # type: ignore[assignment]
        lines[id(created)] = 0 if frame is None else frame.f_lineno
        return created

    for kind in (Expression, Selector):
        kind.__new__ = create  # type: ignore[method-assign, assignment]
    return lines


def describe_program(
    names: Mapping[str, Any], alphabet: str, longest: int, lines: dict[int, int]
) -> dict[str, Any]:
    """Return the expressions and selectors among the names of a module as values for JSON.

    Raises `InputError` for a function with unsuitable values.
    """
    description = _Description(alphabet, longest, lines)
    named: list[tuple[str, str, int]] = []
    for name, value in names.items():
        if isinstance(value, Part) and (id(value) in lines or name == "answer"):  # others are imported
            kind = "selector" if isinstance(value, Selector) else "expression"
            named.append((name, kind, description.add(value)))
        elif value is None and not name.startswith("_"):
            named.append((name, "nothing", 0))
    answer = names.get("answer", names)
    kind = "missing" if answer is names else "unwritten" if answer is ... else type(answer).__name__
    return {"expressions": description.nodes, "selectors": description.selectors, "names": named, "answer": kind}


class _Description:
    """The expressions and selectors of a program, each after its parts."""

    def __init__(self, alphabet: str, longest: int, lines: Mapping[int, int]) -> None:
        self.alphabet, self.longest, self.lines = alphabet, longest, lines
        self.nodes: list[dict[str, Any]] = []
        self.selectors: list[dict[str, Any]] = []
        self._numbers: dict[Part, int] = {}
        self._values: dict[Expression, list[Value]] = {}

    def add(self, part: Part) -> int:
        """Return the number of an expression among the expressions, or of a selector among the selectors."""
        if part not in self._numbers:
            line = self.lines.get(id(part), 0)
            if "output" in _sides(part):
                place = f"line {line}: " if line else ""
                raise InputError(f"{place}`steps` and `written` do not belong to a puzzle: use `indices`")
            if isinstance(part, Selector):
                node, group = {"conditions": [self._condition(c, line) for c in part.conditions]}, self.selectors
            else:
                (node, values), group = self._expression(part, line), self.nodes
                self._values[part] = list(dict.fromkeys(value for value in values if value is not None))
                if len(self._values[part]) > MAX_VALUES:
                    words = f"an expression has more than {MAX_VALUES} possible values: use fewer"
                    raise InputError(f"line {line}: {words}")
            group.append({**node, "line": line})
            self._numbers[part] = len(group) - 1
        return self._numbers[part]

    def _expression(self, part: Expression, line: int) -> tuple[dict[str, Any], list[Value]]:
        """Return the description of an expression, and its possible values."""
        if isinstance(part, Tokens):
            return {"kind": "tokens"}, list(self.alphabet)
        if isinstance(part, Indices):
            return {"kind": "indices"}, list(range(self.longest))
        if isinstance(part, Constant):
            return {"kind": "constant", "value": _encode(part.value, line)}, [part.value]
        if isinstance(part, Otherwise):
            node = {"kind": "otherwise", "parts": [self.add(part.argument)], "value": _encode(part.value, line)}
            return node, [*self._values[part.argument], part.value]
        if isinstance(part, Elementwise):
            return self._elementwise(part, line)
        if isinstance(part, Aggregate):
            node = {"kind": "aggregate", "parts": [self.add(part.values)], "selector": self.add(part.selector)}
            return node, self._values[part.values]
        assert isinstance(part, Average)
        if part.numbers is None:
            return {"kind": "width", "selector": self.add(part.selector)}, list(range(self.longest + 1))
        node = {"kind": "average", "parts": [self.add(part.numbers)], "selector": self.add(part.selector)}
        numbers = self._values[part.numbers]
        if wrong := [number for number in numbers if not isinstance(number, int)]:
            raise InputError(f"line {line}: average needs whole numbers, not {wrong[0]!r}")
        least, most = min([0, *numbers]), max([0, *numbers])
        sums = {n: range(least * n, most * n + 1) for n in range(1, self.longest + 1)}
        return node, sorted({Fraction(total, n) for n, totals in sums.items() for total in totals})

    def _elementwise(self, part: Elementwise, line: int) -> tuple[dict[str, Any], list[Value]]:
        arguments = [self.add(argument) for argument in part.arguments]
        values = [self._values[argument] for argument in part.arguments]
        results, failed = dict[tuple[Value, ...], Value](), []
        for row in product(*self._widened(values)):
            try:
                results[row] = part.function(*row)
            except Exception as error:
                failed.append((_encode(row, line), _describe_failure(part.function, row, error)))
        table = [(_encode(row, line), _encode(value, line)) for row, value in results.items()]
        node = {"kind": "elementwise", "parts": arguments, "table": table, "failed": failed}
        return node, [results.get(row) for row in product(*values)]

    def _condition(self, pair: Condition, line: int) -> dict[str, Any]:
        keys, queries = self.add(pair.keys), self.add(pair.queries)
        true, failed = list[tuple[Value, ...]](), []
        domains = self._widened([self._values[pair.keys], self._values[pair.queries]])
        for row in product(*domains):
            try:
                true += [row] if pair.predicate(*row) else []
            except Exception as error:
                failed.append((_encode(row, line), _describe_failure(pair.predicate, row, error)))
        relation = next((sign for sign, known in RELATIONS.items() if pair.predicate is known), None)
        relation = relation or _find_relation(domains, true)
        table = [(_encode(row, line), True) for row in true]
        return {"keys": keys, "queries": queries, "table": table, "failed": failed, "relation": relation}

    def _widened(self, values: list[list[Value]]) -> list[list[Value]]:
        """Return the values for a table: with the numbers beside whole numbers, and the values of both arguments
        if both are of one type. A repaired program needs them."""
        wide = [
            list(dict.fromkeys([*own, *(v + d for v in own for d in (-1, 1) if type(v) is int)]))
            for own in values
        ]
        together = list(dict.fromkeys(value for own in wide for value in own))
        return [together] * len(wide) if len(set(map(type, together))) == 1 else wide


def _sides(part: Part) -> set[str]:
    return {part.key_side, part.query_side} if isinstance(part, Selector) else {part.side}


def _find_relation(domains: list[list[Value]], true: list[tuple[Value, ...]]) -> str | None:
    """Return the sign of the comparison that is true for the same pairs."""
    for sign, relation in RELATIONS.items():
        try:
            same = [pair for pair in product(*domains) if relation(*pair)] == true
        except TypeError:
            continue
        if same and true:
            return sign
    return None


def _describe_failure(function: Any, row: tuple[Value, ...], error: Exception) -> str:
    line = getattr(getattr(function, "__code__", None), "co_firstlineno", 0)
    arguments = ", ".join(map(repr, row))
    text = " ".join(f"the function fails for ({arguments}): {type(error).__name__}: {error}".split())[:200]
    return f"line {line}: {text}" if line else text


def _encode(value: Value, line: int) -> Any:
    if isinstance(value, Fraction):
        return {"fraction": [value.numerator, value.denominator]}
    if isinstance(value, tuple):
        return {"tuple": [_encode(part, line) for part in value]}
    is_number = type(value) in (bool, int) or (isinstance(value, float) and value - value == 0)
    if value is None or is_number or (type(value) is str and len(value) <= MAX_TEXT):
        return value
    raise InputError(
        f"line {line}: {shorten(str(value))} is not a suitable value: use a number, a text, True, False or None"
    )


def _decode(value: Any) -> Value:
    if isinstance(value, dict):
        [(kind, parts)] = value.items()
        return Fraction(*parts) if kind == "fraction" else tuple(map(_decode, parts))
    return value


class TableFunction:
    """A function or predicate that is known for some values.

    Elsewhere it returns `default`, and adds the failure of the learner's function, if any, to `failures`.
    """

    def __init__(self, node: Mapping[str, Any], failures: list[str], default: Value = None) -> None:
        self.table = {_decode(row): _decode(value) for row, value in node["table"]}
        self.failed = {_decode(row): words for row, words in node["failed"]}
        self._failures, self._default = failures, default

    def __call__(self, *row: Value) -> Value:
        """Return the value in the table."""
        if row in self.failed:
            self._failures.append(self.failed[row])
        return self.table.get(row, self._default)


@dataclass(frozen=True, kw_only=True)
class WrittenProgram:
    """A learner's program that consists of tables."""

    named: dict[str, Part]
    """Expressions and selectors by the learner's names, and "selector in line 7" for others."""
    lines: dict[Any, int]
    """Line of each expression and selector, 0 if it is unknown, each after its parts."""
    relations: dict[Condition, str]
    """The comparison of each condition that is one of `RELATIONS`."""
    answer_kind: str
    """Type of the name `answer`, "missing" or "unwritten"."""
    nothing: list[str] = field(default_factory=list)
    """Names with the value None."""
    failures: list[str] = field(default_factory=list)
    """Failures of the learner's functions since this list was cleared."""

    @property
    def answer(self) -> Expression:
        """The expression of the answer. Raises `InputError` if there is none."""
        answer = self.named.get("answer")
        if isinstance(answer, Expression):
            return answer
        if self.answer_kind == "unwritten":
            raise InputError("nothing is written yet: replace the ... in `answer = ...`")
        if self.answer_kind == "missing":
            raise InputError(
                "the name `answer` is missing: assign your expression to it, as in `answer = tokens`"
            )
        if isinstance(answer, Selector):
            raise InputError("`answer` is a selector, which has no values: use aggregate(...) or width(...)")
        raise InputError(f"`answer` is of type {self.answer_kind}: it must be an expression, such as tokens")

    @property
    def selectors(self) -> dict[str, Selector]:
        """The selectors by name."""
        return {name: part for name, part in self.named.items() if isinstance(part, Selector)}


def read_program(data: Mapping[str, Any]) -> WrittenProgram:
    """Return the program that `describe_program` has described."""
    failures, lines, relations = list[str](), dict[Any, int](), dict[Condition, str]()
    expressions = list[Expression]()
    selectors: list[Selector] = []

    def read_selector(node: Mapping[str, Any]) -> Selector:
        conditions = []
        for pair in node["conditions"]:
            predicate: Any = TableFunction(pair, failures, False)
            condition = Condition(expressions[pair["keys"]], expressions[pair["queries"]], predicate)
            if pair["relation"] is not None:
                relations[condition] = pair["relation"]
            conditions.append(condition)
        return Selector("input", "input", tuple(conditions))

    def selector_of(node: Mapping[str, Any]) -> Selector:
        """Return the selector of an expression. The expressions that it reads come before this one."""
        while len(selectors) <= node["selector"]:
            selectors.append(read_selector(data["selectors"][len(selectors)]))
            lines[selectors[-1]] = data["selectors"][len(selectors) - 1]["line"]
        return selectors[int(node["selector"])]

    for node in data["expressions"]:
        parts = [expressions[number] for number in node.get("parts", ())]
        expressions.append(_read_expression(node, parts, selector_of, failures))
        lines[expressions[-1]] = node["line"]
    for number in range(len(data["selectors"])):
        selector_of({"selector": number})
    groups: dict[str, Sequence[Part]] = {"selector": selectors, "expression": expressions}
    named: dict[str, Part] = {
        name: groups[kind][number] for name, kind, number in data["names"] if kind in groups
    }
    nothing = [name for name, kind, _ in data["names"] if kind == "nothing"]
    for selector in selectors:
        if selector not in named.values():
            name = f"selector in line {lines[selector]}"
            same = sum(other.partition(" (")[0] == name for other in named)
            named[f"{name} ({same + 1})" if same else name] = selector
    return WrittenProgram(
        named=named,
        lines=lines,
        relations=relations,
        answer_kind=data["answer"],
        nothing=nothing,
        failures=failures,
    )


def _read_expression(
    node: Mapping[str, Any],
    parts: list[Expression],
    selector_of: Callable[[Mapping[str, Any]], Selector],
    failures: list[str],
) -> Expression:
    kind = node["kind"]
    if kind == "tokens":
        return tokens
    if kind == "indices":
        return indices
    if kind == "constant":
        return Constant("input", _decode(node["value"]))
    if kind == "otherwise":
        return Otherwise("input", parts[0], _decode(node["value"]))
    if kind == "elementwise":
        return Elementwise("input", TableFunction(node, failures), tuple(parts))
    if kind == "aggregate":
        return Aggregate("input", selector_of(node), parts[0])
    return Average("input", selector_of(node), parts[0] if parts else None)
