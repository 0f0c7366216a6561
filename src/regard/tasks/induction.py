"""Induction: random tokens, followed by a repetition of some of them (Olsson et al. 2022, "In-context Learning
and Induction Heads").

A model with two attention layers learns the task with a previous-token head in the first layer and an induction
head in the second. A model with one layer cannot learn the task.
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
from regard.tasks.tokens import TokenTask, earlier_equal, mark_positions

SYMBOLS = string.ascii_uppercase + string.ascii_lowercase + string.digits


@dataclass(frozen=True, kw_only=True)
class InductionTaskConfig(TaskOptions):
    """Size of the task."""

    max_len: int = 24
    """Number of tokens in a sequence: distinct tokens, then the repetition."""
    repeated: int = 8
    """Number of tokens at the end that repeat earlier tokens, in the same order (2 or more)."""
    vocab_size: Annotated[int, Limits(4, len(SYMBOLS))] = 20
    """Number of different tokens (4 to 62)."""

    def check_sizes(self) -> None:
        check_range("repeated", self.repeated, 2, self.vocab_size)
        check_range("max_len", self.max_len, 2 * self.repeated, self.vocab_size + self.repeated)


class Induction(TokenTask):
    """Distinct tokens, then `repeated` of these tokens again, starting at a random position: in "CADBFEDBF",
    "DBF" is repeated.

    The answer is the token after the earlier occurrence of the current token. The start of the repetition is
    random, so the distance between both occurrences varies, and the answer cannot be found from positions
    alone. The answer depends on the current token, its last earlier occurrence, and the token after that
    occurrence.
    """

    name = "induction"
    summary = "random tokens, then a repetition: what comes next?"
    config_class = InductionTaskConfig
    defaults = {"feed_forward": False, "steps": 1300, "lr": 0.003}

    def __init__(self, config: InductionTaskConfig | None = None) -> None:
        super().__init__(config)
        self.vocabulary = SYMBOLS[: self.config.vocab_size]

    @property
    def lengths(self) -> range:
        return range(2 * self.config.repeated, self.config.max_len + 1)

    def draw(self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False) -> Tensor:
        del unseen  # training draws a negligible fraction of all sequences
        batch, repeated = len(lengths), self.config.repeated
        tokens = torch.rand(batch, len(self.vocabulary), generator=generator).argsort(1)
        different = lengths[:, None] - repeated
        begin = (torch.rand(batch, 1, generator=generator) * (different - repeated + 1)).long()
        positions = torch.arange(int(lengths.max()))
        repeats = (begin + positions - different).clamp(0, len(self.vocabulary) - 1)
        return tokens.gather(1, torch.where(positions < different, positions.expand(batch, -1), repeats))

    def answer(self, inputs: Tensor) -> Tensor:
        earlier = earlier_equal(inputs)
        return torch.where(earlier < 0, IGNORE, inputs.gather(1, earlier + 1))

    def relevance(self, inputs: Tensor) -> Tensor:
        earlier = earlier_equal(inputs)
        current = torch.arange(inputs.shape[1], device=inputs.device).expand_as(inputs)
        return mark_positions([current, earlier, earlier + 1], earlier >= 0)
