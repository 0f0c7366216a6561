"""Several corpora as one, each drawn from in proportion to its weight, over and over.

    share of corpus i = weight i / sum of all weights

A mixture has no end. Of the pairs that are served up to the end of any pool (see `buckets`), each corpus has its
share, to within one pair. Each corpus is served in epochs of its own, its chunks in another random order each
time; so a small one with a large weight comes round sooner. Where each corpus stands follows from the number of
the pool alone, so that a place in a mixture is a place as in one corpus, and can be taken up in the same way.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from regard.data import corpus as sizes
from regard.data.corpus import Corpus, PairRange

LEAST = 5
"""Chunks in a pool at least, however small a corpus, so that batches can be of like length."""


@dataclass(frozen=True)
class Mixture:
    """Corpora, and how much of what is served comes from each."""

    corpora: tuple[Corpus, ...]
    weights: tuple[float, ...]
    """Above 0, one for each corpus; only their ratios matter."""

    @property
    def longest(self) -> int:
        """Tokens of the longest sentence."""
        return max(each.longest for each in self.corpora)

    @property
    def summary(self) -> str:
        """How much is drawn from how many pairs, and what was left out."""
        parts = zip(self.shares, self.corpora, strict=True)
        return ", and ".join(f"{float(share):.1%} from {corpus.summary}" for share, corpus in parts)

    @property
    def pools(self) -> int:
        """A mixture is one epoch without an end."""
        return 1 << 62

    @property
    def shares(self) -> list[Fraction]:
        """Of the pairs that are served, by corpus; they sum to 1."""
        exact = [Fraction(weight) for weight in self.weights]
        return [weight / sum(exact) for weight in exact]

    @property
    def pool_size(self) -> int:
        """Pairs in a pool: so few that no corpus comes round twice in one, if that is not below the least."""
        rounds = [int(len(each) / share) for each, share in zip(self.corpora, self.shares, strict=True)]
        return max(LEAST * sizes.CHUNK, min(sizes.POOL * sizes.CHUNK, *rounds))

    def spans(self, seed: int, epoch: int, pool: int) -> list[PairRange]:
        """Return the pairs of a pool, counted from 0, corpus by corpus; `epoch` is 0 always."""
        del epoch
        return [
            span
            for index, share in enumerate(self.shares)
            for span in self._served(index, seed, *(int(at * self.pool_size * share) for at in (pool, pool + 1)))
        ]

    def _served(self, index: int, seed: int, begin: int, end: int) -> Iterator[PairRange]:
        """Yield what is served of a corpus from place `begin` to before `end`, counted over all its epochs."""
        corpus = self.corpora[index]
        while begin < end:
            epoch, place = divmod(begin, len(corpus))
            stop = min(place + end - begin, len(corpus))
            order = np.random.default_rng((seed, epoch, index, 1)).permutation(-(-len(corpus) // sizes.CHUNK))
            firsts = order * sizes.CHUNK
            ends = np.minimum(sizes.CHUNK, len(corpus) - firsts).cumsum()  # in the epoch, of each chunk
            begins = np.array([0, *ends[:-1]])
            for chunk in np.flatnonzero((ends > place) & (begins < stop)):
                shift = int(firsts[chunk] - begins[chunk])
                low, high = max(int(begins[chunk]), place), min(int(ends[chunk]), stop)
                yield corpus, shift + low, shift + high
            begin += stop - place
