"""Selective copying: letters among noise, then the letters again without the noise (Gu and Dao 2023, "Mamba",
section 4.1.1).

Departure from the paper: the letters are also inputs after a separator, instead of blank inputs, so that a
model can generate the letters.
"""

import string
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from regard.arguments import Limits
from regard.errors import check_range
from regard.tasks.base import TaskOptions
from regard.tasks.batch import IGNORE
from regard.tasks.tokens import TokenTask, mark_positions

NOISE, SEPARATOR = ".", "|"


@dataclass(frozen=True, kw_only=True)
class SelectiveCopyTaskConfig(TaskOptions):
    """Size of the task."""

    max_len: int = 64
    """Number of tokens in a sequence: letters and noise, the separator, and all letters except the last."""
    letters: Annotated[int, Limits(1, 1000)] = 8
    """Number of letters to copy, at random positions."""
    vocab_size: Annotated[int, Limits(1, 26)] = 16
    """Number of different letters."""

    def check_sizes(self) -> None:
        check_range("max_len", self.max_len, 2 * self.letters, 10_000)


class SelectiveCopy(TokenTask):
    """Letters among noise, a separator, and the letters again: "..C.A..B|CA" has the answers C, A, B.

    If the positions of the letters do not change, each answer depends only on the letter that it copies.
    """

    name = "selective-copy"
    summary = "copy the letters among noise"
    config_class = SelectiveCopyTaskConfig
    defaults = {"steps": 1500, "lr": 0.003}

    def __init__(self, config: SelectiveCopyTaskConfig | None = None) -> None:
        super().__init__(config)
        self.vocabulary = NOISE + SEPARATOR + string.ascii_uppercase[: self.config.vocab_size]

    @property
    def lengths(self) -> range:
        return range(2 * self.config.letters, self.config.max_len + 1)

    def draw(self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False) -> Tensor:
        del unseen  # training draws a negligible fraction of all sequences
        batch, letters, longest = len(lengths), self.config.letters, int(lengths.max())
        copied = 2 + torch.randint(self.config.vocab_size, (batch, letters), generator=generator)
        before = lengths[:, None] - letters
        order = torch.rand(batch, longest, generator=generator).masked_fill(torch.arange(longest) >= before, 2.0)
        places = order.argsort(1)[:, :letters].sort(1).values
        inputs = torch.zeros(batch, longest + 1, dtype=torch.int64)  # one more for the last letter, which is cut
        inputs.scatter_(1, places, copied).scatter_(1, before, 1)
        return inputs.scatter_(1, before + 1 + torch.arange(letters), copied)[:, :longest]

    def answer(self, inputs: Tensor) -> Tensor:
        places, has_answer = self._places(inputs)
        return torch.where(has_answer, inputs.gather(1, places), IGNORE)

    def relevance(self, inputs: Tensor) -> Tensor:
        places, has_answer = self._places(inputs)
        return mark_positions([places], has_answer)

    def _places(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the position (B, T) of the letter that comes after each token, and whether such a letter
        exists."""
        positions = torch.arange(inputs.shape[1], device=inputs.device)
        after = (inputs == 1).cumsum(1) > 0
        places = torch.where((inputs > 1) & ~after, positions, inputs.shape[1]).sort(1).values
        number = (after.cumsum(1) - 1).clamp_min(0)
        places = places.gather(1, number)
        has_answer = after & (places < inputs.shape[1])
        return places.clamp_max(inputs.shape[1] - 1), has_answer
