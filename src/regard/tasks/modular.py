"""Addition modulo p, trained on some of the pairs of numbers (Power et al. 2022, "Grokking"; Nanda et al. 2023,
"Progress measures for grokking via mechanistic interpretability").

Answers for held-out pairs become correct long after the answers for training pairs, and only with weight decay.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import torch
from torch import Tensor

from regard.arguments import Limits
from regard.errors import InputError
from regard.streams import make_generator
from regard.tasks.base import TaskOptions
from regard.tasks.batch import IGNORE, BatchContext, BatchSettings, TokenBatch
from regard.tasks.tokens import TokenBatches, TokenTask, mark_positions


@dataclass(frozen=True, kw_only=True)
class ModularTaskConfig(TaskOptions):
    """Size of the task."""

    modulus: Annotated[int, Limits(2, 1000)] = 59
    """Modulus p. Numbers are from 0 to p - 1."""
    train_share: float = 0.3
    """Fraction of the p * p pairs that are used for training (above 0 and less than 1). The held-out pairs are
    the same for every seed."""

    def check_sizes(self) -> None:
        pairs = self.modulus**2
        if not 1 <= round(self.train_share * pairs) < pairs:
            raise InputError(
                f"train_share {self.train_share} of {pairs} pairs is out of range: leave at least one pair "
                f"for training and one held-out pair"
            )


class Modular(TokenTask):
    """Two numbers and "=", such as "5 57 =", which has the answer 3 for the modulus 59.

    The answer depends on both numbers. (a, b) and (b, a) are different pairs, as in both papers.
    """

    name = "modular"
    summary = "add two numbers modulo p; some pairs are held out"
    config_class = ModularTaskConfig
    # One layer as in Nanda et al. Smaller batches and a higher rate than theirs take less time.
    defaults = {
        "hidden": 128,
        "layers": 1,
        "inner": 512,
        "activation": "relu",
        "tied": False,
        "batchsize": 256,
        "steps": 4000,
        "lr": 0.003,
        "weight_decay": 1.0,
    }

    def __init__(self, config: ModularTaskConfig | None = None) -> None:
        super().__init__(config)
        self.vocabulary = [*map(str, range(self.config.modulus)), "="]

    @property
    def lengths(self) -> range:
        return range(3, 4)

    @cached_property
    def pairs(self) -> tuple[Tensor, Tensor]:
        """The training pairs and the held-out pairs, each (pairs, 2) int64.

        The pairs are sorted by their SHA-256 digest, so the split does not depend on the seed or on a library.
        """
        modulus = self.config.modulus
        pairs = sorted(
            ((first, second) for first in range(modulus) for second in range(modulus)),
            key=lambda pair: hashlib.sha256(f"{modulus}/{pair}".encode()).digest(),
        )
        both = torch.tensor(pairs)
        return both.tensor_split([round(self.config.train_share * len(both))])  # type: ignore[return-value]

    def draw(self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False) -> Tensor:
        pairs = self.pairs[unseen]
        return self._inputs(pairs[torch.randint(len(pairs), (len(lengths),), generator=generator)])

    def _inputs(self, pairs: Tensor) -> Tensor:
        return torch.nn.functional.pad(pairs, (0, 1), value=self.config.modulus)

    def answer(self, inputs: Tensor) -> Tensor:
        modulus = self.config.modulus
        sums = (inputs.roll(1, 1) + inputs.roll(2, 1)) % modulus
        return torch.where(self._ends_sum(inputs), sums, IGNORE)

    def relevance(self, inputs: Tensor) -> Tensor:
        current = torch.arange(inputs.shape[1], device=inputs.device).expand_as(inputs)
        return mark_positions([current - 1, current - 2], self._ends_sum(inputs))

    def _ends_sum(self, inputs: Tensor) -> Tensor:
        """Return (B, T) bool, True at the third token if the tokens are two numbers and "="."""
        modulus, ends = self.config.modulus, torch.zeros_like(inputs, dtype=torch.bool)
        if inputs.shape[1] == 3:
            ends[:, 2] = (inputs[:, 2] == modulus) & (inputs[:, :2] < modulus).all(1)
        return ends

    def batches(self, settings: BatchSettings, beginning: BatchContext) -> TokenBatches:
        """Return batches of distinct training pairs. A batch contains all pairs if `batchsize` is large
        enough."""
        del beginning
        return _PairBatches(self, settings)


class _PairBatches(TokenBatches):
    """Batches of distinct training pairs, in random order unless each batch contains all pairs."""

    task: Modular

    def draw(self, step: int) -> TokenBatch:
        pairs, size = self.task.pairs[0], self.settings.batchsize
        if size < len(pairs):
            generator = make_generator(self.settings.seed, f"tokens/{step}")
            pairs = pairs[torch.randperm(len(pairs), generator=generator)[:size]]
        inputs = self.task._inputs(pairs)
        return TokenBatch(inputs, self.task.answer(inputs), None)
