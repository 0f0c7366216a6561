"""A custom task: count the letters that equal the previous letter.

    regard train examples/doubles.py
    regard test doubles --input AABBBC

The answer to "AABBBC" is 3. The model must compare neighboring letters, and therefore needs positions and an
encoder layer. Both are defaults of this task.
"""

import torch
from torch import Tensor

from regard.tasks.base import Task


class Doubles(Task):
    """A task with one output: the number of letters that equal the previous letter."""

    name = "doubles"
    summary = "count the letters that equal the previous letter"
    defaults = {"enc_layers": 1, "pos_enc": True, "multihead": True}

    @property
    def outputs(self) -> int:
        """Return the number of outputs."""
        return 1

    def answer(self, inputs: Tensor) -> Tensor:
        """Return the count (B, 1)."""
        return self._repeats(inputs).sum(1, keepdim=True)

    def relevance(self, inputs: Tensor) -> Tensor:
        """Return the relevant positions (B, 1, T): both letters of each pair."""
        repeats = self._repeats(inputs)
        nothing = torch.zeros_like(repeats[:, :1])
        first, second = torch.cat([repeats, nothing], dim=1), torch.cat([nothing, repeats], dim=1)
        return (first | second).unsqueeze(1)

    def _repeats(self, inputs: Tensor) -> Tensor:
        """Return which letters equal the previous one, (B, T - 1); padding has index -1."""
        return (inputs[:, 1:] == inputs[:, :-1]) & (inputs[:, 1:] >= 0)
