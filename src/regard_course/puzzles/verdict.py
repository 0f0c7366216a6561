"""Check a learner's program for a puzzle on all inputs, and name the mistake in a wrong one."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.errors import InputError
from regard.result import Result
from regard_course.processes import ForkServer
from regard_course.program_tables import WrittenProgram, read_program
from regard_course.puzzles.ideas import WrongIdea, general_ideas, last_ideas
from regard_course.puzzles.mistakes import IDEAS
from regard_course.puzzles.puzzle import NO_VALUE, Puzzle, show_answer
from regard_course.puzzles.repairs import find_repairs
from regard_course.sandbox import CHANGED_ANSWERS, NO_EXERCISE, run_program
from regard_lab.programs.language import Expression

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
    result = run_program(path, server, alphabet, longest, seconds=SECONDS)
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
