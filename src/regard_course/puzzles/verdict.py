"""Check a learner's program for a puzzle on all inputs, and name the mistake in a wrong one."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import InputError
from regard.result import Result
from regard_course.program_tables import WrittenProgram, read_program
from regard_course.puzzles.puzzle import BLANK, NO_VALUE, PUZZLES, TEXTS, Puzzle, each_step, show_answer
from regard_course.puzzles.repairs import find_repairs
from regard_course.sandbox import CHANGED_ANSWERS, NO_EXERCISE, Assignment, ForkServer, run_file
from regard_lab.programs.language import Expression, Value

# Wrong ideas: how their answers are compared with those of a learner, and ideas that fit every puzzle.


class WrongIdea(NamedTuple):
    """A mistake, and the answers that it gives."""

    words: str
    instead: str
    solve: Callable[[str], Sequence[Value]]

    def explains(self, puzzle: Puzzle, answers: Mapping[str, Sequence[str]]) -> bool:
        """Return whether the idea gives the same answers for all inputs, and is wrong.

        A step without a value and a step with the blank count as the same: a wrong step often has neither.
        """
        inputs = puzzle.inputs
        given = {text: _plain(map(show_answer, self.solve(text))) for text in inputs}
        return all(given[text] == _plain(answers[text]) for text in inputs) and any(
            given[text] != _plain(puzzle.expected[text]) for text in inputs
        )


def _ideas(group: str, **solutions: Callable[[str], Sequence[Value]]) -> list[WrongIdea]:
    """Return wrong ideas with their texts in `puzzles.toml`."""
    return [WrongIdea(**TEXTS["ideas"][group][name], solve=solve) for name, solve in solutions.items()]


def letter_at(place: Callable[[str, int], int]) -> Callable[[str], list[Value]]:
    """Return the function that answers with the letter at a place, or without a value outside the text."""
    return each_step(lambda text, step: text[place(text, step)] if 0 <= place(text, step) < len(text) else None)


def letter_at_earlier(place: Callable[[str, int], int]) -> Callable[[str], list[Value]]:
    return each_step(lambda text, step: text[place(text, step)] if 0 <= place(text, step) <= step else None)


def general_ideas(puzzle: Puzzle) -> list[WrongIdea]:
    """Return the wrong ideas that fit every puzzle: other letters, and the tasks of other puzzles."""
    ideas = _ideas(
        "general",
        own_letter=list,
        letter_before=letter_at(lambda text, step: step - 1),
        letter_before_or_own=each_step(lambda text, step: text[max(step - 1, 0)]),
        letter_after=letter_at(lambda text, step: step + 1),
        last_letter=lambda text: text[-1] * len(text),
    )
    return ideas + [
        WrongIdea(f"This program solves another puzzle: {other.name}.", "Read the task again.", other.solve)
        for other in PUZZLES.values()
        if other is not puzzle and other.alphabet == puzzle.alphabet
    ]


def last_ideas(puzzle: Puzzle) -> list[WrongIdea]:
    """Return the wrong ideas that fit every puzzle and say little: for programs without another explanation."""
    return _ideas(
        "last",
        no_value=each_step(lambda text, step: None),
        reversed=lambda text: list(puzzle.solve(text))[::-1],
        too_late=lambda text: [None, *list(puzzle.solve(text))[:-1]],
        too_early=lambda text: [*list(puzzle.solve(text))[1:], None],
    )


def _plain(answers: Iterable[str]) -> list[str]:
    return [BLANK if answer == NO_VALUE else answer for answer in answers]


# The wrong ideas of each puzzle: mistakes, and the answers that they give.


def _placed(rank: Callable[[str, int], int]) -> Callable[[str], list[Value]]:
    """Return the function that moves each letter to its rank. Of several letters, the first is shown."""
    return lambda text: [
        next((text[key] for key in range(len(text)) if rank(text, key) == step), None)
        for step in range(len(text))
    ]


def _smaller(text: str, step: int) -> int:
    return sum(letter < text[step] for letter in text)


def _heights(text: str) -> list[int]:
    return list(accumulate(1 if sign == "(" else -1 for sign in text))


def _so_far(answer: Callable[[list[int]], Value]) -> Callable[[str], list[Value]]:
    return each_step(lambda text, step: answer(_heights(text)[: step + 1]))


def _before_match(text: str, step: int) -> Value:
    place = text.rfind(text[step], 0, step)
    return text[place - 1] if place > 0 else None


IDEAS: Mapping[str, Sequence[WrongIdea]] = {
    name: _ideas(name, **solutions)
    for name, solutions in {
        "first": {"second_letter": letter_at_earlier(lambda text, step: 1)},
        "previous": {"next_letter": each_step(lambda text, step: None)},
        "count": {
            "strict": each_step(lambda text, step: text[:step].count("a")),
            "every_letter": each_step(lambda text, step: step + 1),
            "own_step": each_step(lambda text, step: int(text[step] == "a")),
        },
        "repeated": {
            "counts_itself": each_step(lambda text, step: True),
            "later_steps": each_step(lambda text, step: text.count(text[step]) > 1),
            "previous_letter": each_step(lambda text, step: bool(step) and text[step] == text[step - 1]),
        },
        "histogram": {
            "steps_so_far": each_step(lambda text, step: text[: step + 1].count(text[step])),
            "not_itself": each_step(lambda text, step: text.count(text[step]) - 1),
        },
        "reverse": {
            "off_by_one": letter_at(lambda text, step: len(text) - step),
            "negative": letter_at(lambda text, step: step - len(text) + 1),
            "fixed_length": letter_at(lambda text, step: 4 - step),
            "from_the_end": each_step(lambda text, step: None),
        },
        "rotate": {
            "to_the_left": lambda text: text[1:] + text[0],
            "first_missing": letter_at(lambda text, step: step - 1),
            "two_steps": each_step(lambda text, step: text[(step - 2) % len(text)]),
        },
        "palindrome": {
            "own_pair": each_step(lambda text, step: text[step] == text[-1 - step]),
            "any_pair": lambda text: [any(a == b for a, b in zip(text, text[::-1], strict=True))] * len(text),
            "outer_pair": lambda text: [text[0] == text[-1]] * len(text),
        },
        "sort": {
            "equal_letters": _placed(_smaller),
            "last_of_equal": _placed(lambda text, step: sum(letter <= text[step] for letter in text) - 1),
            "largest_first": _placed(lambda text, step: sum(letter > text[step] for letter in text)),
            "not_strict": _placed(lambda text, step: sum(letter <= text[step] for letter in text)),
        },
        "balanced": {
            "order_ignored": _so_far(lambda heights: heights[-1] == 0),
            "still_open": _so_far(lambda heights: min(heights) >= 0),
            "strict": _so_far(lambda heights: heights[-1] == 0 and min(heights) > 0),
        },
        "year": {
            "month": letter_at(lambda text, step: step + 1 + text.index(".")),
            "fixed_position": letter_at(lambda text, step: step + 4),
            "own_steps": each_step(lambda text, step: text[step] if step >= len(text) - 2 else None),
            "wrong_order": each_step(lambda text, step: text[-1 - step] if step < 2 else None),
            "day": each_step(lambda text, step: text[step] if step < 2 else None),
        },
        "induction": {
            "first_occurrence": each_step(
                lambda text, step: text[text.index(text[step]) + 1] if text[step] in text[:step] else None
            ),
            "letter_before": each_step(_before_match),
        },
    }.items()
}
"""Wrong ideas by name of the puzzle."""
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
    clue: str = ""
    """What the wrong answers have in common, or empty."""

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
        lines = [f"{self.puzzle}: wrong, {self.correct} of {self.inputs} inputs are right"]
        lines += [
            f"  {self.text_label:<22} {' '.join(self.text)}",
            f"  right answer           {' '.join(self.expected)}",
        ]
        lines += [f"  your answer            {' '.join(self.given)}"] if self.given else []
        lines += [f"  {NO_VALUE} stands for None: the step has no value"] if NO_VALUE in self.given else []
        lines += [f"  {self.trouble}"] if self.trouble else []
        lines += [f"  → {mistake}" for mistake in self.mistakes]
        if not self.mistakes:
            lines += [f"  {self.clue}"] if self.clue else []
            lines.append(
                "  None of the known mistakes gives these answers: follow the smallest wrong input by hand."
            )
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.table()


class AnswersError(InputError):
    """A program fails for a text."""


def load_program(path: Path, alphabet: str, longest: int, server: ForkServer) -> WrittenProgram:
    """Return the program in a learner's file, which runs in a separate process.

    Raises `InputError` with the line for a file that cannot be run.
    """
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
        raise InputError(f"{path.name}: {CHANGED_ANSWERS}") from error


def check_file(path: Path, puzzle: Puzzle, server: ForkServer) -> tuple[WrittenProgram, PuzzleReport]:
    """Check the program in a learner's file. Raises `InputError` as `load_program` does, and if the file has no
    answer."""
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
        raise AnswersError(f"line {_failing_line(program, evaluation)}: {_explain(error)}") from error
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


def _explain(error: Exception) -> str:
    if isinstance(error, TypeError):
        return "a mean needs a number at each selected step, but a step has no value: use .otherwise(0)"
    return str(error).replace("aggregate selects steps", "aggregate selects several steps,")


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
    correct = len(puzzle.inputs) - len(wrong)
    if not wrong:
        return PuzzleReport(puzzle=puzzle.name, inputs=len(puzzle.inputs), correct=correct)
    text = failing or wrong[0]
    return PuzzleReport(
        puzzle=puzzle.name,
        inputs=len(puzzle.inputs),
        correct=correct,
        text=text,
        expected=puzzle.expected[text],
        given=answers.get(text, []),
        trouble=trouble,
        mistakes=_name_mistakes(program, puzzle, answers),
        clue=_find_clue(puzzle, answers),
    )


def _name_mistakes(program: WrittenProgram, puzzle: Puzzle, answers: dict[str, list[str]]) -> list[NamedMistake]:
    """Return the mistakes that explain all answers: a wrong idea of the puzzle and repairs, or a general idea."""
    complete = {text: answers.get(text, []) for text in puzzle.inputs}

    def explain(ideas: Sequence[WrongIdea]) -> list[NamedMistake]:
        found = next((idea for idea in ideas if idea.explains(puzzle, complete)), None)
        return [] if found is None else [NamedMistake(words=found.words, instead=found.instead)]

    repairs: dict[str, NamedMistake] = {}
    for repair in find_repairs(puzzle, program, complete):
        named = NamedMistake(words=repair.words, instead=repair.instead, line=repair.line)
        repairs.setdefault(repair.words, named)
    ideas = explain([*IDEAS[puzzle.name], *general_ideas(puzzle)])
    return [*ideas, *repairs.values()][:MOST_SHOWN] or explain(last_ideas(puzzle))


def _find_clue(puzzle: Puzzle, answers: dict[str, list[str]]) -> str:
    """Return what the wrong answers have in common and some right answer has not."""
    places = {
        (text, step): text in answers and answers[text][step] == right
        for text in puzzle.inputs
        for step, right in enumerate(puzzle.expected[text])
    }
    letters = {text[step] for (text, step), right in places.items() if not right}
    clues: list[tuple[str, Callable[[str, int], bool]]] = [
        ("Only the first step is wrong.", lambda text, step: step == 0),
        ("Only the last step is wrong.", lambda text, step: step == len(text) - 1),
        (
            "The longest texts are right: does the program use a fixed length?",
            lambda text, step: len(text) < puzzle.longest,
        ),
        ("Only texts with equal letters are wrong.", lambda text, step: len(set(text)) < len(text)),
        (f"Only steps with {', '.join(sorted(letters))} are wrong.", lambda text, step: text[step] in letters),
    ]
    for words, holds in clues:
        shared = all(holds(*place) for place, right in places.items() if not right)
        if shared and any(not holds(*place) for place, right in places.items() if right):
            return words
    return ""
