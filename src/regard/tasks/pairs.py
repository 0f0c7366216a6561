"""Base classes of sequence-to-sequence tasks. Most of these tasks use characters and have a known alignment.

Shapes: B batch, Ts source steps, Tt target steps. A sample is a `Pair` of source, target and alignment. The
alignment contains the source characters from which each target character derives.
"""

import string
import zlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import torch
from torch import Tensor

from regard.arguments import Limits
from regard.data.batch import PairBatch, collate
from regard.data.vocabulary import CharacterVocabulary, Vocabulary
from regard.errors import InputError, check_range
from regard.streams import make_generator
from regard.tasks.base import AnyTask, TaskOptions
from regard.tasks.batch import NO_POSITION, BatchContext, BatchSettings

BATCHES_PER_POOL = 16  # Number of batches that are sampled together and sorted by length
HELD_OUT_ONE_IN = 10  # The fraction of samples held out from training is 1 divided by this number


class Pair(NamedTuple):
    """A source, its target, and their alignment."""

    source: str
    target: str
    alignment: tuple[tuple[int, ...], ...]
    """Source positions of each target character; empty for a character without a source."""


class SequenceTask(AnyTask):
    """A task whose answer is a sequence.

    Subclasses set `name`, `summary`, `defaults` and `config_class`, and define `source_vocabulary`,
    `target_vocabulary`, `longest_source` and `longest_target`.
    """

    answers = "text"

    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary
    shared = False  # Whether source and target share one vocabulary, so that a model shares one embedding

    @property
    @abstractmethod
    def longest_source(self) -> int:
        """Maximum number of symbols of a source that a model accepts."""

    @property
    @abstractmethod
    def longest_target(self) -> int:
        """Maximum number of symbols of an answer."""

    @property
    def sizes(self) -> Mapping[str, int]:
        return {
            "source_symbols": len(self.source_vocabulary),
            "target_symbols": len(self.target_vocabulary),
            "longest": max(self.longest_source, self.longest_target) + 1,  # includes the end of sequence
            "shared": self.shared,
        }

    @property
    def vocabularies(self) -> tuple[Vocabulary, Vocabulary]:
        return self.source_vocabulary, self.target_vocabulary

    def known(self, source: str) -> Pair | None:
        """Return the pair of a source and the true answer, or None if the answer is unknown."""
        return None


class LengthSortedBatches:
    """Batches of a training run with sources of similar length, to reduce padding. A pool of `BATCHES_PER_POOL` batches
    is sampled together, sorted by length, split, and returned in random order. Each pool has a separate random stream,
    so a resumed training run samples the same batches at any step."""

    place = NO_POSITION

    def __init__(self, task: "PairTask", settings: BatchSettings) -> None:
        self.task, self.settings = task, settings
        self._number, self._pool = -1, list[list[Pair]]()

    def draw(self, step: int) -> PairBatch:
        number, index = divmod(step, BATCHES_PER_POOL)
        if number != self._number:
            self._number, self._pool = number, self._draw_pool(number)
        return self.task.batch(self._pool[index])

    def _draw_pool(self, number: int) -> list[list[Pair]]:
        size = self.settings.batchsize
        generator = make_generator(self.settings.seed, f"pairs/{number}")
        pairs = sorted(self.task.pairs(BATCHES_PER_POOL * size, generator), key=lambda pair: len(pair.source))
        order = torch.randperm(BATCHES_PER_POOL, generator=generator).tolist()
        return [pairs[index * size : (index + 1) * size] for index in order]


class PairTask(SequenceTask):
    """Base class of sequence-to-sequence tasks that sample their pairs.

    Subclasses also define `max_source`, `max_target`, `pair` and `known`.
    """

    max_source: int  # Number of characters in the longest source
    max_target: int  # Number of characters in the longest target
    fixed: ClassVar[str] = ""  # What the sources are, if their length cannot be chosen

    @abstractmethod
    def pair(self, generator: torch.Generator, *, sample_len: int | None = None, unseen: bool = False) -> Pair:
        """Sample a pair. With `unseen`, sample a pair that is held out from training, if the task holds out pairs."""

    @abstractmethod
    def known(self, source: str) -> Pair | None:
        """Return the pair of a source and the true answer, or None if the source does not belong to the task."""

    def uniform_pair(self, alphabet: str, generator: torch.Generator, length: int | None) -> Pair:
        """Sample a source of `length` symbols (None: 1 to `max_source`), each uniform over `alphabet`."""
        if length is None:
            length = int(torch.randint(1, self.max_source + 1, (), generator=generator))
        drawn = torch.randint(len(alphabet), (length,), generator=generator).tolist()
        pair = self.known("".join(alphabet[index] for index in drawn))
        assert pair is not None
        return pair

    @property
    def longest_source(self) -> int:
        return 10 * self.max_source

    @property
    def longest_target(self) -> int:
        return 2 * self.max_target

    def batches(self, settings: BatchSettings, beginning: BatchContext) -> LengthSortedBatches:
        return LengthSortedBatches(self, settings)

    def check_sample_len(self, sample_len: int | None) -> None:
        if sample_len is not None and self.fixed:
            raise InputError(f"sample_len {sample_len} does not apply: {self.fixed} have no adjustable length")
        if sample_len is not None:
            check_range("sample_len", sample_len, 1, self.max_source)

    def pairs(
        self, count: int, generator: torch.Generator, *, sample_len: int | None = None, unseen: bool = False
    ) -> list[Pair]:
        """Sample `count` pairs, equal ones for equal generators. Raises `InputError` for an invalid length."""
        self.check_sample_len(sample_len)
        return [self.pair(generator, sample_len=sample_len, unseen=unseen) for _ in range(count)]

    def example(self, generator: torch.Generator) -> tuple[str, str]:
        pair = self.pair(generator)
        return pair.source, pair.target

    def sample(self, batch: int, generator: torch.Generator) -> PairBatch:
        return self.batch(self.pairs(batch, generator))

    def batch(self, pairs: Sequence[Pair]) -> PairBatch:
        return PairBatch(
            collate([self.source_vocabulary.encode(pair.source) for pair in pairs]),
            collate([self.target_vocabulary.encode(pair.target) for pair in pairs]),
        )


def is_held_out(sample: bytes) -> bool:
    """Return whether a sample is held out, by a hash. All runs hold out the same samples."""
    return zlib.crc32(sample) % HELD_OUT_ONE_IN == 0


def alignment_mask(pairs: Sequence[Pair], source_len: int, target_len: int) -> Tensor:
    """Return the alignment of pairs as (B, Tt, Ts) bool, True where a source step is aligned with a target step."""
    mask = torch.zeros(len(pairs), target_len, source_len, dtype=torch.bool)
    for row, pair in enumerate(pairs):
        for step, positions in enumerate(pair.alignment):
            mask[row, step, list(positions)] = True
    return mask


# Copy, Reverse and Sort: the answer is a permutation of the source, so the alignment is known exactly.


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
