"""A task of one's own: count the letters that repeat the one before.

    regard train examples/doubles.py
    regard test doubles --input AABBBC

"AABBBC" has the answer 3. To know whether a letter repeats the one before, a step has to look at its
neighbour, so the model needs positions and an encoder layer: they are this task's defaults.
"""

import torch
from torch import Tensor

from regard.tasks import Task


class Doubles(Task):
    """One output: how many letters equal the letter before them. It depends on every such pair."""

    name = "doubles"
    summary = "count the letters that repeat the one before"
    defaults = {"enc_layers": 1, "pos_enc": True, "multihead": True}

    @property
    def outputs(self) -> int:
        """One number."""
        return 1

    def answer(self, inputs: Tensor) -> Tensor:
        """Return the count (B, 1)."""
        return self._repeats(inputs).sum(1, keepdim=True)

    def relevance(self, inputs: Tensor) -> Tensor:
        """Both letters of each pair are relevant: (B, 1, T)."""
        repeats = self._repeats(inputs)
        nothing = torch.zeros_like(repeats[:, :1])
        first, second = torch.cat([repeats, nothing], dim=1), torch.cat([nothing, repeats], dim=1)
        return (first | second).unsqueeze(1)

    def _repeats(self, inputs: Tensor) -> Tensor:
        """Say which letters equal the one before: (B, T - 1). Steps past the end, -1, are no letters."""
        return (inputs[:, 1:] == inputs[:, :-1]) & (inputs[:, 1:] >= 0)
