"""A learner's program as tables: each of its functions is finite on texts over an alphabet. `describe_program` computes
them in the learner's process, and `read_program` makes expressions of them in the one that checks the program."""

import operator
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from fractions import Fraction
from itertools import product
from typing import Any

from regard.errors import InputError, shorten
from regard_lab.programs.language import (
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

Part = Expression | Selector | Condition
KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (Aggregate, Average, Condition, Constant, Elementwise, Indices, Otherwise, Selector, Tokens)
}
PLAIN = (type(None), bool, int, float, str, tuple, list)
"""Types of values that a learner may assign by mistake in place of an expression or a selector."""
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


def describe_program(names: Mapping[str, Any], alphabet: str, longest: int, lines: dict[int, int]) -> dict[str, Any]:
    """Return the expressions and selectors of a module for JSON. Raises `InputError` for unsuitable values."""
    description = _Description(alphabet, longest, lines)
    named: list[tuple[str, int | str]] = []
    for name, value in names.items():
        if isinstance(value, Expression | Selector) and (id(value) in lines or name == "answer"):
            named.append((name, description.add(value)))  # others are imported
        elif type(value) in PLAIN and not name.startswith("_"):
            named.append((name, type(value).__name__))
    answer = names.get("answer", names)
    kind = "missing" if answer is names else "unwritten" if answer is ... else type(answer).__name__
    return {"parts": description.parts, "names": named, "answer": kind}


class _Description:
    """The expressions, selectors and conditions of a program, each after its own parts."""

    def __init__(self, alphabet: str, longest: int, lines: Mapping[int, int]) -> None:
        self.alphabet, self.longest, self.lines = alphabet, longest, lines
        self.parts: list[dict[str, Any]] = []
        self._numbers: dict[Part, int] = {}
        self._values: dict[Expression, list[Value]] = {}
        self._results: dict[Part, dict[tuple[Value, ...], Value]] = {}

    def add(self, part: Part, line: int = 0) -> int:
        """Return the number of a part in the list. `line`: that of a condition's selector."""
        if part not in self._numbers:
            line = self.lines.get(id(part), line)
            if "output" in (getattr(part, side, "") for side in ("side", "key_side", "query_side")):
                place = f"line {line}: " if line else ""
                raise InputError(f"{place}`steps` and `written` do not belong to a puzzle: use `indices`")
            content = {item.name: getattr(part, item.name) for item in fields(part)}
            node = {
                name: self._tabulate(part, value, line) if callable(value) else self._encode(value, line)
                for name, value in content.items()
            }
            if isinstance(part, Expression):
                values = self._possible_values(part, line)
                self._values[part] = list(dict.fromkeys(value for value in values if value is not None))
                if len(self._values[part]) > MAX_VALUES:
                    words = f"an expression has more than {MAX_VALUES} possible values: use fewer"
                    raise InputError(f"line {line}: {words}")
            self.parts.append({"kind": type(part).__name__, "line": line, "content": node})
            self._numbers[part] = len(self.parts) - 1
        return self._numbers[part]

    def _possible_values(self, part: Expression, line: int) -> list[Value]:
        if isinstance(part, Tokens):
            return list(self.alphabet)
        if isinstance(part, Indices):
            return list(range(self.longest))
        if isinstance(part, Constant):
            return [part.value]
        if isinstance(part, Otherwise):
            return [*self._values[part.argument], part.value]
        if isinstance(part, Elementwise):
            rows = product(*(self._values[argument] for argument in part.arguments))
            return [self._results[part].get(row) for row in rows]
        if isinstance(part, Aggregate):
            return self._values[part.values]
        assert isinstance(part, Average)
        if part.numbers is None:
            return list(range(self.longest + 1))
        numbers = self._values[part.numbers]
        if wrong := [number for number in numbers if not isinstance(number, int)]:
            raise InputError(f"line {line}: average needs whole numbers, not {wrong[0]!r}")
        least, most = min([0, *numbers]), max([0, *numbers])
        sums = {n: range(least * n, most * n + 1) for n in range(1, self.longest + 1)}
        return sorted({Fraction(total, n) for n, totals in sums.items() for total in totals})

    def _tabulate(self, part: Any, function: Callable[..., Any], line: int) -> dict[str, Any]:
        """Return the function of an elementwise expression, or the predicate of a condition, as a table."""
        predicate = isinstance(part, Condition)
        arguments = (part.keys, part.queries) if predicate else part.arguments
        for argument in arguments:
            self.add(argument, line)
        results, failed = dict[tuple[Value, ...], Value](), []
        domains = self._widened([self._values[argument] for argument in arguments])
        for row in product(*domains):
            try:
                results[row] = bool(function(*row)) if predicate else function(*row)
            except Exception as error:
                first = getattr(getattr(function, "__code__", None), "co_firstlineno", 0)
                words = f"the function fails for ({', '.join(map(repr, row))}): {type(error).__name__}: {error}"
                place = f"line {first}: " if first else ""
                failed.append((self._encode(row, line), place + " ".join(words.split())[:200]))
        self._results[part] = results
        table = [(self._encode(row, line), self._encode(value, line)) for row, value in results.items()]
        relation = _find_relation(function, domains, results) if predicate else None
        return {"function": {"table": table, "failed": failed, "relation": relation}}

    def _widened(self, values: list[list[Value]]) -> list[list[Value]]:
        """Return the values for a table: with the numbers beside whole numbers, and the values of both arguments
        if both are of one type. A repaired program needs them."""
        wide = [list(dict.fromkeys([*own, *(v + d for v in own for d in (-1, 1) if type(v) is int)])) for own in values]
        together = list(dict.fromkeys(value for own in wide for value in own))
        return [together] * len(wide) if len(set(map(type, together))) == 1 else wide

    def _encode(self, value: Any, line: int) -> Any:
        """Return a part or a value for JSON. A dictionary has one key, the kind of the value."""
        if isinstance(value, Part):
            return {"part": self.add(value, line)}
        if isinstance(value, tuple):
            return {"tuple": [self._encode(item, line) for item in value]}
        if isinstance(value, Fraction):
            return {"fraction": [value.numerator, value.denominator]}
        is_number = type(value) in (bool, int) or (isinstance(value, float) and value - value == 0)
        if value is None or is_number or (type(value) is str and len(value) <= MAX_TEXT):
            return value
        shown = shorten(str(value))
        raise InputError(f"line {line}: {shown} is not a suitable value: use a number, a text, True, False or None")


def _find_relation(function: Any, domains: list[list[Value]], results: Mapping[tuple[Value, ...], Value]) -> str | None:
    """Return the sign of the comparison that a predicate is, or that is true for the same pairs."""
    for sign in sorted(RELATIONS, key=lambda sign: RELATIONS[sign] is not function):
        relation = RELATIONS[sign]
        with suppress(TypeError):
            same = any(results.values()) and {row: relation(*row) for row in product(*domains)} == results
            if function is relation or same:
                return sign
    return None


@dataclass(frozen=True, eq=False)
class TableFunction:
    """A function or predicate that is known for some values, else None with the learner's error in `failures`."""

    table: dict[Value, Value]
    failed: dict[Value, str]
    failures: list[str]
    relation: str | None
    """The comparison of `RELATIONS` that a predicate is."""

    def __call__(self, *row: Value) -> Value:
        if row in self.failed:
            self.failures.append(self.failed[row])
        return self.table.get(row)


@dataclass(frozen=True, kw_only=True)
class WrittenProgram:
    """A learner's program that consists of tables."""

    named: dict[str, Expression | Selector]
    """Expressions and selectors by the learner's names, and "selector in line 7" for others."""
    lines: dict[Any, int]
    """Line of each expression and selector, 0 if it is unknown, each after its parts."""
    answer_kind: str
    """Type of the name `answer`, "missing" or "unwritten"."""
    others: dict[str, str] = field(default_factory=dict)
    """Types of other values, by name: "NoneType" for None."""
    failures: list[str] = field(default_factory=list)
    """Failures of the learner's functions since this list was cleared."""

    @property
    def answer(self) -> Expression:
        """The expression of the answer. Raises `InputError` if there is none."""
        answer = self.named.get("answer")
        if isinstance(answer, Expression):
            return answer
        words = {
            "unwritten": "nothing is written yet: replace the ... in `answer = ...`",
            "missing": "the name `answer` is missing: assign your expression to it, as in `answer = tokens`",
            "Selector": "`answer` is a selector, which has no values: use aggregate(...) or width(...)",
        }
        other = f"`answer` is of type {self.answer_kind}: it must be an expression, such as tokens"
        raise InputError(words.get(self.answer_kind, other))

    @property
    def selectors(self) -> dict[str, Selector]:
        return {name: part for name, part in self.named.items() if isinstance(part, Selector)}


def read_program(data: Mapping[str, Any]) -> WrittenProgram:
    """Return the program that `describe_program` has described."""
    parts, failures = list[Any](), list[str]()

    def decode(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        [(kind, content)] = value.items()
        if kind == "part":
            return parts[content]
        if kind == "tuple":
            return tuple(map(decode, content))
        if kind == "fraction":
            return Fraction(*content)
        table = {decode(row): decode(result) for row, result in content["table"]}
        failed = {decode(row): words for row, words in content["failed"]}
        return TableFunction(table, failed, failures, content["relation"])

    lines: dict[Any, int] = {}
    for node in data["parts"]:
        kind, content = node["kind"], {name: decode(value) for name, value in node["content"].items()}
        known = {"Tokens": tokens, "Indices": indices}.get(kind)
        parts.append(known or KINDS[kind](**content))
        if not isinstance(parts[-1], Condition):
            lines[parts[-1]] = node["line"]
    named: dict[str, Any] = {name: parts[number] for name, number in data["names"] if isinstance(number, int)}
    for selector, line in lines.items():
        if isinstance(selector, Selector) and selector not in named.values():
            name = f"selector in line {line}"
            same = sum(other.partition(" (")[0] == name for other in named)
            named[f"{name} ({same + 1})" if same else name] = selector
    others = {name: kind for name, kind in data["names"] if isinstance(kind, str)}
    return WrittenProgram(named=named, lines=lines, answer_kind=data["answer"], others=others, failures=failures)
