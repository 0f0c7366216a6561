"""Multi-query associative recall: key-value pairs, then some of the keys again, each followed by its value.

Arora et al. 2023, "Zoology: Measuring and Improving Recall in Efficient Language Models". As in the paper, the
distance from the end of the pairs to a query follows a power law. Departure from the paper: each query is
followed by its value instead of noise, so that a model can generate the sequence. Each key is queried once, so
this value does not reveal any later answer.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import check_range
from regard.tasks.batch import IGNORE
from regard.tasks.tokens import TokenTask, earlier_equal, mark_positions

NOISE = "."
POWER = 0.01
"""Exponent of the distance's distribution: a distance of j slots has a probability proportional to j ** -0.99."""


@dataclass(frozen=True, kw_only=True)
class MqarTaskConfig:
    """Size of the task."""

    max_len: int = 64
    """Number of tokens in a sequence: pairs, then queries and noise; at least 4 times the number of pairs."""
    pairs: int = 8
    """Number of key-value pairs, each queried once."""
    vocab_size: int = 128
    """Number of tokens without noise (even): the first half are keys, the second half are values."""

    def __post_init__(self) -> None:
        """Raise `InputError` if a value is out of range."""
        check_range("vocab_size", self.vocab_size, 2, 100_000)
        check_range("pairs", self.pairs, 1, self.vocab_size // 2)
        check_range("max_len", self.max_len, 4 * self.pairs, 10_000)


class Mqar(TokenTask):
    """Pairs of a key and a value, then queries: "k3 v5 k1 v2 . . k1 v2 k3 v5" has the answers v2 and v5.

    The answer to a query depends on the query, on the earlier occurrence of its key, and on the value after
    this key.
    """

    name = "mqar"
    summary = "key-value pairs, then keys again: what are their values?"
    config_class = MqarTaskConfig
    defaults = {"steps": 3000}

    def __init__(self, config: MqarTaskConfig | None = None) -> None:
        super().__init__(config)
        self.keys = self.config.vocab_size // 2
        keys, values = ([f"{letter}{number}" for number in range(1, self.keys + 1)] for letter in "kv")
        self.vocabulary = [NOISE, *keys, *values]

    @property
    def lengths(self) -> range:
        """Lengths from 4 * `pairs`, without noise, to `max_len`."""
        return range(4 * self.config.pairs, self.config.max_len + 1)

    def draw(self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False) -> Tensor:
        """Sample pairs with different keys, and for each query a position of two tokens after the pairs."""
        del unseen  # training sees a negligible share of the sequences
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
        return inputs.scatter_(1, queries, keys).scatter_(1, queries + 1, values)

    def answer(self, inputs: Tensor) -> Tensor:
        """Return the value of each key that occurred earlier with a value."""
        values, is_query = self._values(inputs)
        return torch.where(is_query, values, IGNORE)

    def relevance(self, inputs: Tensor) -> Tensor:
        """Each answer depends on the query, the earlier occurrence of the key, and the value after this
        occurrence."""
        earlier, (_, is_query) = earlier_equal(inputs), self._values(inputs)
        current = torch.arange(inputs.shape[1], device=inputs.device).expand_as(inputs)
        return mark_positions([current, earlier, earlier + 1], is_query)

    def _values(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the token after the last earlier occurrence of each token, and whether this token answers a
        query."""
        earlier = earlier_equal(inputs)
        values = inputs.gather(1, earlier + 1)
        is_key = (inputs > 0) & (inputs <= self.keys)
        return values, is_key & (earlier >= 0) & (values > self.keys)
