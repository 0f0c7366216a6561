"""What a task is: a vocabulary, a sampler, the oracle answer and what each answer depends on.

A task of your own is a Python file with one subclass of `Task` (its answers are numbers) or of `PairTask` (they
are sequences); `regard train path/to/task.py` trains on it. Letters: B batch, T input steps, To output steps.
Inputs are vocabulary indices (B, T), int64; steps past the end of a shorter sequence hold `PAST_END`, which
equals no letter, so oracle and relevance need no mask.
"""

import string
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from regard.data.parallel import TextDigest
from regard.errors import InputError, check_range, shorten
from regard.tasks.batch import Batch
from regard.tasks.defaults import Defaults
from regard.tasks.source import BatchSettings, Beginning, Place, Source

PAST_END = -1
"""The index at steps past the end of a sequence."""
TOGETHER = 1 << 16
"""Letters of a training that are drawn at once, at most, where that is several batches."""
NULL = " "
"""The null character. On input `_` is taken for it too, which survives a shell better than a space."""


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """Size of a task."""

    max_len: int = 10
    """Letters in a sequence at most, not counting signals."""
    vocab_size: int = 3
    """Letters in the vocabulary, not counting the null character (1 to 26)."""

    def __post_init__(self) -> None:
        """Raise `InputError` where a value is out of range."""
        check_range("max_len", self.max_len, 1, 10_000)
        check_range("vocab_size", self.vocab_size, 1, len(string.ascii_uppercase))


class AnyTask(ABC):
    """What every task has, whatever its answers are."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """One line for `regard tasks`."""
    defaults: ClassVar[Defaults] = {}
    """Flags whose default for this task differs from the general one, e.g. `{"steps": 1000}`."""
    config_class: ClassVar[type]
    """The dataclass of what can be chosen of the task."""
    answers: ClassVar[Literal["numbers", "text"]]
    """What an answer is: a number for each output step, or a sequence."""
    draws: ClassVar[bool] = True
    """Whether the task draws its own samples; otherwise they come from text."""
    texts: ClassVar[tuple[str, ...]] = ()
    """Fields of the config that name text."""
    loose: ClassVar[tuple[str, ...]] = ()
    """Fields of the config, besides those, which a run may have otherwise than the one that it begins from, for
    they decide nothing that its parameters stand for."""

    config: Any
    """An instance of `config_class`."""

    @classmethod
    def prepare(cls, config: Any, folder: Path, *, progress: bool = True) -> Self:
        """Return the task of a new training; what is learned from text first is kept in `folder`."""
        del folder, progress
        return cls(config)  # type: ignore[call-arg]

    @classmethod
    def digests(cls, config: Any, *, progress: bool = True) -> dict[str, list[TextDigest]]:
        """Return digests of the text that a training with this config learns from, by flag; {} without text."""
        del config, progress
        return {}

    @classmethod
    def restore(cls, config: Any, files: Mapping[str, str]) -> Self:
        """Return the task of a run, given what `files` was there."""
        del files
        return cls(config)  # type: ignore[call-arg]

    @property
    def files(self) -> dict[str, str]:
        """What was learned from text and is kept with each run, as JSON by name."""
        return {}

    @abstractmethod
    def batches(self, settings: BatchSettings, beginning: Beginning) -> Source:
        """Return where the batches of a training come from."""

    def example(self, generator: torch.Generator) -> tuple[str, str]:
        """Draw an input and its answer, as text."""
        raise NotImplementedError

    @property
    def accepts(self) -> str:
        """What may be typed as an input, for people; empty where that is any text."""
        return ""

    @property
    @abstractmethod
    def sizes(self) -> Mapping[str, int]:
        """What a model for this task has to know of it: arguments of its constructor."""


class Task(AnyTask):
    """A synthetic task over letters whose every answer is a number from a range: a count from 0 to `max_len`.

    Subclasses set `name`, `summary` and `defaults`, and define `outputs`, `answer` and `relevance`. Those of
    another vocabulary or other answers set `config_class` and what the constructor and the properties set here.
    """

    config_class: ClassVar[type] = TaskConfig
    answers = "numbers"
    null: ClassVar[bool] = False
    """Whether the vocabulary starts with the null character."""
    signals: ClassVar[int] = 0
    """Steps before the letters that say what to count."""

    vocabulary: str
    """All letters; an index is a place in it."""

    def __init__(self, config: TaskConfig | None = None) -> None:
        self.config = TaskConfig() if config is None else config
        letters = string.ascii_uppercase[: self.config.vocab_size]
        self.vocabulary = NULL + letters if self.null else letters

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Output steps, To."""

    @property
    def classes(self) -> int:
        """Classes of each output step: counts from 0 to `max_len`."""
        return int(self.config.max_len + 1)

    @property
    def input_len(self) -> int:
        """Input steps of the longest sequence, signals included."""
        return int(self.signals + self.config.max_len)

    @property
    def sizes(self) -> Mapping[str, int]:
        """Letters of the vocabulary, most input steps, output steps, and classes of each."""
        return {
            "letters": len(self.vocabulary),
            "input_len": self.input_len,
            "outputs": self.outputs,
            "classes": self.classes,
        }

    def batches(self, settings: BatchSettings, beginning: Beginning) -> "Samples":
        """Draw each batch after the one before."""
        return Samples(self, settings, beginning)

    @abstractmethod
    def answer(self, inputs: Tensor) -> Tensor:
        """Return the oracle's answer (B, To) int64 to inputs (B, T)."""

    @abstractmethod
    def relevance(self, inputs: Tensor) -> Tensor:
        """Say which input steps each output step depends on: (B, To, T) bool for inputs (B, T)."""

    def output_labels(self, inputs: Tensor) -> list[str]:
        """Name the output steps for one input (T,), for plots."""
        return [f"output {step}" for step in range(self.outputs)]

    def sample(
        self,
        batch: int,
        generator: torch.Generator,
        *,
        sample_len: int | None = None,
        vary_len: bool = False,
        signal: str | None = None,
    ) -> Batch:
        """Draw `batch` samples, each step uniform over the vocabulary; the same for the same generator state.

        `sample_len` letters each (default `max_len`); with `vary_len` each sequence has its own length,
        uniform from 1 to `sample_len`. `signal` (letters, one for each signal or one for all) fixes the
        signals. Raises `InputError` where these do not fit the task.
        """
        letters = self.config.max_len if sample_len is None else sample_len
        check_range("sample_len", letters, 1, self.config.max_len)
        steps = self.signals + letters
        inputs = torch.randint(len(self.vocabulary), (batch, steps), generator=generator)
        if signal is not None:
            inputs[:, : self.signals] = self._parse_signal(signal)
        if not vary_len:
            return Batch(inputs, self.answer(inputs), None)
        lengths = self.signals + torch.randint(1, letters + 1, (batch, 1), generator=generator)
        mask = torch.arange(steps) < lengths
        inputs = inputs.masked_fill(~mask, PAST_END)
        return Batch(inputs, self.answer(inputs), mask)

    def example(self, generator: torch.Generator) -> tuple[str, str]:
        """Draw an input and its answer, as text."""
        inputs, targets, _ = self.sample(1, generator)
        return self.render(inputs[0]), " ".join(map(str, targets[0].tolist()))

    def parse(self, text: str) -> Tensor:
        """Read one sequence such as `"AB_BC"` (null: a space or `_`; small letters as capitals) as inputs (1, T).

        Raises `InputError` at an unknown letter, or where the sequence is too short or too long.
        """
        text = self.normal(text)
        if not self.signals < len(text) <= self.input_len:
            raise InputError(f"input {shorten(text)} has {len(text)} steps: {self.name} takes {self._lengths}")
        return torch.tensor([[self._index(letter, step) for step, letter in enumerate(text)]])

    def normal(self, text: str) -> str:
        """Return a text as it is read: `_` as the null character, small letters that are unknown as capitals."""
        text = text.replace("_", NULL) if self.null else text
        return "".join(each if each in self.vocabulary else self._capital(each) for each in text)

    def _capital(self, letter: str) -> str:
        capital = letter.upper()
        return capital if len(capital) == 1 and capital in self.vocabulary else letter

    @property
    def accepts(self) -> str:
        """Lengths and letters of an input."""
        return f"{self._lengths}: {self._letters}"

    @property
    def _lengths(self) -> str:
        signals = f"{self.signals} signal{'s' * (self.signals > 1)} and " if self.signals else ""
        return f"{signals}1 to {self.config.max_len} letters"

    @property
    def _letters(self) -> str:
        return ", ".join("'_' (null)" if known == NULL else known for known in self.vocabulary)

    def render(self, inputs: Tensor) -> str:
        """Write one sequence (T,) as text; `parse` reads it back. Steps past the end are left out."""
        return "".join(self.vocabulary[index] for index in inputs.tolist() if index != PAST_END)

    def _index(self, letter: str, step: int) -> int:
        index = self.vocabulary.find(letter)
        if index < 0:
            raise InputError(f"letter {letter!r} at step {step} is not in the vocabulary: use {self._letters}")
        return index

    def _parse_signal(self, signal: str) -> Tensor:
        if not self.signals:
            raise InputError(f"signal {signal!r} does not fit: {self.name} has no signals")
        if len(signal) not in (1, self.signals):
            one_each = "" if self.signals == 1 else f" or {self.signals} letters, one for each signal"
            raise InputError(f"signal {signal!r} has {len(signal)} letters: give 1 letter{one_each}")
        return torch.tensor([self._index(letter, step) for step, letter in enumerate(signal)])


class Samples:
    """The batches of a training, drawn one after the other, and many at once, which takes the time of few.

    While batches are left of those that were drawn together, the generator stands before all of them, and `place`
    says how many have been taken: from both, a training that goes on draws the same ones again.
    """

    def __init__(self, task: Task, settings: BatchSettings, beginning: Beginning) -> None:
        self.task, self.settings, self.generator = task, settings, beginning.generator
        alike = type(task).sample is Task.sample and not settings.vary_len
        self.together = max(1, TOGETHER // (settings.batchsize * task.input_len)) if alike else 1
        self.taken, self.ahead = 0, list[Batch]()
        self.after = self.generator.clone_state()
        if beginning.place[2] > 0 and self.together > 1:
            self._draw_ahead()
            self.taken = min(beginning.place[2], self.together)

    @property
    def place(self) -> Place:
        """How many batches of those drawn together have been taken, as the last of three numbers."""
        return (0, 0, self.taken)

    def draw(self, step: int) -> Batch:
        """Return the next batch; at which training step does not matter."""
        del step
        if self.together == 1:
            return self.task.sample(self.settings.batchsize, self.generator, vary_len=self.settings.vary_len)
        if self.taken == len(self.ahead):
            self.generator.set_state(self.after.get_state())
            self._draw_ahead()
        self.taken += 1
        return self.ahead[self.taken - 1]

    def _draw_ahead(self) -> None:
        """Draw many batches, and leave the generator before them."""
        self.after, size = self.generator.clone_state(), self.settings.batchsize
        inputs, targets, _ = self.task.sample(size * self.together, self.after)
        self.taken = 0
        self.ahead = [Batch(*each, None) for each in zip(inputs.split(size), targets.split(size), strict=True)]
