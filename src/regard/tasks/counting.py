"""Counting and Difference: count each letter of a sequence (tasks 1 and 2 of the primer)."""

import torch
from torch import Tensor

from regard.errors import InputError
from regard.tasks.base import Task, TaskConfig


class Counting(Task):
    """Counts each letter: an input has `max_len` letters or nulls, and output step i is the count of letter i.

    "AB BC" has the answer 1, 2, 1. Output step i depends on the steps with letter i.
    """

    name = "counting"
    summary = "count each letter of a sequence of letters and nulls"
    null = True

    @property
    def outputs(self) -> int:
        return int(self.config.vocab_size)

    def answer(self, inputs: Tensor) -> Tensor:
        """Return the counts (B, vocab_size)."""
        return self._occurrences(inputs).sum(-1)

    def relevance(self, inputs: Tensor) -> Tensor:
        return self._occurrences(inputs)

    def output_labels(self, inputs: Tensor) -> list[str]:
        return [f"count {letter}" for letter in self.vocabulary[1:]]

    def _occurrences(self, inputs: Tensor) -> Tensor:
        """Return the occurrences of each letter, (B, vocab_size, T) bool. Index 0 is null and is not counted."""
        letters = torch.arange(1, self.config.vocab_size + 1, device=inputs.device)
        return inputs.unsqueeze(1) == letters.view(1, -1, 1)


class Difference(Counting):
    """Counting with an additional output step, the absolute difference of the first two counts.

    "AB BC" has the answer 1, 2, 1, 1. The last step depends on every A and every B.
    """

    name = "difference"
    summary = "count each letter, and |count A - count B|"
    defaults = {"steps": 1000}

    def __init__(self, config: TaskConfig | None = None) -> None:
        super().__init__(config)
        if self.config.vocab_size < 2:
            raise InputError(
                f"vocab_size {self.config.vocab_size} is too small: difference needs 2 letters to compare"
            )

    @property
    def outputs(self) -> int:
        return int(self.config.vocab_size + 1)

    def answer(self, inputs: Tensor) -> Tensor:
        """Return the counts and the difference (B, vocab_size + 1)."""
        counts = super().answer(inputs)
        return torch.cat([counts, (counts[:, :1] - counts[:, 1:2]).abs()], dim=1)

    def relevance(self, inputs: Tensor) -> Tensor:
        """Return the relevance: the last output step depends on every A and every B, the other steps as in
        Counting."""
        occurrences = super().relevance(inputs)
        return torch.cat([occurrences, occurrences[:, :1] | occurrences[:, 1:2]], dim=1)

    def output_labels(self, inputs: Tensor) -> list[str]:
        return [*super().output_labels(inputs), "|A - B|"]
