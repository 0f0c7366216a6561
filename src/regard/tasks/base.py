"""Base classes of tasks: vocabulary, sampler, oracle answer, and relevance of each input.

A custom task is a Python file with one subclass of `Task` (answers are numbers) or `PairTask` (answers are
sequences). Train on it with `regard train path/to/task.py`. Shapes: B batch, T input steps, To output steps.
Inputs are vocabulary indices (B, T), int64. Steps after the end of a shorter sequence have the index
`PAST_END`, which differs from all letters. Answers and relevance therefore need no mask.
"""

import string
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from regard.arguments import Limits, check_fields
from regard.data.parallel import TextDigest
from regard.errors import InputError, check_range, plural, shorten
from regard.tasks.batch import Batch, BatchContext, BatchSettings, BatchSource, Position

PAST_END = -1  # Index of steps after the end of a sequence
MAX_LETTERS_DRAWN = 1 << 16
"""Maximum number of letters sampled in one call for several batches.

One call for many batches takes about the same time as one call for a single batch.
"""
NULL = " "  # The null character. `_` is also accepted, because a space is inconvenient to type in a shell


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """Base class of the options of a task. `check_sizes` checks options against each other."""

    def __post_init__(self) -> None:
        check_fields(self)
        # Also called for the options of a run, which derive from those of the task, the model and the training.
        self.check_sizes()

    def check_sizes(self) -> None:
        return


@dataclass(frozen=True, kw_only=True)
class TaskConfig(TaskOptions):
    """Size of a task."""

    max_len: Annotated[int, Limits(1, 10_000)] = 10
    """Maximum number of letters in a sequence, without signals."""
    vocab_size: Annotated[int, Limits(1, len(string.ascii_uppercase))] = 3
    """Number of letters in the vocabulary, without the null character."""


class AnyTask(ABC):
    """Interface of all tasks."""

    name: ClassVar[str]
    summary: ClassVar[str]  # Description of the task in one line, printed by `regard tasks`
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Defaults of flags of `regard train` that differ from the general defaults, such as `{"steps": 1000}`."""
    config_class: ClassVar[type]  # Dataclass of the task's options
    answers: ClassVar[Literal["numbers", "text", "tokens"]]
    """Type of the answers: one number per output step, a sequence, or the next tokens of a sequence."""
    draws: ClassVar[bool] = True  # Whether the task generates its samples; otherwise the samples come from text
    texts: ClassVar[tuple[str, ...]] = ()  # Config fields that contain paths or names of text
    file_names: ClassVar[tuple[str, ...]] = ("source", "target")  # Names of `files`, if the task learns from text
    loose: ClassVar[tuple[str, ...]] = ()
    """Additional config fields that do not affect the meaning of the parameters. These fields may differ when a
    run starts from the parameters of another run."""

    input_width: int = 0  # Numbers per input; 0 for letters, tokens and text

    config: Any  # An instance of `config_class`

    def __init__(self, config: Any = None) -> None:
        self.config = self.config_class() if config is None else config

    @classmethod
    def prepare(cls, config: Any, folder: Path, *, progress: bool = True) -> Self:
        return cls(config)

    @classmethod
    def digests(cls, config: Any, *, progress: bool = True) -> dict[str, list[TextDigest]]:
        """Return digests of the training text by flag; {} without text."""
        return {}

    @classmethod
    def restore(cls, config: Any, files: Mapping[str, str]) -> Self:
        return cls(config)

    @property
    def files(self) -> dict[str, str]:
        return {}

    @abstractmethod
    def batches(self, settings: BatchSettings, beginning: BatchContext) -> BatchSource:
        """Return the batches of a training run."""

    def example(self, generator: torch.Generator) -> tuple[str, str]:
        raise NotImplementedError

    @property
    def accepts(self) -> str:
        """Description of valid inputs; empty if any text is valid."""
        return ""

    @property
    @abstractmethod
    def sizes(self) -> Mapping[str, int]:
        """Constructor arguments of models for this task."""


class Task(AnyTask):
    """A synthetic task over letters whose answers are numbers, by default counts from 0 to `max_len`.

    Subclasses set `name`, `summary` and `defaults`, and define `outputs`, `answer` and `relevance`. For another
    vocabulary or other classes, subclasses also override `config_class`, the constructor and the properties.
    """

    config_class: ClassVar[type] = TaskConfig
    answers = "numbers"
    null: ClassVar[bool] = False  # Whether the vocabulary starts with the null character
    signals: ClassVar[int] = 0  # Number of signal steps before the letters. A signal is a letter to count

    vocabulary: str  # All letters, in the order of their indices

    def __init__(self, config: TaskConfig | None = None) -> None:
        super().__init__(config)
        letters = string.ascii_uppercase[: self.config.vocab_size]
        self.vocabulary = NULL + letters if self.null else letters

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Number of output steps, To."""

    @property
    def classes(self) -> int:
        return int(self.config.max_len + 1)

    @property
    def input_len(self) -> int:
        return int(self.signals + self.config.max_len)

    @property
    def sizes(self) -> Mapping[str, int]:
        return {
            "letters": len(self.vocabulary),
            "input_len": self.input_len,
            "outputs": self.outputs,
            "classes": self.classes,
        }

    def batches(self, settings: BatchSettings, beginning: BatchContext) -> "SampleBatches":
        return SampleBatches(self, settings, beginning)

    @abstractmethod
    def answer(self, inputs: Tensor) -> Tensor:
        """Return the true answer (B, To) int64 for inputs (B, T)."""

    @abstractmethod
    def relevance(self, inputs: Tensor) -> Tensor:
        """Return the relevance (B, To, T) bool for inputs (B, T): whether an output step depends on an input step."""

    def output_labels(self, inputs: Tensor) -> list[str]:
        """Return the name of each output step for one input (T,), for plots."""
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
        """Sample a batch of `batch` inputs, with each step uniform over the vocabulary.

        Inputs have `sample_len` letters (default: `max_len`). With `vary_len`, the length is uniform from 1 to
        `sample_len`. `signal` sets the signals: one letter for each signal, or one letter for all signals. Equal
        generator states produce equal samples. Raises `InputError` for arguments that are invalid for the task.
        """
        letters = self.config.max_len if sample_len is None else sample_len
        check_range("sample_len", letters, 1, self.config.max_len)
        steps = self.signals + letters
        inputs = self._draw(batch, steps, generator)
        if signal is not None:
            inputs[:, : self.signals] = self._parse_signal(signal)
        if not vary_len:
            return Batch(inputs, self.answer(inputs), None)
        lengths = self.signals + torch.randint(1, letters + 1, (batch, 1), generator=generator)
        mask = torch.arange(steps) < lengths
        inputs = inputs.masked_fill(~mask, PAST_END)
        return Batch(inputs, self.answer(inputs), mask)

    def _draw(self, batch: int, steps: int, generator: torch.Generator) -> Tensor:
        return torch.randint(len(self.vocabulary), (batch, steps), generator=generator)

    def example(self, generator: torch.Generator) -> tuple[str, str]:
        inputs, targets, _ = self.sample(1, generator)
        return self.render(inputs[0]), " ".join(map(str, targets[0].tolist()))

    def parse(self, text: str) -> Tensor:
        """Convert a sequence such as `"AB_BC"` to inputs (1, T).

        Null is a space or `_`. Lowercase letters are converted to uppercase. Raises `InputError` for an unknown
        letter, or if the sequence is too short or too long.
        """
        text = self.normal(text)
        if not self.signals < len(text) <= self.input_len:
            count = plural(len(text), "step")
            raise InputError(f"input {shorten(text)} has {count}: {self.name} takes {self._lengths}")
        return torch.tensor([[self._index(letter, step) for step, letter in enumerate(text)]])

    def normal(self, text: str) -> str:
        """Return a text with `_` as the null character, and with unknown lowercase letters converted to uppercase."""
        text = text.replace("_", NULL) if self.null else text
        known = set(self.vocabulary)
        return "".join(each if each in known or each.upper() not in known else each.upper() for each in text)

    @property
    def accepts(self) -> str:
        return f"{self._lengths}: {self._letters}"

    @property
    def _lengths(self) -> str:
        signals = f"{self.signals} signal{'s' * (self.signals > 1)} and " if self.signals else ""
        return f"{signals}1 to {self.config.max_len} letters"

    @property
    def _letters(self) -> str:
        return ", ".join("'_' (null)" if known == NULL else known for known in self.vocabulary)

    def render(self, inputs: Tensor) -> str:
        """Return a sequence (T,) as text, the inverse of `parse`. Steps after the end are omitted."""
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


class SampleBatches:
    """Batches of a training run from the sampler of a task. Several batches are sampled in one call to save time. The
    generator has the state from before the current group of batches, and `place` counts the used batches. A resumed
    training run samples the same group again and continues at `place`."""

    def __init__(self, task: Task, settings: BatchSettings, beginning: BatchContext) -> None:
        self.task, self.settings, self.generator = task, settings, beginning.generator
        equal_lengths = type(task).sample is Task.sample and not settings.vary_len
        self.together = max(1, MAX_LETTERS_DRAWN // (settings.batchsize * task.input_len)) if equal_lengths else 1
        self.taken, self.ahead = 0, list[Batch]()
        self.place: Position = (0, 0, 0)
        """The last of the three numbers of `place` counts the used batches of the current group."""
        self.after = self.generator.clone_state()
        if beginning.place[2] > 0 and self.together > 1:
            self._draw_ahead()
            self.taken = min(beginning.place[2], self.together)
            self.place = (0, 0, self.taken)

    def draw(self, step: int) -> Batch:
        if self.together == 1:
            return self.task.sample(self.settings.batchsize, self.generator, vary_len=self.settings.vary_len)
        if self.taken == len(self.ahead):
            self.generator.set_state(self.after.get_state())
            self._draw_ahead()
        self.taken += 1
        self.place = (0, 0, self.taken)
        return self.ahead[self.taken - 1]

    def _draw_ahead(self) -> None:
        self.after, size = self.generator.clone_state(), self.settings.batchsize
        inputs, targets, _ = self.task.sample(size * self.together, self.after)
        self.taken = 0
        self.ahead = [Batch(*pair, None) for pair in zip(inputs.split(size), targets.split(size), strict=True)]
