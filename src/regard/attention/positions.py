"""Positions: what tells an attention layer where in the sequence a step stands.

Attention by itself sees a set: identical steps get identical weights wherever they are.
"""

import torch
from torch import Tensor, nn

from regard.errors import InputError


class LearnedPositions(nn.Module):
    """One learned vector for each position, added to the step there (Gehring et al. 2017, section 3.1).

    `vectors`: (length, width). Positions count from 0.
    """

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.zeros(length, width))

    def forward(self, states: Tensor) -> Tensor:
        """Add the positions to states (B, T, D). Raises `InputError` where T exceeds the learned length."""
        time, limit = states.shape[1], self.vectors.shape[0]
        if time > limit:
            raise InputError(f"a sequence of {time} steps is too long: positions were learned for {limit}")
        return states + self.vectors[:time]
