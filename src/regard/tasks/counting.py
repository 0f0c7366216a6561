"""The four tasks of the primer, which count letters: Counting, Difference, Signal and Signal 2.

In Signal and Signal 2, the first steps are the letters to count in the remaining steps. A signal differs from
other letters only by its position.
"""

import torch
from torch import Tensor

from regard.errors import InputError
from regard.tasks.base import Task, TaskConfig


class Counting(Task):
    """Counts each letter: an input has `max_len` letters or nulls, and output step i is the count of letter i. "AB BC"
    has the answer 1, 2, 1. Output step i depends on the steps with letter i."""

    name = "counting"
    summary = "count each letter of a sequence of letters and nulls"
    null = True

    @property
    def outputs(self) -> int:
        return int(self.config.vocab_size)

    def answer(self, inputs: Tensor) -> Tensor:
        return self._occurrences(inputs).sum(-1)

    def relevance(self, inputs: Tensor) -> Tensor:
        return self._occurrences(inputs)

    def output_labels(self, inputs: Tensor) -> list[str]:
        return [f"count {letter}" for letter in self.vocabulary[1:]]

    def _occurrences(self, inputs: Tensor) -> Tensor:
        letters = torch.arange(1, self.config.vocab_size + 1, device=inputs.device)
        return inputs.unsqueeze(1) == letters.view(1, -1, 1)


class Difference(Counting):
    """Counting with an additional output step, the absolute difference of the first two counts. "AB BC" has the answer
    1, 2, 1, 1. The last step depends on every A and every B."""

    name = "difference"
    summary = "count each letter, and |count A - count B|"
    defaults = {"steps": 1000}

    def __init__(self, config: TaskConfig | None = None) -> None:
        super().__init__(config)
        if self.config.vocab_size < 2:
            raise InputError(f"vocab_size {self.config.vocab_size} is too small: difference needs 2 letters to compare")

    @property
    def outputs(self) -> int:
        return int(self.config.vocab_size + 1)

    def answer(self, inputs: Tensor) -> Tensor:
        counts = super().answer(inputs)
        return torch.cat([counts, (counts[:, :1] - counts[:, 1:2]).abs()], dim=1)

    def relevance(self, inputs: Tensor) -> Tensor:
        occurrences = super().relevance(inputs)
        return torch.cat([occurrences, occurrences[:, :1] | occurrences[:, 1:2]], dim=1)

    def output_labels(self, inputs: Tensor) -> list[str]:
        return [*super().output_labels(inputs), "|A - B|"]


class Signal(Task):
    """Counts the letter of the signal: an input is a signal and `max_len` letters. "BBABC" has the answer 2, because
    the signal itself is not counted. The output depends on the signal and on the letters equal to the signal."""

    name = "signal"
    summary = "count the letter that the first step names"
    signals = 1
    defaults = {"enc_layers": 1}

    @property
    def outputs(self) -> int:
        return self.signals

    def answer(self, inputs: Tensor) -> Tensor:
        return self._occurrences(inputs).sum(-1)

    def relevance(self, inputs: Tensor) -> Tensor:
        own_signal = torch.eye(self.signals, dtype=torch.bool, device=inputs.device)
        return torch.cat([own_signal.expand(len(inputs), -1, -1), self._occurrences(inputs)], dim=2)

    def output_labels(self, inputs: Tensor) -> list[str]:
        """Return the name of each output step: the letter of its signal, numbered if several signals are equal."""
        letters = [self.vocabulary[index] for index in inputs[: self.signals].tolist()]
        return [
            f"count {letter}" if letters.count(letter) == 1 else f"count {letter} ({_ordinal(letters, step)})"
            for step, letter in enumerate(letters)
        ]

    def _occurrences(self, inputs: Tensor) -> Tensor:
        return inputs[:, : self.signals].unsqueeze(2) == inputs[:, self.signals :].unsqueeze(1)


class Signal2(Signal):
    """Counts the letters of three signals: output step i is the count of the letter of signal i. "CBBBABC" has the
    answer 1, 2, 2. Signals may be equal, and are not counted."""

    name = "signal2"
    summary = "three signals, three counts (needs several heads)"
    signals = 3
    defaults = {"enc_layers": 1, "pos_enc": True, "multihead": True}


def _ordinal(letters: list[str], step: int) -> str:
    number = letters[: step + 1].count(letters[step])
    return {1: "1st", 2: "2nd", 3: "3rd"}.get(number, f"{number}th")
