"""Signal and Signal 2: the first steps are the letters to count in the remaining steps (tasks 3 and 4 of the
primer).

A signal differs from other letters only by its position.
"""

import torch
from torch import Tensor

from regard.tasks.base import Task


class Signal(Task):
    """Counts the letter of the signal: an input is one signal, then `max_len` letters.

    "BBABC" has the answer 2, because the signal itself is not counted. The output depends on the signal and on
    the letters equal to the signal.
    """

    name = "signal"
    summary = "count the letter that the first step names"
    signals = 1
    defaults = {"enc_layers": 1}

    @property
    def outputs(self) -> int:
        return self.signals

    def answer(self, inputs: Tensor) -> Tensor:
        """Return the counts (B, signals)."""
        return self._occurrences(inputs).sum(-1)

    def relevance(self, inputs: Tensor) -> Tensor:
        own_signal = torch.eye(self.signals, dtype=torch.bool, device=inputs.device)
        return torch.cat([own_signal.expand(len(inputs), -1, -1), self._occurrences(inputs)], dim=2)

    def output_labels(self, inputs: Tensor) -> list[str]:
        """Return the name of each output step: the letter of its signal, numbered if several signals are
        equal."""
        letters = [self.vocabulary[index] for index in inputs[: self.signals].tolist()]
        return [
            f"count {letter}" if letters.count(letter) == 1 else f"count {letter} ({_ordinal(letters, step)})"
            for step, letter in enumerate(letters)
        ]

    def _occurrences(self, inputs: Tensor) -> Tensor:
        """Return whether each letter is equal to each signal, (B, signals, T - signals) bool."""
        return inputs[:, : self.signals].unsqueeze(2) == inputs[:, self.signals :].unsqueeze(1)


class Signal2(Signal):
    """Counts the letters of three signals: output step i is the count of the letter of signal i.

    "CBBBABC" has the answer 1, 2, 2. Signals may be equal, and are not counted.
    """

    name = "signal2"
    summary = "three signals, three counts (needs several heads)"
    signals = 3
    defaults = {"enc_layers": 1, "pos_enc": True, "multihead": True}


def _ordinal(letters: list[str], step: int) -> str:
    number = letters[: step + 1].count(letters[step])
    return {1: "1st", 2: "2nd", 3: "3rd"}.get(number, f"{number}th")
