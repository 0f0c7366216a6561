"""A mixture of several corpora. Each corpus contributes in proportion to its weight:

    fraction of corpus i = weight i / sum of all weights

A mixture is infinite. At the end of each pool (see `buckets`), the number of pairs from each corpus is exact to
within one pair. Each corpus has separate epochs with a new random order of segments, so a small corpus with a
large weight repeats sooner. The position in each corpus depends only on the number of the pool, so a training
run can be resumed in the same way as with a single corpus.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from regard.data import corpus as sizes
from regard.data.corpus import Corpus, PairRange

MIN_SEGMENTS = 5
"""Smallest number of segments in a pool, so that batches contain sentences of similar length."""


@dataclass(frozen=True)
class Mixture:
    """Corpora with their weights."""

    corpora: tuple[Corpus, ...]
    weights: tuple[float, ...]
    """One positive weight per corpus. Only their ratios matter."""

    @property
    def longest(self) -> int:
        return max(corpus.longest for corpus in self.corpora)

    @property
    def summary(self) -> str:
        parts = zip(self.shares, self.corpora, strict=True)
        return ", and ".join(f"{float(share):.1%} from {corpus.summary}" for share, corpus in parts)

    @property
    def pools(self) -> int:
        return 1 << 62

    @property
    def shares(self) -> list[Fraction]:
        # Use exact fractions, so that positions are exact after any number of pools.
        weights = [Fraction(weight) for weight in self.weights]
        return [weight / sum(weights) for weight in weights]

    @property
    def pool_size(self) -> int:
        """Number of pairs per pool: small enough that no corpus repeats within a pool, but at least
        `MIN_SEGMENTS` segments."""
        limits = [int(len(corpus) / share) for corpus, share in zip(self.corpora, self.shares, strict=True)]
        return max(MIN_SEGMENTS * sizes.SEGMENT, min(sizes.POOL * sizes.SEGMENT, *limits))

    def ranges(self, seed: int, epoch: int, pool: int) -> list[PairRange]:
        """Return the pairs of a pool, corpus by corpus. `epoch` is always 0."""
        del epoch
        return [
            part
            for index, share in enumerate(self.shares)
            for part in self._drawn(
                index, seed, *(int(number * self.pool_size * share) for number in (pool, pool + 1))
            )
        ]

    def _drawn(self, index: int, seed: int, begin: int, end: int) -> Iterator[PairRange]:
        """Yield the ranges of pairs `begin` to `end` - 1 from a corpus, counted over all its epochs."""
        corpus = self.corpora[index]
        while begin < end:
            epoch, position = divmod(begin, len(corpus))
            stop = min(position + end - begin, len(corpus))
            # The seed has four numbers, so that the random stream differs from the streams of single corpora
            # and of pools.
            order = np.random.default_rng((seed, epoch, index, 1)).permutation(-(-len(corpus) // sizes.SEGMENT))
            firsts = order * sizes.SEGMENT
            ends = np.minimum(sizes.SEGMENT, len(corpus) - firsts).cumsum()  # end of each segment in the epoch
            begins = np.array([0, *ends[:-1]])
            for segment in np.flatnonzero((ends > position) & (begins < stop)):
                shift = int(firsts[segment] - begins[segment])
                low, high = max(int(begins[segment]), position), min(int(ends[segment]), stop)
                yield corpus, shift + low, shift + high
            begin += stop - position
