"""What a task is: a vocabulary, a sampler, the oracle answer and what each answer depends on.

A task of your own is a Python file with one subclass of `Task`; `regard train path/to/task.py` trains on it.
Letters: B batch, T input steps, To output steps. Inputs are vocabulary indices (B, T), int64; steps past the
end of a shorter sequence hold `PAD`, which equals no letter, so oracle and relevance need no mask.
"""

import string
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from regard.errors import InputError, check_range

PAD = -1
"""The index at steps past the end of a sequence."""
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


class Batch(NamedTuple):
    """A batch of samples."""

    inputs: Tensor
    """(B, T) int64, vocabulary indices, `PAD` past the end."""
    targets: Tensor
    """(B, To) int64, the class of each output step."""
    mask: Tensor | None
    """(B, T) bool, True before the end; None where every sequence is full."""


class Task(ABC):
    """A synthetic task over letters whose every answer is a number from a range: a count from 0 to `max_len`.

    Subclasses set `name`, `summary` and `defaults`, and define `outputs`, `answer` and `relevance`. Those of
    another vocabulary or other answers set `size_class` and what the constructor and the properties set here.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    """One line for `regard tasks`."""
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Flags whose default for this task differs from the general one, e.g. `{"steps": 1000}`."""
    size_class: ClassVar[type] = TaskConfig
    """The dataclass of the task's size."""
    null: ClassVar[bool] = False
    """Whether the vocabulary starts with the null character."""
    signals: ClassVar[int] = 0
    """Steps before the letters that say what to count."""

    config: Any
    """An instance of `size_class`."""

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
        return self.config.max_len + 1

    @property
    def input_len(self) -> int:
        """Input steps of the longest sequence, signals included."""
        return self.signals + self.config.max_len

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
        inputs = inputs.masked_fill(~mask, PAD)
        return Batch(inputs, self.answer(inputs), mask)

    def parse(self, text: str) -> Tensor:
        """Read one sequence such as `"AB_BC"` (null: a space or `_`) as inputs (1, T).

        Raises `InputError` at an unknown letter, or where the sequence is too short or too long.
        """
        text = text.replace("_", NULL) if self.null else text
        if not self.signals < len(text) <= self.input_len:
            signals = f"{self.signals} signal{'s' * (self.signals > 1)} and " if self.signals else ""
            raise InputError(
                f"input {text!r} has {len(text)} steps: {self.name} takes {signals}"
                f"1 to {self.config.max_len} letters"
            )
        return torch.tensor([[self._index(letter, step) for step, letter in enumerate(text)]])

    def render(self, inputs: Tensor) -> str:
        """Write one sequence (T,) as text; `parse` reads it back. Steps past the end are left out."""
        return "".join(self.vocabulary[index] for index in inputs.tolist() if index != PAD)

    def _index(self, letter: str, step: int) -> int:
        index = self.vocabulary.find(letter)
        if index < 0:
            allowed = ", ".join("'_' (null)" if known == NULL else known for known in self.vocabulary)
            raise InputError(f"letter {letter!r} at step {step} is not in the vocabulary: use {allowed}")
        return index

    def _parse_signal(self, signal: str) -> Tensor:
        if not self.signals:
            raise InputError(f"signal {signal!r} does not fit: {self.name} has no signals")
        if len(signal) not in (1, self.signals):
            one_each = "" if self.signals == 1 else f" or {self.signals} letters, one for each signal"
            raise InputError(f"signal {signal!r} has {len(signal)} letters: give 1 letter{one_each}")
        return torch.tensor([self._index(letter, step) for step, letter in enumerate(signal)])
