"""A program: an expression of the language, with the family of models that computes it and the sizes of its
texts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Literal

from regard.errors import InputError
from regard_lab.programs.language import Evaluation, Expression, Side, Value

Family = Literal["encoder", "decoder-only", "encoder-decoder"]
"""encoder: attention in both directions, and an answer at each output step; decoder-only: causal attention, and
an answer at each input step; encoder-decoder: an answer that is written step by step."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """A function of texts. All texts over `alphabet` of 1 to `longest` symbols are inputs.

    >>> from regard_lab.programs.language import aggregate, indices, select, tokens
    >>> before = aggregate(select(indices, indices.map(lambda index: index - 1)), tokens)
    >>> program = Program(name="previous", summary="", family="decoder-only", alphabet="abc", result=before)
    >>> program.answer("cab")
    [None, 'c', 'a']
    """

    name: str
    summary: str
    """Description in one line."""
    family: Family
    alphabet: str
    """Symbols of inputs, one character each."""
    result: Expression
    """The answer at each step; None where there is no answer, and at the end of a written answer."""
    longest: int = 5
    """Largest number of symbols of an input."""
    outputs: int = 1
    """Number of output steps of an encoder; largest number of symbols that an encoder-decoder writes."""
    symbols: str = ""
    """Symbols of written answers, for an encoder-decoder. Empty: those of inputs."""
    roles: Mapping[Expression, str] = field(default_factory=dict)
    """Roles, in the terms of `regard.interpret.roles`, of the heads that compute these expressions."""

    def __post_init__(self) -> None:
        """Raise `InputError` if the result is on the wrong side."""
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
        """Return all inputs of a length, in alphabetical order."""
        return ["".join(letters) for letters in product(self.alphabet, repeat=length)]
