"""Wrong ideas: how their answers are compared with those of a learner, and ideas that fit every puzzle."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from regard_course.puzzles.puzzle import BLANK, NO_VALUE, PUZZLES, Puzzle, each_step, show_answer
from regard_lab.programs.language import Value


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


def letter_at(place: Callable[[str, int], int]) -> Callable[[str], list[Value]]:
    """Return the function that answers with the letter at a place, or without a value outside the text."""
    return each_step(lambda text, step: text[place(text, step)] if 0 <= place(text, step) < len(text) else None)


def letter_at_earlier(place: Callable[[str, int], int]) -> Callable[[str], list[Value]]:
    return each_step(lambda text, step: text[place(text, step)] if 0 <= place(text, step) <= step else None)


OWN = WrongIdea("The answer is the own letter of each step: the text is unchanged.", "Select another step.", list)


def general_ideas(puzzle: Puzzle) -> list[WrongIdea]:
    """Return the wrong ideas that fit every puzzle: other letters, and the tasks of other puzzles."""
    letters = "Select another step."
    ideas = [
        OWN,
        WrongIdea("The answer is the letter before each step.", letters, letter_at(lambda text, step: step - 1)),
        WrongIdea(
            "The answer is the letter before each step, and at the first step its own letter.",
            letters,
            each_step(lambda text, step: text[max(step - 1, 0)]),
        ),
        WrongIdea("The answer is the letter after each step.", letters, letter_at(lambda text, step: step + 1)),
        WrongIdea("The answer is the last letter.", letters, lambda text: text[-1] * len(text)),
    ]
    return ideas + [
        WrongIdea(f"This program solves another puzzle: {other.name}.", "Read the task again.", other.solve)
        for other in PUZZLES.values()
        if other is not puzzle and other.alphabet == puzzle.alphabet
    ]


def last_ideas(puzzle: Puzzle) -> list[WrongIdea]:
    """Return the wrong ideas that fit every puzzle and say little: for programs without another explanation."""
    truth, place = puzzle.solve, "Compare the positions in the right answer and in yours."
    return [
        WrongIdea(
            "No step has a value: nothing is ever selected.",
            "Compare the values of keys and queries: are they of one kind, and do they overlap?",
            each_step(lambda text, step: None),
        ),
        WrongIdea("The answers are in the reverse order.", place, lambda text: list(truth(text))[::-1]),
        WrongIdea("The answers stand one step too late.", place, lambda text: [None, *list(truth(text))[:-1]]),
        WrongIdea("The answers stand one step too early.", place, lambda text: [*list(truth(text))[1:], None]),
    ]


def _plain(answers: Iterable[str]) -> list[str]:
    return [BLANK if answer == NO_VALUE else answer for answer in answers]
