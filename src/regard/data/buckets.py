"""Batches of sentences of similar length from a corpus, limited by a number of tokens, in a resumable order.

An epoch reads segments of adjacent pairs in random order. A pool of segments is sorted by length and split into
batches whose number of tokens, including padding, is within the limit. The batches of a pool are shuffled.
Memory contains only one pool, regardless of the size of the corpus. A batch is identified by its position:
epoch, pool, and batch in the pool.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.data.batch import PairBatch
from regard.data.corpus import Corpus, Mixture
from regard.data.guided_alignment import GuidedAlignment, target_attention
from regard.data.vocabulary import PAD
from regard.errors import InputError


class BatchPosition(NamedTuple):
    """The position of a batch."""

    epoch: int
    pool: int
    batch: int


BEGIN = BatchPosition(0, 0, 0)
Resegment = Callable[[np.ndarray, np.random.Generator], np.ndarray]
"""Maps the indices of a sentence to a random segmentation of the sentence (see `bpe_dropout`)."""


@dataclass
class Buckets:
    """The batches of a corpus or a mixture. Raises `InputError` if the longest sentence alone exceeds `tokens`."""

    corpus: Corpus | Mixture
    tokens: int  # Largest number of tokens in a batch on the longer side, including padding
    seed: int
    place: BatchPosition = BEGIN  # The position of the next batch
    resegment: tuple[Resegment, Resegment] | None = None
    """Functions that sample segmentations of sources and targets (see `Resegment`)."""
    max_pairs: int = 0  # Largest number of pairs in a batch; 0: no limit
    guide: GuidedAlignment | None = None  # Alignment of the corpus, which is added to the batches, or None

    def __post_init__(self) -> None:
        if self.tokens < self.corpus.longest:
            raise InputError(
                f"tokens {self.tokens} is less than the {self.corpus.longest} tokens of the longest sentence "
                f"in the corpus: raise --tokens, or lower --max_len"
            )
        self._pool: list[tuple[list[np.ndarray], ...]] = []
        self._drawn: tuple[int, int] | None = None

    def draw(self, step: int = 0) -> PairBatch:
        epoch, pool, number = self.place
        if self._drawn != (epoch, pool):
            self._pool, self._drawn = self._draw_pool(epoch, pool), (epoch, pool)
        if not 0 <= number < len(self._pool):
            raise InputError(
                f"batch {number} of pool {pool} does not exist, because the text has changed since training "
                f"began: restore the text, or start a new training run"
            )
        source, target, *links = self._pool[number]
        if number + 1 < len(self._pool):
            self.place = BatchPosition(epoch, pool, number + 1)
        elif pool + 1 < self.corpus.pools:
            self.place = BatchPosition(epoch, pool + 1, 0)
        else:
            self.place = BatchPosition(epoch + 1, 0, 0)
        batch = PairBatch(pad_sentences(source), pad_sentences(target))
        if not links:
            return batch
        shape = (len(source), batch.target.shape[1], batch.source.shape[1])
        return batch._replace(alignment=target_attention(links[0], shape))

    def _draw_pool(self, epoch: int, pool: int) -> list[tuple[list[np.ndarray], ...]]:
        """Return the batches of a pool in random order: sources, targets, and links for a guided alignment."""
        random = np.random.default_rng((self.seed, epoch, pool))
        ranges = self.corpus.ranges(self.seed, epoch, pool)
        sides: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        for corpus, begin, end in ranges:
            for side, sentences in zip(sides, corpus.read(begin, end), strict=True):
                side += sentences
        if self.resegment is not None:
            source, target = self.resegment
            sides = [source(row, random) for row in sides[0]], [target(row, random) for row in sides[1]]
        lengths = np.array([[len(sentence) for sentence in side] for side in sides]).T
        # Sort by target length, then by source length, then at random.
        ranks = np.lexsort((random.random(len(lengths)), lengths[:, 0], lengths[:, 1]))
        bounds = split_batches(lengths.max(1)[ranks], self.tokens, self.max_pairs)
        # Shuffle the batches, so that sentences do not become longer within a pool.
        batches = [ranks[slice(*bounds[index])] for index in random.permutation(len(bounds))]
        columns: list[list[np.ndarray]] = [*sides]
        if self.guide is not None:
            columns.append([links for _, begin, end in ranges for links in self.guide.read(begin, end)])
        return [tuple([column[row] for row in rows] for column in columns) for rows in batches]


def split_batches(lengths: np.ndarray, tokens: int, max_pairs: int = 0) -> list[tuple[int, int]]:
    """Split sentences of `lengths` (N,) into consecutive batches of at most `tokens`, including padding.

    `max_pairs`: largest number of sentences in a batch; 0: no limit. A sentence longer than `tokens` is a batch of one
    sentence. Returns the index of the first sentence of each batch, and the index after the last sentence.

    >>> split_batches(np.array([2, 3, 3, 9]), 6)
    [(0, 2), (2, 3), (3, 4)]
    """
    batches, begin, longest = [], 0, 0
    for index, length in enumerate(lengths.tolist()):
        count = index + 1 - begin
        if index > begin and (max(longest, length) * count > tokens or 0 < max_pairs < count):
            batches.append((begin, index))
            begin, longest = index, 0
        longest = max(longest, length)
    return [*batches, (begin, len(lengths))]


def pad_sentences(sentences: Sequence[np.ndarray]) -> Tensor:
    """Join sentences into one tensor (B, T) int64, padded with `PAD`.

    >>> pad_sentences([np.array([5, 6, 2]), np.array([7, 2])])
    tensor([[5, 6, 2],
            [7, 2, 0]])
    """
    padded = np.full((len(sentences), max(map(len, sentences))), PAD, dtype=np.int64)
    for row, sentence in enumerate(sentences):
        padded[row, : len(sentence)] = sentence
    return torch.from_numpy(padded)
