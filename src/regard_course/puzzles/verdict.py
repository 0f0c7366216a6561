"""Check a learner's program for a puzzle on all inputs, and name the mistake in a wrong one."""

import contextlib
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple, cast

from regard.errors import InputError
from regard.result import Result
from regard_course.inputs import MESSAGES
from regard_course.program_tables import RELATIONS, Part, TableFunction, WrittenProgram, read_program
from regard_course.puzzles.puzzle import BLANK, NO_VALUE, PUZZLES, TEXTS, Puzzle, each_step, show_answer
from regard_course.sandbox import NO_EXERCISE, Assignment, ForkServer, run_file
from regard_lab.programs.language import (
    Aggregate,
    Attended,
    Average,
    Condition,
    Constant,
    Elementwise,
    Evaluation,
    Expression,
    Otherwise,
    Selector,
    Value,
    aggregate,
    constant,
    elementwise,
    indices,
    select,
    tokens,
    width,
)

# Wrong ideas: how their answers are compared with those of a learner.


class WrongIdea(NamedTuple):
    """A mistake, and the answers that it gives."""

    words: str
    instead: str
    solve: Callable[[str], Sequence[Value]]

    def explains(self, puzzle: Puzzle, answers: Mapping[str, Sequence[str]]) -> bool:
        """Return whether the idea gives the same answers, and is wrong. No value and the blank count as the same."""
        inputs = puzzle.inputs
        given = {text: _plain(map(show_answer, self.solve(text))) for text in inputs}
        return all(given[text] == _plain(answers[text]) for text in inputs) and any(
            given[text] != _plain(puzzle.expected[text]) for text in inputs
        )


def _plain(answers: Iterable[str]) -> list[str]:
    return [BLANK if answer == NO_VALUE else answer for answer in answers]


IDEAS: dict[str, list[WrongIdea]] = {
    group: [WrongIdea(idea["words"], idea["instead"], each_step(idea["answer"])) for idea in ideas.values()]
    for group, ideas in TEXTS["ideas"].items()
}
"""Wrong ideas by name of the puzzle; "general": for every puzzle; "last": without another explanation."""


def other_puzzles(puzzle: Puzzle) -> list[WrongIdea]:
    """Return the tasks of the other puzzles as wrong ideas."""
    return [
        WrongIdea(f"This program solves another puzzle: {other.name}.", "Read the task again.", other.solve)
        for other in PUZZLES.values()
        if other is not puzzle and other.alphabet == puzzle.alphabet
    ]


# Repairs: single changes to a wrong program that make it right for all inputs. Each part of the program is
# changed in all the ways in which a step is usually wrong. If a changed program is right, the learner wrote a
# right solution with one mistake, and the line of the mistake is known.

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
    """Return the repairs after which the program is right for all inputs. `answers`: of the program, by input."""
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
    lines = {**program.lines, **{each: program.lines[part] for part in selectors for each in part.conditions}}
    empty = {step for values in answers.values() for step, value in enumerate(values) if value == NO_VALUE}
    reason = ": no step comes before the first one" if empty == {0} else ""
    changes: list[tuple[Any, Iterable[Change]]] = [
        (answer, [("no_value", {"reason": reason}, Otherwise("input", answer, BLANK))]),
        (answer, [("place", {}, aggregate(select(indices, answer), tokens))]),
        (answer, [("place", {}, aggregate(select(answer, indices), tokens))]),
        *((each, _change_condition(each, puzzle)) for each in lines if isinstance(each, Condition)),
        *((part, _change_selector(part, puzzle)) for part in selectors),
    ]
    expressions = [part for part in parts if isinstance(part, Expression) and part not in (tokens, indices)]
    changes += [(part, _change_expression(part)) for part in expressions]
    for part, changed in changes:
        for name, values, new in changed:
            words, instead = (text.format(**values) for text in TEXTS["repairs"][name])
            yield Repair(lines[part], words, instead, part, new)


Change = tuple[str, dict[str, Any], Any]
"""Name of the repair in `puzzles.toml`, the values in its texts, and the changed part."""


def _change_condition(condition: Condition, puzzle: Puzzle) -> Iterator[Change]:
    keys, queries, predicate = condition.keys, condition.queries, condition.predicate
    relation: str | None = cast(TableFunction, predicate).relation
    relations: list[tuple[str, str]] = []
    if relation in STRICT:
        swapped = SWAPPED[relation]
        relations = [("strict" if relation in "<>" else "not_strict", STRICT[relation])]
        relations += [("swapped_order", swapped), ("swapped_order", STRICT[swapped])]
    elif relation in ("=", "≠"):
        relations = [("opposite", "≠" if relation == "=" else "=")]
    for name, new in relations:
        yield name, {"old": relation, "new": new}, replace(condition, predicate=RELATIONS[new])
    yield "swapped", {}, Condition(queries, keys, predicate)
    for shift, sign in ((1, "plus"), (-1, "minus")):
        yield "shifted", {"sign": sign}, replace(condition, queries=queries.map(partial(_shift, shift)))
    if relation is None:
        yield "swapped_function", {}, replace(condition, predicate=lambda key, query: predicate(query, key))
    elif keys is tokens and (queries is tokens or isinstance(queries, Constant)):
        letter = f"the letter {queries.value!r}" if isinstance(queries, Constant) else "its own letter"
        for value in puzzle.alphabet:
            asked = replace(condition, queries=constant(value), predicate=RELATIONS[relation])
            yield "other_letter", {"letter": letter, "value": value}, asked
        own = replace(condition, queries=tokens, predicate=RELATIONS[relation])
        yield "own_letter", {"letter": letter}, own
    if relation is not None and keys in (tokens, indices):
        letters = keys is tokens
        if _kinds(queries, puzzle) == {int if letters else str}:
            pair = "letters are compared with indices" if letters else "indices are compared with letters"
            yield "two_kinds", {"pair": pair}, Condition(indices if letters else tokens, queries, RELATIONS[relation])


def _sample(puzzle: Puzzle) -> Iterator[Evaluation]:
    return map(puzzle.evaluation, [*puzzle.inputs[: SAMPLE // 2], *puzzle.inputs[-SAMPLE // 2 :]])


def _kinds(expression: Expression, puzzle: Puzzle) -> set[type]:
    with contextlib.suppress(InputError, TypeError, KeyError):
        return {type(value) for text in _sample(puzzle) for value in text.values(expression) if value is not None}
    return set()


def _change_selector(selector: Selector, puzzle: Puzzle) -> Iterator[Change]:
    for index in range(len(selector.conditions) if len(selector.conditions) > 1 else 0):
        rest = selector.conditions[:index] + selector.conditions[index + 1 :]
        yield "condition", {}, replace(selector, conditions=rest)
    places: set[tuple[int, int]] = set()
    with contextlib.suppress(InputError, TypeError, KeyError):
        rows = [row for text in _sample(puzzle) for row in enumerate(text.selected(selector))]
        places = {(key, query) for query, keys in rows for key in keys}
    for relation in ORDERS:
        sides = {(key > query) - (key < query) for key, query in places if not RELATIONS[relation](key, query)}
        if sides:
            steps = " and ".join(words for side, words in SIDES.items() if side in sides)
            both = selector & select(indices, indices, RELATIONS[relation])
            yield "selected_too", {"steps": steps, "relation": relation}, both
    yield "letters", {}, selector & select(tokens, tokens)


def _change_expression(part: Expression) -> Iterator[Change]:
    counted = isinstance(part, Average) and part.numbers is None
    itself = " Does the step count itself?" if counted else ""
    yield "too_large", {"itself": itself}, part.map(partial(_shift, -1))
    yield "too_small", {}, part.map(partial(_shift, 1))
    yield "negated", {}, part.map(lambda value: not value if isinstance(value, bool) else None)
    if isinstance(part, Otherwise) and part.value != BLANK:
        yield "otherwise", {"value": part.value}, replace(part, value=BLANK)
    if isinstance(part, Average) and part.numbers is not None:
        yield "mean", {}, elementwise(operator.mul, part, width(part.selector))
    if isinstance(part, Elementwise) and len(part.arguments) == 2:
        yield "arguments", {}, Elementwise(part.side, part.function, part.arguments[::-1])
    if isinstance(part, Elementwise) and len(part.arguments) == 1 and isinstance(part.function, TableFunction):
        values = {type(value) for value in part.function.table.values()}
        for sign, limit in product(RELATIONS if values == {bool} else (), range(3)):
            condition = part.arguments[0].map(
                partial(
                    lambda relation, limit, value: relation(value, limit) if type(value) is int else None,
                    RELATIONS[sign],
                    limit,
                )
            )
            yield "limit", {"sign": sign, "limit": limit}, condition
    if isinstance(part, Aggregate) and part.values in (tokens, indices):
        read, needed = ("letter", "position") if part.values is tokens else ("position", "letter")
        other = replace(part, values=indices if part.values is tokens else tokens)
        yield "read", {"read": read, "other": needed}, other
    if isinstance(part, Aggregate):
        for shift, where in ((1, "after"), (-1, "before")):
            place = aggregate(part.selector, indices).map(partial(_shift, shift))
            yield "near", {"where": where}, aggregate(select(indices, place), part.values)


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
    done: dict[Any, Any] = {tokens: tokens, indices: indices, repair.part: repair.new}

    def copy(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(copy, value))
        if not isinstance(value, Part):
            return value
        if value not in done:
            done[value] = replace(value, **{item.name: copy(getattr(value, item.name)) for item in fields(value)})
        return done[value]

    changed: Expression = copy(answer)
    return changed


# The check.

SECONDS = 5.0
"""Limit of processor time for a learner's file."""
MOST_SHOWN = 2
"""Largest number of mistakes that a report shows, each of which explains all answers."""
ADVICE = ": Python's operators do not apply to expressions, use .map(lambda ...) or elementwise"
OPERATORS = re.compile(
    "unsupported operand|bad operand|not subscriptable|has no len|not iterable|not supported between"
)


@dataclass(frozen=True, kw_only=True)
class NamedMistake:
    """A mistake that explains all answers."""

    words: str
    instead: str
    line: int = 0
    """Line of the mistake, 0 if it is unknown."""

    def __str__(self) -> str:
        return f"{f'Line {self.line}: ' if self.line else ''}{self.words}\n    {self.instead}"


@dataclass(frozen=True, kw_only=True, repr=False)
class PuzzleReport(Result):
    """Result of a check of a program."""

    puzzle: str
    inputs: int
    """Number of inputs of the puzzle."""
    correct: int
    """Number of inputs whose answers are all right."""
    text: str = ""
    """The smallest wrong input."""
    expected: list[str] = field(default_factory=list)
    given: list[str] = field(default_factory=list)
    """Answers for this input; empty if the program fails there."""
    trouble: str = ""
    """Reason why the program has no answer for this input."""
    mistakes: list[NamedMistake] = field(default_factory=list)

    @property
    def text_label(self) -> str:
        return "stops at the input" if self.trouble else "smallest wrong input"

    @property
    def right(self) -> bool:
        return self.correct == self.inputs

    def summary(self) -> str:
        return f"{self.puzzle}: {self.correct} of {self.inputs} inputs right"

    def table(self) -> str:
        if self.right:
            return f"{self.puzzle}: right for all {self.inputs} inputs"
        unknown = "None of the known mistakes gives these answers: follow the smallest wrong input by hand."
        lines = [
            f"{self.text_label:<22} {' '.join(self.text)}",
            f"right answer           {' '.join(self.expected)}",
            f"your answer            {' '.join(self.given)}" if self.given else "",
            f"{NO_VALUE} stands for None: the step has no value" if NO_VALUE in self.given else "",
            self.trouble,
            *(f"→ {mistake}" for mistake in self.mistakes),
            *(() if self.mistakes else (unknown,)),
        ]
        begin = f"{self.puzzle}: wrong, {self.correct} of {self.inputs} inputs are right"
        return "\n  ".join([begin, *filter(None, lines)])

    __str__ = table


class AnswersError(InputError):
    """A program fails for a text."""


def load_program(path: Path, alphabet: str, longest: int, server: ForkServer) -> WrittenProgram:
    """Return the program in a learner's file, run in another process. Raises `InputError` with the wrong line."""
    if path.suffix != ".py" or not path.is_file():
        raise InputError(f"{str(path)!r} is not a Python file: give the path of your program, as in previous.py")
    result = run_file(path, Assignment(exercises=()), server, seconds=SECONDS, program=(alphabet, longest))
    if NO_EXERCISE in result.failures or result.program is None:
        words, lines = result.failures.get(NO_EXERCISE, ("was not read", []))
        if lines and not words.startswith("line "):
            words = f"{lines[-1].partition(', in ')[0]}: {words}"
        raise _with_place(path, words + (ADVICE if OPERATORS.search(words) else ""))
    try:
        return read_program(result.program)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise InputError(f"{path.name}: {MESSAGES['changed_answers']}") from error


def check_file(path: Path, puzzle: Puzzle, server: ForkServer) -> tuple[WrittenProgram, PuzzleReport]:
    """Check the program in a learner's file. Raises `InputError` as `load_program`, and for a missing answer."""
    program = load_program(path, puzzle.alphabet, puzzle.longest, server)
    try:
        return program, check_program(program, puzzle)
    except InputError as error:
        raise _with_place(path, str(error)) from None


def _with_place(path: Path, words: str) -> InputError:
    """Return an error with the name of the file, and with a line: by default that of the answer."""
    if words.startswith("line "):
        return InputError(f"{path.name}, {words}")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    line = next((number for number, text in enumerate(lines, 1) if re.match(r"answer\b", text)), 0)
    return InputError(f"{path.name}{f', line {line}' if line and '(line ' not in words else ''}: {words}")


def answers_of(program: WrittenProgram, answer: Expression, puzzle: Puzzle, text: str) -> list[str]:
    """Return the answers of a program for a text. Raises `AnswersError` with the line if it has none."""
    program.failures.clear()
    evaluation = puzzle.evaluation(text)
    try:
        answers = [show_answer(value) for value in evaluation.values(answer)]
    except (InputError, TypeError) as error:
        words = str(error).replace("aggregate selects steps", "aggregate selects several steps,")
        if isinstance(error, TypeError):
            words = "a mean needs a number at each selected step, but a step has no value: use .otherwise(0)"
        raise AnswersError(f"line {_failing_line(program, evaluation)}: {words}") from error
    if program.failures:
        raise AnswersError(program.failures[0])
    return answers


def _failing_line(program: WrittenProgram, evaluation: Any) -> int:
    """Return the line of the first expression that cannot be evaluated."""
    for part, line in program.lines.items():
        try:
            if isinstance(part, Expression):
                evaluation.values(part)
        except (InputError, TypeError):
            return line
    return 0


def check_program(program: WrittenProgram, puzzle: Puzzle) -> PuzzleReport:
    """Check a program on all inputs. Raises `InputError` if it has no answer expression."""
    answer = program.answer
    answers, trouble, failing = dict[str, list[str]](), "", ""
    for text in puzzle.inputs:
        try:
            answers[text] = answers_of(program, answer, puzzle, text)
        except AnswersError as error:
            trouble, failing = trouble or str(error), failing or text
    wrong = [text for text in puzzle.inputs if answers.get(text) != puzzle.expected[text]]
    total = len(puzzle.inputs)
    report = PuzzleReport(puzzle=puzzle.name, inputs=total, correct=total - len(wrong))
    if not wrong:
        return report
    text = failing or wrong[0]
    return replace(
        report,
        text=text,
        expected=puzzle.expected[text],
        given=answers.get(text, []),
        trouble=trouble,
        mistakes=_name_mistakes(program, puzzle, answers),
    )


def _name_mistakes(program: WrittenProgram, puzzle: Puzzle, answers: dict[str, list[str]]) -> list[NamedMistake]:
    """Return the mistakes that explain all answers: a wrong idea and repairs."""
    complete = {text: answers.get(text, []) for text in puzzle.inputs}

    def explain(*ideas: WrongIdea) -> list[NamedMistake]:
        found = (idea for idea in ideas if idea.explains(puzzle, complete))
        return [NamedMistake(words=idea.words, instead=idea.instead) for idea in islice(found, 1)]

    repairs: dict[str, NamedMistake] = {}
    for repair in find_repairs(puzzle, program, complete):
        named = NamedMistake(words=repair.words, instead=repair.instead, line=repair.line)
        repairs.setdefault(repair.words, named)
    known = explain(*IDEAS[puzzle.name], *IDEAS["general"], *other_puzzles(puzzle))
    return [*known, *repairs.values()][:MOST_SHOWN] or explain(*IDEAS["last"])
