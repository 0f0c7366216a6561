"""Counting: how often does each letter occur? One query for each letter finds it (the primer's task 1)."""

import torch
from torch import Tensor

from regard.tasks.base import Task


class Counting(Task):
    """`max_len` steps, letters or null; output step i is the count of letter i.

    "AB BC" has the answer 1, 2, 1. Output step i depends on the steps that hold letter i.
    """

    name = "counting"
    summary = "count each letter of a sequence of letters and nulls"
    null = True

    @property
    def outputs(self) -> int:
        """One output step for each letter."""
        return int(self.config.vocab_size)

    def answer(self, inputs: Tensor) -> Tensor:
        """Return the counts (B, vocab_size)."""
        return self._occurrences(inputs).sum(-1)

    def relevance(self, inputs: Tensor) -> Tensor:
        """Output step i depends on every occurrence of letter i."""
        return self._occurrences(inputs)

    def output_labels(self, inputs: Tensor) -> list[str]:
        """Name each output step by what it counts."""
        return [f"count {letter}" for letter in self.vocabulary[1:]]

    def _occurrences(self, inputs: Tensor) -> Tensor:
        """Say where each letter stands: (B, vocab_size, T) bool. Index 0 is null, which nobody counts."""
        letters = torch.arange(1, self.config.vocab_size + 1, device=inputs.device)
        return inputs.unsqueeze(1) == letters.view(1, -1, 1)
