"""The puzzles: their tasks, inputs and right answers. A learner's process cannot import this package."""

import functools
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.resources import files
from itertools import accumulate, product

from regard.errors import unknown_choice
from regard_course.inputs import read_table
from regard_lab.programs.language import Evaluation, Expression, Program, Value, aggregate, indices, select, steps

BLANK = "-"
"""Answer of a step that has nothing to answer."""
NO_VALUE = "∅"
"""How an answer None is shown."""
ALL, CAUSAL = "Each step sees all steps.", "Each step sees itself and earlier steps, as in a language model."


@dataclass(frozen=True, kw_only=True, eq=False)
class Puzzle:
    """A task for a program: an answer at each step of a text."""

    name: str
    title: str
    task: str
    solve: Callable[[str], Sequence[Value]]
    """Returns the right answer of each step."""
    example: str
    alphabet: str = "abc"
    longest: int = 5
    causal: bool = False
    """Whether a step sees itself and earlier steps only. The model is then decoder-only, otherwise an encoder."""

    @functools.cached_property
    def inputs(self) -> list[str]:
        """All inputs, the shortest first."""
        lengths = range(1, self.longest + 1)
        return ["".join(letters) for n in lengths for letters in product(self.alphabet, repeat=n)]

    @functools.cached_property
    def expected(self) -> dict[str, list[str]]:
        return {text: [show_answer(value) for value in self.solve(text)] for text in self.inputs}

    def evaluation(self, text: str) -> Evaluation:
        return Evaluation(text, causal=self.causal)

    def program(self, answer: Expression) -> Program:
        """Return the program of a learner's answer, for a model. An encoder reads the answer of each step."""
        shown = answer.map(show_answer)
        result = shown if self.causal else aggregate(select(indices, steps), shown)
        return Program(
            name=self.name,
            summary=self.title,
            family="decoder-only" if self.causal else "encoder",
            alphabet=self.alphabet,
            longest=self.longest,
            outputs=self.longest,
            result=result,
        )

    @property
    def number(self) -> int:
        return list(PUZZLES).index(self.name) + 1

    @property
    def sentences(self) -> str:
        return f"{self.task} {CAUSAL if self.causal else ALL}"

    @property
    def stub(self) -> str:
        """Python file that the learner starts from."""
        return str(TEXTS["stub"]).format(
            number=self.number,
            title=self.title,
            task=textwrap.fill(self.sentences, 100),
            text=" ".join(self.example),
            answer=" ".join(show_answer(value) for value in self.solve(self.example)),
            texts=self.texts,
            name=self.name,
        )

    @property
    def texts(self) -> str:
        return f"Texts have 1 to {self.longest} letters: {', '.join(self.alphabet)}."

    @property
    def hints(self) -> list[str]:
        text = files("regard_course.puzzles").joinpath("hints.md").read_text(encoding="utf-8")
        [part] = re.findall(rf"^# {self.name}\n(.*?)(?=^# |\Z)", text, re.MULTILINE | re.DOTALL)
        return [*re.findall(r"^\d\. (.*)$", part, re.MULTILINE), part[part.index("```") :].strip()]


def show_answer(value: Value) -> str:
    """Return an answer as one symbol.

    >>> [show_answer(value) for value in ("a", 2, True, None)]
    ['a', '2', 'y', '∅']
    """
    if value is None or isinstance(value, bool):
        return {None: NO_VALUE, True: "y", False: "n"}[value]
    if isinstance(value, float | Fraction) and value == int(value):
        return str(int(value))
    return str(value)


def find_puzzle(name: str) -> Puzzle:
    """Return the puzzle with a name. Raises `InputError` if there is none."""
    if name not in PUZZLES:
        raise unknown_choice("puzzle", name, PUZZLES)
    return PUZZLES[name]


FUNCTIONS: dict[str, Callable[..., object]] = {
    "at": lambda text, place: text[place] if 0 <= place < len(text) else None,
    # the number of open brackets after each step so far
    "heights": lambda text, step: list(accumulate(1 if sign == "(" else -1 for sign in text[: step + 1])),
}


def each_step(code: str) -> Callable[[str], list[Value]]:
    """Return the function that answers each step of a text by an expression of `puzzles.toml`."""
    answer = eval(f"lambda text, step: {code}", FUNCTIONS)  # data of this package
    return lambda text: [answer(text, step) for step in range(len(text))]


TEXTS = read_table("puzzles/puzzles.toml")
PUZZLES: dict[str, Puzzle] = {
    name: Puzzle(name=name, solve=each_step(text["answer"]), **{key: text[key] for key in text if key != "answer"})
    for name, text in TEXTS["puzzles"].items()
}
"""The puzzles by name, the easiest first."""
