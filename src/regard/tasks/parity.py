"""Parity: is the number of ones odd? Training samples are short. Longer samples test length generalization.

Deletang et al. 2023, "Neural Networks and the Chomsky Hierarchy", train on up to 40 bits and test on 41 to 500.
Here the default is 10 bits, because small models learn this length: with up to 20 bits, 3000 steps reach 65 %
correct outputs, and with up to 40 bits 57 %.
Hahn 2020 proves a limit of attention on this task.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from regard.arguments import Limits
from regard.errors import check_range
from regard.tasks.base import TaskOptions
from regard.tasks.batch import IGNORE
from regard.tasks.tokens import TokenTask

END = 2  # Token of "=", after the bits


@dataclass(frozen=True, kw_only=True)
class ParityTaskConfig(TaskOptions):
    """Size of the task."""

    max_len: Annotated[int, Limits(1, 10_000)] = 10
    """Largest number of bits in training. Numbers of bits are uniform from 1 to this number."""
    test_len: int = 100
    """Largest number of bits in a test. --sample-len also counts the final "="."""

    def check_sizes(self) -> None:
        check_range("test_len", self.test_len, self.max_len, 10_000)


class Parity(TokenTask):
    """Bits and "=": "01101=" has the answer 1, because it has three ones. The answer depends on all bits."""

    name = "parity"
    summary = "is the number of ones odd? also in longer sequences"
    config_class = ParityTaskConfig
    defaults = {"steps": 2000, "lr": 0.003}
    varied = True
    vocabulary = "01="

    @property
    def lengths(self) -> range:
        return range(2, self.config.max_len + 2)

    @property
    def longest(self) -> int:
        return int(self.config.test_len + 1)

    def draw(self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False) -> Tensor:
        del unseen  # tests draw from the same distribution, or choose a longer length
        inputs = torch.randint(2, (len(lengths), int(lengths.max())), generator=generator)
        return inputs.scatter_(1, lengths[:, None] - 1, END)

    def answer(self, inputs: Tensor) -> Tensor:
        return torch.where(inputs == END, (inputs == 1).cumsum(1) % 2, IGNORE)

    def relevance(self, inputs: Tensor) -> Tensor:
        before = torch.ones_like(inputs[0], dtype=torch.bool).expand(inputs.shape[1], -1).tril()
        return (inputs == END)[:, :, None] & (inputs != END)[:, None, :] & before
