"""BPE-dropout: a random segmentation for each occurrence of a word (Provilkov et al. 2020).

BPE merges pieces in the order in which the merges were learned. With dropout, each merge is skipped with a
given probability, so that a word is sometimes split into smaller pieces that also occur in other words. The
variation improves small models trained on small corpora.

A fixed number of segmentations of each word is sampled once with the seed. Each occurrence of the word uses one
of these segmentations at random. The cached segmentations cost almost no time, and a resumed training run
samples the same segmentations.
"""

import json
import zlib
from functools import lru_cache
from itertools import pairwise

import numpy as np

from regard.data.subwords import SubwordVocabulary
from regard.data.vocabulary import BLANK, EOS, UNKNOWN, LearnedVocabulary
from regard.errors import InputError, check_share

SEGMENTATIONS = 32
"""The number of segmentations of each word."""
WORDS = 200_000
"""The number of words whose segmentations are cached."""


class BpeDropout:
    """Splits encoded sentences again and skips each BPE merge with probability `rate`.

    Raises `InputError` for a rate out of range, or for a vocabulary that was not learned with BPE.
    """

    def __init__(self, vocabulary: LearnedVocabulary, rate: float, seed: int) -> None:
        check_share("merge_dropout", rate, below=True)
        model = json.loads(vocabulary.to_json())["model"] if isinstance(vocabulary, SubwordVocabulary) else {}
        if not isinstance(vocabulary, SubwordVocabulary) or model["type"] != "BPE" or not model["merges"]:
            raise InputError("merge_dropout skips merges: use it with --tokenizer bpe, which has merges")
        self.vocabulary, self.rate, self.seed = vocabulary, rate, seed
        self.indices: dict[str, int] = model["vocab"]
        self.ranks = {tuple(pair): rank for rank, pair in enumerate(model["merges"])}
        self._whole = {f"{blank}{symbol}" for symbol in vocabulary.whole for blank in (BLANK, "")}
        self._segmentations = lru_cache(WORDS)(self._draw_segmentations)

    def __call__(self, sentence: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Return a random segmentation (T',) of a sentence of indices (T,) with its end of sequence."""
        words = self.vocabulary.words(self.vocabulary.decode(sentence.tolist()))
        choices = random.integers(SEGMENTATIONS, size=len(words)).tolist()
        indices = [
            index
            for word, choice in zip(words, choices, strict=True)
            for index in self._segmentations(word)[choice]
        ]
        return np.array([*indices, EOS], dtype=sentence.dtype)

    def _draw_segmentations(self, word: str) -> list[list[int]]:
        if word in self._whole:
            return [[self.indices[word]]] * SEGMENTATIONS
        # The word is part of the seed, so that segmentations do not depend on the order of words.
        random = np.random.default_rng((self.seed, zlib.crc32(word.encode())))
        return [
            [index for piece in self.split(word, random) for index in self._find(piece)]
            for _ in range(SEGMENTATIONS)
        ]

    def _find(self, piece: str) -> list[int]:
        if piece in self.indices:
            return [self.indices[piece]]
        return self.vocabulary.byte_tokens(piece) or [UNKNOWN]

    def split(self, word: str, random: np.random.Generator) -> list[str]:
        """Return the pieces of a word (algorithm 1 of the paper)."""
        pieces = list(word)
        while len(pieces) > 1:
            draws = random.random(len(pieces) - 1)
            merges = [
                (self.ranks[pair], index)
                for index, pair in enumerate(pairwise(pieces))
                if pair in self.ranks and draws[index] >= self.rate
            ]
            if not merges:
                break
            _, index = min(merges)
            pieces[index : index + 2] = ["".join(pieces[index : index + 2])]
        return pieces
