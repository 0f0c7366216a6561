"""Copy, Reverse and Sort: the answer is a permutation of the source, so the alignment is known exactly."""

import string
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated

import torch

from regard.arguments import Limits
from regard.data.vocabulary import CharacterVocabulary
from regard.errors import check_range
from regard.tasks.base import TaskOptions
from regard.tasks.pairs import Pair, PairTask


@dataclass(frozen=True, kw_only=True)
class SequenceConfig(TaskOptions):
    """Size of a reordering task."""

    max_len: Annotated[int, Limits(1, 1000)] = 20
    """Maximum number of symbols in a sequence. Lengths are uniform from 1 to this number."""
    vocab_size: Annotated[int, Limits(1, 26)] = 26
    """Number of different symbols: 1 to 26 letters, or 1 to 10 digits for sort."""


class _Reordering(PairTask):
    """Maps a sequence of uniformly sampled symbols to the same symbols in a different order."""

    config_class = SequenceConfig
    symbols = string.ascii_uppercase
    # The context is also an input of the decoder's cell, because distinguishing repeated symbols requires the
    # previous source position.
    defaults = {"context": "both", "steps": 3500}

    def __init__(self, config: SequenceConfig | None = None) -> None:
        self.config = SequenceConfig(vocab_size=len(self.symbols)) if config is None else config
        check_range("vocab_size", self.config.vocab_size, 1, len(self.symbols))
        self.alphabet = self.symbols[: self.config.vocab_size]
        self.source_vocabulary = self.target_vocabulary = CharacterVocabulary(self.alphabet)
        self.max_source = self.max_target = self.config.max_len

    @abstractmethod
    def order(self, source: str) -> list[int]:
        """Return the positions of the source in the order of the answer."""

    def alignment(self, source: str) -> tuple[tuple[int, ...], ...]:
        return tuple((position,) for position in self.order(source))

    def known(self, source: str) -> Pair | None:
        if len(source) > self.config.max_len or not set(source) <= set(self.alphabet):
            return None
        return Pair(source, "".join(source[p] for p in self.order(source)), self.alignment(source))

    def pair(self, generator: torch.Generator, *, sample_len: int | None = None, unseen: bool = False) -> Pair:
        del unseen  # training covers a negligible fraction of 26 ** 20 sequences
        return self.uniform_pair(self.alphabet, generator, sample_len)


class Copy(_Reordering):
    """ "CAB" has the answer "CAB"."""

    name = "copy"
    summary = "repeat the sequence"

    def order(self, source: str) -> list[int]:
        return list(range(len(source)))


class Reverse(_Reordering):
    """ "CAB" has the answer "BAC"."""

    name = "reverse"
    summary = "write the sequence backwards"

    def order(self, source: str) -> list[int]:
        return list(range(len(source)))[::-1]


class Sort(_Reordering):
    """ "3121" has the answer "1123"; each digit is aligned with all equal digits."""

    name = "sort"
    summary = "write the digits in ascending order"
    defaults = {**_Reordering.defaults, "vocab_size": 10}
    symbols = string.digits

    def order(self, source: str) -> list[int]:
        return sorted(range(len(source)), key=source.__getitem__)

    def alignment(self, source: str) -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(position for position, digit in enumerate(source) if digit == answer) for answer in sorted(source)
        )
