"""Several corpora as one. Each corpus contributes in proportion to its weight:

    share of corpus i = weight i / sum of all weights

A mixture has no end. Up to the end of any pool (see `buckets`), the pairs of each corpus equal its share to
within one pair. Each corpus has its own epochs, with its segments in a new random order each time, so a small
corpus with a large weight repeats sooner. The position in each corpus follows from the number of the pool alone,
so training resumes in a mixture as in one corpus.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from regard.data import corpus as sizes
from regard.data.corpus import Corpus, PairRange

MIN_SEGMENTS = 5
"""The minimal number of segments in a pool, so that batches contain sentences of similar length."""


@dataclass(frozen=True)
class Mixture:
    """Corpora with their weights."""

    corpora: tuple[Corpus, ...]
    weights: tuple[float, ...]
    """One positive weight per corpus. Only their ratios matter."""

    @property
    def longest(self) -> int:
        """Tokens of the longest sentence."""
        return max(corpus.longest for corpus in self.corpora)

    @property
    def summary(self) -> str:
        """The share and the number of pairs of each corpus, and the skipped pairs."""
        parts = zip(self.shares, self.corpora, strict=True)
        return ", and ".join(f"{float(share):.1%} from {corpus.summary}" for share, corpus in parts)

    @property
    def pools(self) -> int:
        """The number of pools. A mixture has a single epoch without an end."""
        return 1 << 62

    @property
    def shares(self) -> list[Fraction]:
        """The share of each corpus. The shares sum to 1."""
        # Use fractions, so that positions after any number of pools are exact.
        weights = [Fraction(weight) for weight in self.weights]
        return [weight / sum(weights) for weight in weights]

    @property
    def pool_size(self) -> int:
        """Pairs per pool: few enough that no corpus repeats within a pool, but at least `MIN_SEGMENTS`
        segments."""
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
        """Yield the pairs drawn from a corpus as numbers `begin` to `end` - 1, counted over all its epochs."""
        corpus = self.corpora[index]
        while begin < end:
            epoch, position = divmod(begin, len(corpus))
            stop = min(position + end - begin, len(corpus))
            # Seed with four numbers, so that the random stream differs from those of single corpora and of pools.
            order = np.random.default_rng((seed, epoch, index, 1)).permutation(-(-len(corpus) // sizes.SEGMENT))
            firsts = order * sizes.SEGMENT
            ends = np.minimum(sizes.SEGMENT, len(corpus) - firsts).cumsum()  # of each segment, in the epoch
            begins = np.array([0, *ends[:-1]])
            for segment in np.flatnonzero((ends > position) & (begins < stop)):
                shift = int(firsts[segment] - begins[segment])
                low, high = max(int(begins[segment]), position), min(int(ends[segment]), stop)
                yield corpus, shift + low, shift + high
            begin += stop - position
