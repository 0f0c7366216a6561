"""Repairs: single changes to a wrong program that make it right for all inputs.

Each part of the program is changed in all the ways in which a step is usually wrong. If a changed program is
right, the learner's program is a right solution with one mistake, and the line of the mistake is known.
"""

import contextlib
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple, cast

from regard.errors import InputError
from regard_course.program_tables import RELATIONS, Part, TableFunction, WrittenProgram
from regard_course.puzzles.puzzle import BLANK, NO_VALUE, Puzzle, show_answer
from regard_lab.programs.language import (
    Aggregate,
    Attended,
    Average,
    Condition,
    Constant,
    Elementwise,
    Expression,
    Otherwise,
    Selector,
    aggregate,
    constant,
    elementwise,
    indices,
    select,
    tokens,
    width,
)

STRICT = {"<": "≤", "≤": "<", ">": "≥", "≥": ">"}
SWAPPED = {"<": ">", ">": "<", "≤": "≥", "≥": "≤"}
ORDERS = ("<", "≤", "≠", ">", "≥")
"""Comparisons of positions that a selector may lack."""
SIDES = {0: "the step itself", 1: "later steps (the future)", -1: "earlier steps"}
SAMPLE = 30
"""Number of inputs on which the words about a repair are verified."""


class Repair(NamedTuple):
    """A change to one part of a program."""

    line: int
    words: str
    """The mistake."""
    instead: str
    part: Any
    """The expression, condition or selector that is changed."""
    new: Any


def find_repairs(puzzle: Puzzle, program: WrittenProgram, answers: Mapping[str, list[str]]) -> list[Repair]:
    """Return the repairs after which the program gives the right answers for all inputs.

    `answers`: of the program, by input.
    """
    wrong = [text for text in puzzle.inputs if answers[text] != puzzle.expected[text]]
    # Most repairs fail on an input that is wrong already, or on a long one.
    texts = list(dict.fromkeys([wrong[0], wrong[-1], puzzle.inputs[-1], *wrong, *puzzle.inputs]))
    return [
        repair
        for repair in _all_repairs(program, puzzle, answers)
        if _is_right(puzzle, _rebuild(program.answer, repair), texts)
    ]


def _is_right(puzzle: Puzzle, answer: Expression, texts: list[str]) -> bool:
    try:
        return all(
            [show_answer(value) for value in puzzle.evaluation(text).values(answer)] == puzzle.expected[text]
            for text in texts
        )
    except (InputError, TypeError, KeyError):
        return False


def _all_repairs(program: WrittenProgram, puzzle: Puzzle, answers: Mapping[str, list[str]]) -> Iterator[Repair]:
    """Return all changes of one part, the likeliest first: of conditions, selectors, and expressions."""
    answer = program.answer
    parts = [part for part in program.lines if part in _reachable(answer)]
    selectors = [part for part in parts if isinstance(part, Selector)]
    lines = {condition: program.lines[selector] for selector in selectors for condition in selector.conditions}
    blank = Otherwise("input", answer, BLANK)
    empty = {step for values in answers.values() for step, value in enumerate(values) if value == NO_VALUE}
    reason = ": no step comes before the first one" if empty == {0} else ""
    yield Repair(
        program.lines[answer],
        f"A step has no value, because nothing is selected for it{reason}.",
        f'Give such steps a value: .otherwise("{BLANK}").',
        answer,
        blank,
    )
    for keys, queries in ((indices, answer), (answer, indices)):
        yield Repair(
            program.lines[answer],
            "The answer is a place: the letter there is not read yet.",
            "Select the step at this place, and aggregate its letter.",
            answer,
            aggregate(select(keys, queries), tokens),
        )
    for condition, line in lines.items():
        for words, instead, new in _change_condition(condition, puzzle):
            yield Repair(line, words, instead, condition, new)
    for selector in selectors:
        for words, instead, new in _change_selector(selector, puzzle):
            yield Repair(program.lines[selector], words, instead, selector, new)
    for part in parts:
        if isinstance(part, Expression) and part not in (tokens, indices):
            for words, instead, new in _change_expression(part):
                yield Repair(program.lines[part], words, instead, part, new)


Change = tuple[str, str, Any]


def _change_condition(condition: Condition, puzzle: Puzzle) -> Iterator[Change]:
    keys, queries, predicate = condition.keys, condition.queries, condition.predicate
    relation: str | None = cast(TableFunction, predicate).relation
    if relation in STRICT:
        new = STRICT[relation]
        strict = "strict: equal values are left out" if relation in "<>" else "not strict: equal values count too"
        yield (
            f"The comparison key {relation} query is {strict}.",
            f"Compare with key {new} query.",
            replace(condition, predicate=RELATIONS[new]),
        )
        for new in (SWAPPED[relation], STRICT[SWAPPED[relation]]):
            words = f"Keys and queries are swapped in the comparison key {relation} query."
            yield words, f"Compare with key {new} query.", replace(condition, predicate=RELATIONS[new])
    if relation in ("=", "≠"):
        new = "≠" if relation == "=" else "="
        words = f"The comparison key {relation} query is the opposite of what is needed."
        yield words, f"Compare with key {new} query.", replace(condition, predicate=RELATIONS[new])
    words = "Keys and queries are swapped: select(keys, queries) has the steps to be selected first."
    yield words, "Exchange the first two arguments.", Condition(queries, keys, predicate)
    for shift in (1, -1):
        words = "The positions that are compared are off by one."
        moved = replace(condition, queries=queries.map(partial(_shift, shift)))
        yield words, f"Compare with the query {'plus' if shift > 0 else 'minus'} 1.", moved
    if relation is None:
        words = "Keys and queries are swapped in the comparison: its function has the key first, then the query."
        swapped = replace(condition, predicate=lambda key, query: predicate(query, key))
        yield words, "Exchange the parameters of the function.", swapped
    elif keys is tokens and (queries is tokens or isinstance(queries, Constant)):
        yield from _change_letters(condition, RELATIONS[relation], puzzle.alphabet)
    if relation is not None and keys in (tokens, indices):
        other, kind, pair = (
            (indices, int, "letters are compared with indices")
            if keys is tokens
            else (tokens, str, "indices are compared with letters")
        )
        if _kinds(queries, puzzle) == {kind}:
            words = f"Values of two kinds, which are never equal: {pair}."
            yield words, "Use keys of the other kind.", Condition(other, queries, RELATIONS[relation])


def _sample(puzzle: Puzzle) -> Sequence[str]:
    return [*puzzle.inputs[: SAMPLE // 2], *puzzle.inputs[-SAMPLE // 2 :]]


def _kinds(expression: Expression, puzzle: Puzzle) -> set[type]:
    with contextlib.suppress(InputError, TypeError, KeyError):
        values = [value for text in _sample(puzzle) for value in puzzle.evaluation(text).values(expression)]
        return {type(value) for value in values if value is not None}
    return set()


def _selected_too(selector: Selector, relation: str, puzzle: Puzzle) -> str:
    """Return which steps a selector selects that do not have a relation to the query."""
    with contextlib.suppress(InputError, TypeError, KeyError):
        sides = {
            (key > query) - (key < query)
            for text in _sample(puzzle)
            for query, keys in enumerate(puzzle.evaluation(text).selected(selector))
            for key in keys
            if not RELATIONS[relation](key, query)
        }
        return " and ".join(words for side, words in SIDES.items() if side in sides)
    return ""


def _change_letters(
    condition: Condition, relation: Callable[[Any, Any], bool], alphabet: str
) -> Iterator[Change]:
    """Return the changes of the letter that a condition asks for."""
    queries = condition.queries
    letter = f"the letter {queries.value!r}" if isinstance(queries, Constant) else "its own letter"
    for value in alphabet:
        words = f"Each step asks for {letter}, but it must ask for {value!r}."
        changed = replace(condition, queries=constant(value), predicate=relation)
        yield words, f"Use constant({value!r}) as queries.", changed
    words = f"Each step asks for {letter}, but it must ask for its own letter."
    yield words, "Use tokens as queries.", replace(condition, queries=tokens, predicate=relation)


def _change_selector(selector: Selector, puzzle: Puzzle) -> Iterator[Change]:
    for index in range(len(selector.conditions) if len(selector.conditions) > 1 else 0):
        rest = selector.conditions[:index] + selector.conditions[index + 1 :]
        words = "One condition is too many: steps are left out that are needed."
        yield words, "Leave it out.", replace(selector, conditions=rest)
    for relation in ORDERS:
        steps = _selected_too(selector, relation, puzzle)
        if not steps:
            continue
        both = selector & select(indices, indices, RELATIONS[relation])
        instead = f"Add the condition key {relation} query for the positions: & select(indices, indices, ...)."
        yield f"The selector selects {steps} too.", instead, both
    words = "The selector does not compare the letters."
    yield words, "Add & select(tokens, tokens).", selector & select(tokens, tokens)


def _change_expression(part: Expression) -> Iterator[Change]:
    counted = isinstance(part, Average) and part.numbers is None
    for shift in (-1, 1):
        side = "too large" if shift < 0 else "too small"
        itself = " Does the step count itself?" if counted and shift < 0 else ""
        moved = part.map(partial(_shift, shift))
        yield f"The number is one {side}: off by one.{itself}", f"{'Subtract' if shift < 0 else 'Add'} 1.", moved
    negated = part.map(lambda value: not value if isinstance(value, bool) else None)
    yield "True and False are exchanged: the answer is the opposite.", "Exchange them.", negated
    if isinstance(part, Otherwise) and part.value != BLANK:
        words = f"Steps without a value get the value {part.value!r}."
        yield words, f'Give them the value "{BLANK}".', replace(part, value=BLANK)
    if isinstance(part, Average) and part.numbers is not None:
        total = elementwise(operator.mul, part, width(part.selector))
        words = "The result is a mean, where the number of steps is needed."
        yield words, "Count with width(selector).", total
    if isinstance(part, Elementwise) and len(part.arguments) == 2:
        exchanged = Elementwise(part.side, part.function, part.arguments[::-1])
        yield "The two values are in the wrong order.", "Exchange the arguments.", exchanged
    if isinstance(part, Elementwise) and len(part.arguments) == 1 and isinstance(part.function, TableFunction):
        values = {type(value) for value in part.function.table.values()}
        for sign, limit in product(RELATIONS if values == {bool} else (), range(3)):
            condition = part.arguments[0].map(partial(_compare, RELATIONS[sign], limit))
            yield "The condition on the number is wrong.", f"The number must be {sign} {limit}.", condition
    if isinstance(part, Aggregate) and part.values in (tokens, indices):
        read, other = ("letter", indices) if part.values is tokens else ("position", tokens)
        words = f"The {read} of the selected step is read, but its {'position' if other is indices else 'letter'}"
        values_instead = replace(part, values=other)
        yield f"{words} is needed.", "Aggregate the other one: tokens or indices.", values_instead
    if isinstance(part, Aggregate):
        for shift, where in ((1, "after"), (-1, "before")):
            place = aggregate(part.selector, indices).map(partial(_shift, shift))
            near = aggregate(select(indices, place), part.values)
            words = f"The value of the selected step is read, not that of the step {where} it: off by one."
            yield words, f"Read the step {where} the selected one.", near


def _compare(relation: Callable[[Any, Any], bool], limit: int, value: Any) -> Any:
    return relation(value, limit) if type(value) is int else None


def _shift(by: int, value: Any) -> Any:
    return value + by if type(value) is int else None


def _reachable(answer: Expression) -> set[Any]:
    """Return all expressions and selectors that an answer is computed from."""
    reached, pending = set[Any](), [answer]
    while pending:
        part = pending.pop()
        if part not in reached:
            reached.add(part)
            reached |= {part.selector} if isinstance(part, Attended) else set()
            pending += part.parts
    return reached


def _rebuild(answer: Expression, repair: Repair) -> Expression:
    """Return an answer with one part exchanged."""
    done: dict[Any, Any] = {repair.part: repair.new}

    def visit(part: Any) -> Any:
        if part not in done:
            done[part] = _with_parts(part, visit)
        return done[part]

    changed: Expression = visit(answer)
    return changed


def _with_parts(part: Any, visit: Callable[[Any], Any]) -> Any:
    """Return a copy of a part whose own parts are visited."""

    def copy(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(copy, value))
        return visit(value) if isinstance(value, Part) else value

    if part in (tokens, indices):
        return part
    return replace(part, **{item.name: copy(getattr(part, item.name)) for item in fields(part)})
