"""Copy, Reverse, Sort: the answer is the source in another order, so the alignment is exact."""

import string
from abc import abstractmethod
from dataclasses import dataclass

import torch

from regard.data import CharacterVocabulary
from regard.errors import check_range
from regard.tasks.pairs import Pair, PairTask


@dataclass(frozen=True, kw_only=True)
class SequenceConfig:
    """Size of a task that puts a sequence into another order."""

    max_len: int = 20
    """Symbols in a sequence at most; each sample's length is uniform from 1 to this."""
    vocab_size: int = 26
    """Different symbols (1 to 26; for sort, digits, 1 to 10)."""

    def __post_init__(self) -> None:
        """Raise `InputError` where a value is out of range."""
        check_range("max_len", self.max_len, 1, 1000)
        check_range("vocab_size", self.vocab_size, 1, 26)


class _Reordering(PairTask):
    """Symbols, each uniform over the vocabulary, to the same symbols in another order."""

    config_class = SequenceConfig
    symbols = string.ascii_uppercase
    # Among repeated symbols a decoder has to know where it has just looked: its cell reads the context too.
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
        """Return, for each symbol of the answer, where it stood."""
        return tuple((position,) for position in self.order(source))

    def known(self, source: str) -> Pair | None:
        """Return the symbols in their new order; None where one is unknown or there are too many."""
        if len(source) > self.config.max_len or not set(source) <= set(self.alphabet):
            return None
        return Pair(source, "".join(source[p] for p in self.order(source)), self.alignment(source))

    def pair(self, generator: torch.Generator, *, sample_len: int | None = None, unseen: bool = False) -> Pair:
        """Draw a sequence of `sample_len` symbols (default: 1 to max_len); nothing needs to be held back."""
        del unseen  # of 26 ** 20 sequences, training sees next to none
        if sample_len is None:
            sample_len = int(torch.randint(1, self.config.max_len + 1, (), generator=generator))
        drawn = torch.randint(len(self.alphabet), (sample_len,), generator=generator).tolist()
        pair = self.known("".join(self.alphabet[index] for index in drawn))
        assert pair is not None
        return pair


class Copy(_Reordering):
    """ "CAB" has the answer "CAB"."""

    name = "copy"
    summary = "write the sequence again"

    def order(self, source: str) -> list[int]:
        """From first to last."""
        return list(range(len(source)))


class Reverse(_Reordering):
    """ "CAB" has the answer "BAC"."""

    name = "reverse"
    summary = "write the sequence backwards"

    def order(self, source: str) -> list[int]:
        """From last to first."""
        return list(range(len(source)))[::-1]


class Sort(_Reordering):
    """ "3121" has the answer "1123"; equal digits are each made from all of them."""

    name = "sort"
    summary = "write the digits in ascending order"
    defaults = {**_Reordering.defaults, "vocab_size": 10}
    symbols = string.digits

    def order(self, source: str) -> list[int]:
        """From the least to the largest."""
        return sorted(range(len(source)), key=source.__getitem__)

    def alignment(self, source: str) -> tuple[tuple[int, ...], ...]:
        """Return, for each digit of the answer, where its equals stood."""
        return tuple(
            tuple(position for position, digit in enumerate(source) if digit == answer)
            for answer in sorted(source)
        )
