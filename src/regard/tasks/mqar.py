"""Multi-query associative recall: key-value pairs, then the keys again among noise; what are their values?

Arora et al. 2023, "Zoology: Measuring and Improving Recall in Efficient Language Models". As there, the distance
from the end of the pairs to a query follows a power law, and noise follows each query. If the value is the next
input instead, a model can exclude the values of earlier queries: with 8 pairs, a model stayed at 37 % correct
outputs.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from regard.arguments import Limits
from regard.errors import check_range
from regard.tasks.base import TaskOptions
from regard.tasks.batch import IGNORE
from regard.tasks.tokens import TokenTask, mark_positions

NOISE = "."
POWER = 0.01
"""Exponent of the distance's distribution: a distance of j slots has a probability proportional to j ** -0.99."""


@dataclass(frozen=True, kw_only=True)
class MqarTaskConfig(TaskOptions):
    """Size of the task."""

    max_len: int = 48
    """Number of tokens in a sequence: pairs, then queries and noise; at least 4 times the number of pairs."""
    pairs: int = 8
    """Number of key-value pairs, each queried once."""
    vocab_size: Annotated[int, Limits(2, 100_000)] = 64
    """Number of tokens without noise (even): the first half are keys, the second half are values."""

    def check_sizes(self) -> None:
        check_range("pairs", self.pairs, 1, self.vocab_size // 2)
        check_range("max_len", self.max_len, 4 * self.pairs, 10_000)


class Mqar(TokenTask):
    """Pairs of a key and a value, then queries: "k3 v5 k1 v2 . . k1 . k3" has the answers v2 and v5.

    The answer to a query depends on the query, on the first occurrence of its key, and on the value after that.
    """

    name = "mqar"
    summary = "key-value pairs, then keys again: what are their values?"
    config_class = MqarTaskConfig
    # With feed-forward layers, 64 tokens and 128 symbols, 2000 steps leave the model at 19 % correct outputs.
    defaults = {"feed_forward": False, "steps": 2000, "lr": 0.005}

    def __init__(self, config: MqarTaskConfig | None = None) -> None:
        super().__init__(config)
        self.keys = self.config.vocab_size // 2
        keys, values = ([f"{letter}{number}" for number in range(1, self.keys + 1)] for letter in "kv")
        self.vocabulary = [NOISE, *keys, *values]

    @property
    def lengths(self) -> range:
        return range(4 * self.config.pairs, self.config.max_len + 1)

    def draw(self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False) -> Tensor:
        del unseen  # training draws a negligible fraction of all sequences
        batch, pairs = len(lengths), self.config.pairs
        keys = 1 + torch.rand(batch, self.keys, generator=generator).argsort(1)[:, :pairs]
        values = 1 + self.keys + torch.randint(self.keys, (batch, pairs), generator=generator)
        slots = torch.arange((int(lengths.max()) - 2 * pairs) // 2)
        # Selecting the largest sums of log-probability and Gumbel noise is sampling without replacement.
        uniform = torch.rand(batch, len(slots), generator=generator, dtype=torch.float64)
        scores = (POWER - 1) * (slots + 1).log() - uniform.log().neg().log()
        scores = scores.masked_fill(slots >= (lengths[:, None] - 2 * pairs) // 2, float("-inf"))
        queries = 2 * pairs + 2 * scores.topk(pairs).indices
        inputs = torch.zeros(batch, int(lengths.max()), dtype=torch.int64)
        inputs[:, : 2 * pairs] = torch.stack([keys, values], dim=2).flatten(1)
        return inputs.scatter_(1, queries, keys)

    def answer(self, inputs: Tensor) -> Tensor:
        first, is_query = self._first(inputs)
        return torch.where(is_query, inputs.gather(1, (first + 1).clamp_max(inputs.shape[1] - 1)), IGNORE)

    def relevance(self, inputs: Tensor) -> Tensor:
        first, is_query = self._first(inputs)
        current = torch.arange(inputs.shape[1], device=inputs.device).expand_as(inputs)
        return mark_positions([current, first, first + 1], is_query)

    def _first(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the first position (B, T) of each token, and where it is a query: a key that has a value."""
        positions = torch.arange(inputs.shape[1], device=inputs.device)
        first = (inputs[:, :, None] == inputs[:, None, :]).int().argmax(2)
        is_query = (inputs > 0) & (inputs <= self.keys) & (first < positions)
        first = torch.where(is_query, first, 0)
        return first, is_query & (inputs.gather(1, (first + 1).clamp_max(len(positions) - 1)) > self.keys)
