"""Dropout of merges: the same word cut in another way each time it is met (BPE-dropout, Provilkov et al. 2020).

Byte-pair encoding joins pieces in the order in which it learned to. With dropout, each join is passed over with
some probability, so that a rare word is sometimes met in smaller pieces, which other words share. A small
translator learns more from a small corpus that way.

For each word a number of ways to cut it are drawn once, by the seed; which of them stands in a sentence is then
drawn anew each time. So it costs next to nothing, and a resumed training meets the same pieces.
"""

import json
import zlib
from functools import lru_cache
from itertools import pairwise

import numpy as np

from regard.data.subwords import SubwordVocabulary
from regard.data.vocabulary import EOS, UNKNOWN, LearnedVocabulary
from regard.errors import InputError, check_share

WAYS = 32
"""Ways to cut each word."""
WORDS = 200_000
"""Words whose ways are kept in memory: the latest."""


class BpeDropout:
    """Cuts sentences of a BPE vocabulary anew, each join passed over with probability `rate`.

    Raises `InputError` for a rate out of range, or a vocabulary of another kind.
    """

    def __init__(self, vocabulary: LearnedVocabulary, rate: float, seed: int) -> None:
        check_share("merge_dropout", rate, below=True)
        model = json.loads(vocabulary.to_json())["model"] if isinstance(vocabulary, SubwordVocabulary) else {}
        if not isinstance(vocabulary, SubwordVocabulary) or model["type"] != "BPE" or not model["merges"]:
            raise InputError("merge_dropout needs merges to drop: use it with --tokenizer bpe")
        self.vocabulary, self.rate, self.seed = vocabulary, rate, seed
        self.indices: dict[str, int] = model["vocab"]
        self.ranks = {tuple(pair): rank for rank, pair in enumerate(model["merges"])}
        self._ways = lru_cache(WORDS)(self._draw_ways)

    def __call__(self, sentence: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Return a sentence of indices (T,), with its end of sequence, cut anew: (T',)."""
        words = self.vocabulary.words(self.vocabulary.decode(sentence.tolist()))
        chosen = random.integers(WAYS, size=len(words)).tolist()
        cut = [index for word, way in zip(words, chosen, strict=True) for index in self._ways(word)[way]]
        return np.array([*cut, EOS], dtype=sentence.dtype)

    def _draw_ways(self, word: str) -> list[list[int]]:
        random = np.random.default_rng((self.seed, zlib.crc32(word.encode())))
        return [[self.indices.get(piece, UNKNOWN) for piece in self.cut(word, random)] for _ in range(WAYS)]

    def cut(self, word: str, random: np.random.Generator) -> list[str]:
        """Return the pieces of a word: algorithm 1 of the paper."""
        pieces = list(word)
        while len(pieces) > 1:
            drawn = random.random(len(pieces) - 1)
            joins = [
                (self.ranks[pair], place)
                for place, pair in enumerate(pairwise(pieces))
                if pair in self.ranks and drawn[place] >= self.rate
            ]
            if not joins:
                break
            _, place = min(joins)
            pieces[place : place + 2] = ["".join(pieces[place : place + 2])]
        return pieces
