"""Difference: Counting with one output that depends on two others (the primer's task 2)."""

import torch
from torch import Tensor

from regard.errors import InputError
from regard.tasks.base import TaskConfig
from regard.tasks.counting import Counting


class Difference(Counting):
    """As Counting, and a last output step: the absolute difference of the first two counts.

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
        """One output step for each letter, and the difference."""
        return int(self.config.vocab_size + 1)

    def answer(self, inputs: Tensor) -> Tensor:
        """Return the counts and the difference (B, vocab_size + 1)."""
        counts = super().answer(inputs)
        return torch.cat([counts, (counts[:, :1] - counts[:, 1:2]).abs()], dim=1)

    def relevance(self, inputs: Tensor) -> Tensor:
        """Add the last step's: every A and every B."""
        occurrences = super().relevance(inputs)
        return torch.cat([occurrences, occurrences[:, :1] | occurrences[:, 1:2]], dim=1)

    def output_labels(self, inputs: Tensor) -> list[str]:
        """Name each output step by what it counts."""
        return [*super().output_labels(inputs), "|A - B|"]
