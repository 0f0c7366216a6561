"""The wrong ideas of each puzzle: mistakes, and the answers that they give."""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from regard_course.puzzles.ideas import WrongIdea, letter_at, letter_at_earlier
from regard_course.puzzles.puzzle import each_step
from regard_lab.programs.language import Value


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


IDEAS: Mapping[str, Sequence[WrongIdea]] = {
    "first": [
        WrongIdea(
            "The answer is the second letter: off by one.",
            "Positions begin at 0.",
            letter_at_earlier(lambda text, step: 1),
        ),
    ],
    "previous": [
        WrongIdea(
            "The selected step is the next one, in the future, which a step does not see.",
            "The step before has the position i - 1.",
            each_step(lambda text, step: None),
        ),
    ],
    "count": [
        WrongIdea(
            "The step itself does not count: the comparison of positions is strict.",
            "A step sees itself and earlier steps already: no comparison of positions is needed.",
            each_step(lambda text, step: text[:step].count("a")),
        ),
        WrongIdea(
            "Every letter counts: the answer is the number of all letters so far.",
            'Select the steps with the letter a: select(tokens, constant("a")).',
            each_step(lambda text, step: step + 1),
        ),
        WrongIdea(
            "The answer depends on the own step only: nothing is counted.",
            "Count selected steps with width(selector).",
            each_step(lambda text, step: int(text[step] == "a")),
        ),
    ],
    "repeated": [
        WrongIdea(
            "The step counts itself, so the letter always seems repeated.",
            "Select earlier steps only: & select(indices, indices, operator.lt).",
            each_step(lambda text, step: True),
        ),
        WrongIdea(
            "Later steps count too: the selector looks into the future.",
            "Select earlier steps only: & select(indices, indices, operator.lt).",
            each_step(lambda text, step: text.count(text[step]) > 1),
        ),
        WrongIdea(
            "The answer compares with the previous letter only.",
            "Select all earlier steps with the same letter, and count them.",
            each_step(lambda text, step: bool(step) and text[step] == text[step - 1]),
        ),
    ],
    "histogram": [
        WrongIdea(
            "Only the steps so far count, and later ones are left out.",
            "Compare the letters only, not the positions.",
            each_step(lambda text, step: text[: step + 1].count(text[step])),
        ),
        WrongIdea(
            "The step itself does not count: the number is one too small.",
            "The letter of the step is one of its occurrences.",
            each_step(lambda text, step: text.count(text[step]) - 1),
        ),
    ],
    "reverse": [
        WrongIdea(
            "The place is off by one: the positions go from 0 to length - 1.",
            "The mirrored position is length - 1 - index.",
            letter_at(lambda text, step: len(text) - step),
        ),
        WrongIdea(
            "The place is negative, because the terms are in the wrong order.",
            "The mirrored position is length - 1 - index, not index - length + 1.",
            letter_at(lambda text, step: step - len(text) + 1),
        ),
        WrongIdea(
            "A fixed length is used, so the answer is right for the longest texts only.",
            "The length of the text is width(select_all()).",
            letter_at(lambda text, step: 4 - step),
        ),
        WrongIdea(
            "The place is negative: positions do not count from the end, as they do in Python.",
            "The mirrored position is length - 1 - index.",
            each_step(lambda text, step: None),
        ),
    ],
    "rotate": [
        WrongIdea(
            "The text moves in the other direction, to the left.",
            "A step takes the letter of the step before: (index - 1) % length.",
            lambda text: text[1:] + text[0],
        ),
        WrongIdea(
            "The letter before the first step is missing: the first step has no value.",
            "The first step takes the letter from the end: use the remainder, (index - 1) % length.",
            letter_at(lambda text, step: step - 1),
        ),
        WrongIdea(
            "The text moves two steps: off by one.",
            "A step takes the letter of the step before: (index - 1) % length.",
            each_step(lambda text, step: text[(step - 2) % len(text)]),
        ),
    ],
    "palindrome": [
        WrongIdea(
            "Each step compares only its own pair of letters.",
            "Count the steps whose pair differs, over the whole text.",
            each_step(lambda text, step: text[step] == text[-1 - step]),
        ),
        WrongIdea(
            "One equal pair is enough for the answer True: any pair instead of all pairs.",
            "All pairs must be equal: no pair differs.",
            lambda text: [any(a == b for a, b in zip(text, text[::-1], strict=True))] * len(text),
        ),
        WrongIdea(
            "Only the first and the last letter are compared.",
            "Compare every letter with its mirrored one.",
            lambda text: [text[0] == text[-1]] * len(text),
        ),
    ],
    "sort": [
        WrongIdea(
            "Equal letters have the same place, so only one of them is shown.",
            "Count the equal letters at earlier steps too, and add both numbers.",
            _placed(_smaller),
        ),
        WrongIdea(
            "Equal letters have the same place, the last of them, so only one of them is shown.",
            "Count the smaller letters, and the equal letters at earlier steps only.",
            _placed(lambda text, step: sum(letter <= text[step] for letter in text) - 1),
        ),
        WrongIdea(
            "The largest letter comes first, and equal letters have the same place.",
            "Count the smaller letters, and the equal letters at earlier steps.",
            _placed(lambda text, step: sum(letter > text[step] for letter in text)),
        ),
        WrongIdea(
            "The comparison of letters is not strict, so equal letters and the step itself count.",
            "Count smaller letters with operator.lt, and equal letters at earlier steps.",
            _placed(lambda text, step: sum(letter <= text[step] for letter in text)),
        ),
    ],
    "balanced": [
        WrongIdea(
            "The order is ignored: a parenthesis that is closed before it is opened counts.",
            "Count also the steps at which more are closed than opened: there must be none.",
            _so_far(lambda heights: heights[-1] == 0),
        ),
        WrongIdea(
            "Parentheses that are still open count as balanced.",
            "At the step itself, as many must be closed as opened.",
            _so_far(lambda heights: min(heights) >= 0),
        ),
        WrongIdea(
            "The comparison is not strict: a step with as many closed as opened counts as broken.",
            "Only a step with more closed than opened breaks the text: use a strict comparison.",
            _so_far(lambda heights: heights[-1] == 0 and min(heights) > 0),
        ),
    ],
    "year": [
        WrongIdea(
            "The answer is the rest after the first dot: the month.",
            "The year stands after the second dot.",
            letter_at(lambda text, step: step + 1 + text.index(".")),
        ),
        WrongIdea(
            "A fixed position is used, but the day and the month have one or two digits.",
            "The year begins two steps before the end: length - 2.",
            letter_at(lambda text, step: step + 4),
        ),
        WrongIdea(
            "The digits stand at their own steps, where they are in the date.",
            "The answer belongs to the first two steps: step i takes the letter at length - 2 + i.",
            each_step(lambda text, step: text[step] if step >= len(text) - 2 else None),
        ),
        WrongIdea(
            "The two digits are in the wrong order.",
            "The first step takes the digit at length - 2, the second one the digit at length - 1.",
            each_step(lambda text, step: text[-1 - step] if step < 2 else None),
        ),
        WrongIdea(
            "The answer is the beginning of the date: the day.",
            "The year stands at the end of the text.",
            each_step(lambda text, step: text[step] if step < 2 else None),
        ),
    ],
    "induction": [
        WrongIdea(
            "The first earlier step with the letter is used, not the last one.",
            "Number the occurrences of each letter, and select the number before.",
            each_step(lambda text, step: text[text.index(text[step]) + 1] if text[step] in text[:step] else None),
        ),
        WrongIdea(
            "The answer is the letter before the match, not the letter after it.",
            "The match is the step whose letter before is the letter of the query.",
            each_step(lambda text, step: _before_match(text, step)),
        ),
    ],
}
"""Wrong ideas by name of the puzzle."""


def _before_match(text: str, step: int) -> Value:
    place = text.rfind(text[step], 0, step)
    return text[place - 1] if place > 0 else None
