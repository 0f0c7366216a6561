"""Signal and Signal 2: the first steps name the letters to count in the rest (tasks 3 and 4 of the primer).

A signal differs from other letters only by its position.
"""

import torch
from torch import Tensor

from regard.tasks.base import Task


class Signal(Task):
    """One signal, then `max_len` letters. The output is the number of later steps with the letter of the signal.

    "BBABC" has the answer 2: the signal itself is not counted. The output depends on the signal and on the
    letters equal to it.
    """

    name = "signal"
    summary = "count the letter that the first step names"
    signals = 1
    defaults = {"enc_layers": 1}

    @property
    def outputs(self) -> int:
        """One output step for each signal."""
        return self.signals

    def answer(self, inputs: Tensor) -> Tensor:
        """Return the counts (B, signals)."""
        return self._occurrences(inputs).sum(-1)

    def relevance(self, inputs: Tensor) -> Tensor:
        """Output step i depends on signal i and on every letter equal to it."""
        own_signal = torch.eye(self.signals, dtype=torch.bool, device=inputs.device)
        return torch.cat([own_signal.expand(len(inputs), -1, -1), self._occurrences(inputs)], dim=2)

    def output_labels(self, inputs: Tensor) -> list[str]:
        """Name each output step by its signal's letter, numbered if several signals are equal."""
        letters = [self.vocabulary[index] for index in inputs[: self.signals].tolist()]
        return [
            f"count {letter}" if letters.count(letter) == 1 else f"count {letter} ({_ordinal(letters, step)})"
            for step, letter in enumerate(letters)
        ]

    def _occurrences(self, inputs: Tensor) -> Tensor:
        """Return which letters equal each signal: (B, signals, T - signals) bool."""
        return inputs[:, : self.signals].unsqueeze(2) == inputs[:, self.signals :].unsqueeze(1)


class Signal2(Signal):
    """Three signals, then `max_len` letters. Output step i is the count of the letter of signal i.

    "CBBBABC" has the answer 1, 2, 2: signals may repeat, and are not counted.
    """

    name = "signal2"
    summary = "three signals, three counts (needs several heads)"
    signals = 3
    defaults = {"enc_layers": 1, "pos_enc": True, "multihead": True}


def _ordinal(letters: list[str], step: int) -> str:
    """Return the ordinal of a letter among equal letters: 1st, 2nd, ..."""
    number = letters[: step + 1].count(letters[step])
    return {1: "1st", 2: "2nd", 3: "3rd"}.get(number, f"{number}th")
