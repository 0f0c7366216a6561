"""Tasks whose answers are those of a program, for runs of compiled models. Except for encoder-decoders, inputs begin
with "^", the additional step of `planner`. An output depends on an input if another symbol there changes it."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from regard.data.vocabulary import CharacterVocabulary
from regard.errors import InputError
from regard.tasks.base import Task, TaskConfig
from regard.tasks.batch import IGNORE
from regard.tasks.pairs import Pair, PairTask
from regard.tasks.tokens import TokenTask
from regard_lab.programs.language import Program, Value
from regard_lab.programs.planner import Reading

START = "^"  # Additional step before the text
REMEMBERED = 1 << 16  # Number of texts whose answers are stored


@lru_cache(REMEMBERED)
def answers(program: Program, text: str, answer: str = "") -> tuple[Value, ...]:
    return tuple(program.answer(text, answer))


@lru_cache(REMEMBERED)
def dependence(program: Program, text: str, answer: str = "") -> np.ndarray:
    """Return the inputs on which each answer depends, (steps, symbols of the text) bool. Each symbol is replaced by all
    other symbols in turn; `answer`, the written text, stays the same."""
    truth = answers(program, text, answer)
    changed = np.zeros((len(truth), len(text)), dtype=bool)
    for position, symbol in enumerate(text):
        for other in program.alphabet.replace(symbol, ""):
            variant = answers(program, text[:position] + other + text[position + 1 :], answer)
            changed[:, position] |= [old != new for old, new in zip(truth, variant, strict=True)]
    return changed


class _OfProgram:
    """What all tasks of programs have in common."""

    name, summary = "program", "the answers of a program"
    config_class: ClassVar[type] = TaskConfig

    def __init__(self, program: Program) -> None:
        config = TaskConfig(max_len=program.longest, vocab_size=len(program.alphabet))
        super().__init__(config)  # type: ignore[call-arg]
        self.program, self.name, self.summary = program, program.name, program.summary


class _MarkedInputs(_OfProgram):
    """What tasks have in common whose inputs begin with the additional step."""

    def dependence(self, tokens: Tensor) -> np.ndarray:
        task = cast("Task | TokenTask", self)
        return task.relevance(tokens.unsqueeze(0))[0].numpy()

    def parse(self, text: str) -> Tensor:
        """Convert a text, with or without the additional step, to inputs (1, T)."""
        inputs: Tensor = super().parse(START + text.removeprefix(START))  # type: ignore[misc]
        return inputs

    @property
    def accepts(self) -> str:
        return f"1 to {self.program.longest} letters: {', '.join(self.program.alphabet)}"


class EncoderProgramTask(_MarkedInputs, Task):
    """The task of a program for encoders. Classes of an output step: None if possible, then its values."""

    def __init__(self, program: Program, result: Reading) -> None:
        super().__init__(program)
        self.vocabulary = START + program.alphabet
        self.values: tuple[Value, ...] = (*([None] if result.nullable else []), *result.values)

    signals = 1  # the additional step

    @property
    def outputs(self) -> int:
        return self.program.outputs

    @property
    def classes(self) -> int:
        return len(self.values)

    def _draw(self, batch: int, steps: int, generator: torch.Generator) -> Tensor:
        inputs = torch.randint(1, len(self.vocabulary), (batch, steps), generator=generator)
        inputs[:, 0] = 0
        return inputs

    def _parse_signal(self, signal: str) -> Tensor:
        raise InputError(f"signal {signal!r} does not fit: {self.name} has no signals")

    def answer(self, inputs: Tensor) -> Tensor:
        texts = [self.render(row)[1:] for row in inputs]
        return torch.tensor([[self.values.index(value) for value in answers(self.program, text)] for text in texts])

    def relevance(self, inputs: Tensor) -> Tensor:
        relevant = torch.zeros(len(inputs), self.outputs, inputs.shape[1], dtype=torch.bool)
        for row, text in zip(relevant, map(self.render, inputs), strict=True):
            row[:, 1 : len(text)] = torch.from_numpy(dependence(self.program, text[1:]))
        return relevant

    @property
    def _lengths(self) -> str:
        return self.accepts


class TokenProgramTask(_MarkedInputs, TokenTask):
    """The task of a program for decoder-only models: the answer at each step is the next token."""

    def __init__(self, program: Program, result: Reading) -> None:
        super().__init__(program)
        symbols = [START, *program.alphabet, *(_symbol(program, value) for value in result.values)]
        self.vocabulary = list(dict.fromkeys(symbols))

    @property
    def lengths(self) -> range:
        return range(2, self.program.longest + 2)

    def draw(self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False) -> Tensor:
        del unseen  # nothing is trained
        shape = (len(lengths), int(lengths.max()))
        inputs = torch.randint(1, 1 + len(self.program.alphabet), shape, generator=generator)
        inputs[:, 0] = 0
        return inputs

    def answer(self, inputs: Tensor) -> Tensor:
        targets = torch.full_like(inputs, IGNORE)
        for row, target in zip(inputs, targets, strict=True):
            values = answers(self.program, self.render(row)[1:])
            target[1:] = torch.tensor([IGNORE if v is None else self.vocabulary.index(str(v)) for v in values])
        return targets

    def relevance(self, inputs: Tensor) -> Tensor:
        relevant = torch.zeros(*inputs.shape, inputs.shape[1], dtype=torch.bool)
        for row, tokens in zip(relevant, inputs, strict=True):
            row[1:, 1:] = torch.from_numpy(dependence(self.program, self.render(tokens)[1:]))
        return relevant & (self.answer(inputs) != IGNORE).unsqueeze(2)


class PairProgramTask(_OfProgram, PairTask):
    """The task of a program for encoder-decoders, with counterfactual dependence as alignment."""

    def __init__(self, program: Program, result: Reading) -> None:
        super().__init__(program)
        self.max_source, self.max_target = program.longest, program.outputs
        self.source_vocabulary = CharacterVocabulary(program.alphabet)
        self.target_vocabulary = CharacterVocabulary(program.alphabet_of("output"))
        symbols, values = program.alphabet_of("output"), set(map(str, result.values))
        if unknown := sorted(values - set(symbols)):
            raise InputError(
                f"program {program.name} can write {', '.join(map(repr, unknown))}, but its symbols are "
                f"{symbols!r}: add single characters to symbols, or map these values to None"
            )

    @property
    def longest_source(self) -> int:
        return self.max_source

    @property
    def longest_target(self) -> int:
        return self.max_target

    def pair(self, generator: torch.Generator, *, sample_len: int | None = None, unseen: bool = False) -> Pair:
        del unseen  # nothing is trained
        return self.uniform_pair(self.program.alphabet, generator, sample_len)

    def known(self, source: str) -> Pair | None:
        if not 1 <= len(source) <= self.max_source or not set(source) <= set(self.program.alphabet):
            return None
        target = self.program.write(source)
        rows = dependence(self.program, source, target)[: len(target)]
        return Pair(source, target, tuple(tuple(np.flatnonzero(row).tolist()) for row in rows))

    def dependence(self, tokens: Tensor) -> np.ndarray:
        """Return the inputs (Tt, Ts) bool on which each output depends, for a source (Ts,) with its end, while
        the decoder reads the true answer."""
        source = self.source_vocabulary.decode(tokens.tolist())
        relevant = dependence(self.program, source, self.program.write(source))
        return np.pad(relevant, ((0, 0), (0, len(tokens) - len(source))))


ProgramTask = EncoderProgramTask | TokenProgramTask | PairProgramTask
TASKS_BY_FAMILY: dict[str, Callable[[Program, Reading], Any]] = {
    "encoder": EncoderProgramTask,
    "decoder-only": TokenProgramTask,
    "encoder-decoder": PairProgramTask,
}


def make_task(program: Program, result: Reading) -> ProgramTask:
    """Return the task of a program; `result`: how its answers are read."""
    task: ProgramTask = TASKS_BY_FAMILY[program.family](program, result)
    return task


def _symbol(program: Program, value: Value) -> str:
    if len(symbol := str(value)) != 1:
        raise InputError(f"program {program.name} answers {symbol!r}: map answers to single characters")
    return symbol
