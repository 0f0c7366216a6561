"""Batches of like length from a corpus, by a budget of tokens, in an order that can be taken up anywhere.

An epoch takes the corpus in chunks of neighbouring pairs, in random order. A few chunks make a pool, which is
sorted by length and cut into batches whose tokens, padding included, stay within the budget; these are served in
random order. So memory holds one pool, however long the corpus; and a batch is known by its place: epoch, pool,
and batch in the pool.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.data.batch import PairBatch
from regard.data.corpus import Corpus, PairRange
from regard.data.guided_alignment import GuidedAlignment, target_attention
from regard.data.mixture import Mixture
from regard.data.vocabulary import PAD, UNKNOWN
from regard.errors import InputError


class BatchPosition(NamedTuple):
    """Which batch comes next."""

    epoch: int
    pool: int
    batch: int


BEGIN = BatchPosition(0, 0, 0)
Resegment = Callable[[np.ndarray, np.random.Generator], np.ndarray]
"""From a sentence's indices to those of the same sentence, cut differently."""


@dataclass
class Buckets:
    """The batches of a corpus, or of a mixture; `tokens` in each at most, of source or target, whichever has
    more, and `most` pairs, where that is not 0.

    Raises `InputError` where the longest sentence alone has more.
    """

    corpus: Corpus | Mixture
    tokens: int
    seed: int
    place: BatchPosition = BEGIN
    recut: tuple[Resegment, Resegment] | None = None
    """Cuts sources and targets into other pieces, each time they are served."""
    most: int = 0
    guide: GuidedAlignment | None = None
    """Links of the corpus, whose aims batches are to bring."""
    sharing: tuple[int, int] = (0, 1)
    """Which process this is, and of how many that share each batch, row by row (`PairBatch.share`). Only its own
    rows are read; of the others a batch has the lengths, so that all processes have the same batches."""

    def __post_init__(self) -> None:
        if self.tokens < self.corpus.longest:
            raise InputError(
                f"tokens {self.tokens} hold no sentence of {self.corpus.longest} tokens, the longest of the "
                f"corpus: raise --tokens, or lower --max_len"
            )
        self._pool: list[tuple[list[np.ndarray], ...]] = []
        self._drawn: tuple[int, int] | None = None

    def draw(self, step: int = 0) -> PairBatch:
        """Return the next batch, and move on; at which training step does not matter."""
        del step
        epoch, pool, batch = self.place
        if self._drawn != (epoch, pool):
            self._pool, self._drawn = self._draw_pool(epoch, pool), (epoch, pool)
        if not 0 <= batch < len(self._pool):
            raise InputError(
                f"batch {batch} of pool {pool} is not in this text, which has changed since the training began: "
                f"bring it back, or train anew"
            )
        source, target, *links = self._pool[batch]
        if batch + 1 < len(self._pool):
            self.place = BatchPosition(epoch, pool, batch + 1)
        else:
            self.place = (
                BatchPosition(epoch, pool + 1, 0)
                if pool + 1 < self.corpus.pools
                else BatchPosition(epoch + 1, 0, 0)
            )
        found = PairBatch(pad_sentences(source), pad_sentences(target))
        if not links:
            return found
        return found._replace(
            alignment=target_attention(links[0], (len(source), found.target.shape[1], found.source.shape[1]))
        )

    def _draw_pool(self, epoch: int, pool: int) -> list[tuple[list[np.ndarray], ...]]:
        """Return the batches of a pool, in random order: sources, targets, and where there is a guide, links."""
        random = np.random.default_rng((self.seed, epoch, pool))
        spans = self.corpus.spans(self.seed, epoch, pool)
        if self.recut is not None:  # how long sentences are is known once they are cut
            sides = [
                [cut_anew(sentence, random) for sentence in side]
                for cut_anew, side in zip(self.recut, self._read(spans), strict=True)
            ]
            lengths = np.array([[len(each) for each in side] for side in sides]).T
            batches = self._batches(lengths, random)
        else:
            lengths = np.concatenate([corpus.lengths(begin, end) for corpus, begin, end in spans])
            batches = self._batches(lengths, random)
            sides = self._read(spans) if self.sharing[1] == 1 else self._read_mine(spans, batches, lengths)
        if self.guide is not None:
            sides.append([links for _, begin, end in spans for links in self.guide.read(begin, end)])
        return [tuple([side[row] for row in rows] for side in sides) for rows in batches]

    def _batches(self, lengths: np.ndarray, random: np.random.Generator) -> list[np.ndarray]:
        """Return which pairs of a pool make each batch; `lengths` (pairs, 2): of source and target."""
        # By target, then source, then chance.
        ranks = np.lexsort((random.random(len(lengths)), lengths[:, 0], lengths[:, 1]))
        batches = split_batches(lengths.max(1)[ranks], self.tokens, self.most)
        return [ranks[slice(*batches[index])] for index in random.permutation(len(batches))]

    def _read(self, spans: Sequence[PairRange], mine: np.ndarray | None = None) -> list[list[np.ndarray]]:
        """Return sources and targets of pairs; with `mine` (pairs,) bool, all but those are empty."""
        rank, size = self.sharing if mine is not None else (0, 1)
        sides: list[list[np.ndarray]] = [[], []]
        for corpus, begin, end in spans:
            wanted = None if mine is None else mine[len(sides[0]) : len(sides[0]) + end - begin]
            for side, found in zip(sides, corpus.read(begin, end, wanted, rank=rank, size=size), strict=True):
                side += found
        return sides

    def _read_mine(
        self, spans: Sequence[PairRange], batches: Sequence[np.ndarray], lengths: np.ndarray
    ) -> list[list[np.ndarray]]:
        """Return sources and targets of pairs, of those of other processes symbols that stand for them."""
        rank, size = self.sharing
        mine = np.zeros(len(lengths), dtype=bool)
        for rows in batches:
            mine[rows[rank::size] if rank < len(rows) else rows[:1]] = True  # as `PairBatch.share` takes them
        return [
            [each if len(each) else np.full(length, UNKNOWN) for each, length in zip(side, most, strict=True)]
            for side, most in zip(self._read(spans, mine), lengths.T.tolist(), strict=True)
        ]


def split_batches(lengths: np.ndarray, tokens: int, most: int = 0) -> list[tuple[int, int]]:
    """Cut sentences of `lengths` (N,), in their order, into runs of at most `tokens`, padding included, and of at
    most `most` sentences, where that is not 0.

    A sentence that is longer stands alone.
    """
    batches, begin, longest = [], 0, 0
    for index, length in enumerate(lengths.tolist()):
        count = index + 1 - begin
        if index > begin and (max(longest, length) * count > tokens or 0 < most < count):
            batches.append((begin, index))
            begin, longest = index, 0
        longest = max(longest, length)
    return [*batches, (begin, len(lengths))]


def pad_sentences(sentences: Sequence[np.ndarray]) -> Tensor:
    """Return sentences as one tensor (B, T) int64, padded with `PAD`."""
    padded = np.full((len(sentences), max(map(len, sentences))), PAD, dtype=np.int64)
    for row, sentence in enumerate(sentences):
        padded[row, : len(sentence)] = sentence
    return torch.from_numpy(padded)
