"""Tasks from one sequence to another; most of them of characters, with a known alignment.

Letters: B batch, Ts source steps, Tt target steps. A sample is a `Pair`: the source, the target, and for each
character of the target the characters of the source that it was made from.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.data import PairBatch, Vocabulary, collate
from regard.errors import check_range
from regard.streams import make_generator
from regard.tasks.base import AnyTask
from regard.tasks.source import NOWHERE, BatchSettings, Beginning

RESERVE = 16
"""Batches of pairs that are drawn at once."""


class Pair(NamedTuple):
    """A source, its target, and what each character of the target was made from."""

    source: str
    target: str
    alignment: tuple[tuple[int, ...], ...]
    """For each character of the target, the positions of its characters in the source; empty for none."""


class SequenceTask(AnyTask):
    """A task whose answer is a sequence.

    Subclasses set `name`, `summary`, `defaults` and `config_class`, and define `source_vocabulary`,
    `target_vocabulary`, `longest_source` and `longest_target`.
    """

    answers = "text"

    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary
    shared = False
    """Whether both are one, for a model that has one embedding then."""

    @property
    @abstractmethod
    def longest_source(self) -> int:
        """The most symbols of a text that a model is asked to answer."""

    @property
    @abstractmethod
    def longest_target(self) -> int:
        """The most symbols of an answer that is looked for."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """Symbols of both vocabularies, the most steps of a sequence, and whether the vocabularies are one."""
        return {
            "source_symbols": len(self.source_vocabulary),
            "target_symbols": len(self.target_vocabulary),
            "longest": max(self.longest_source, self.longest_target) + 1,  # and the end of sequence
            "shared": self.shared,
        }

    def known(self, source: str) -> Pair | None:
        """Return the pair of a source with the oracle's answer, or None where the task does not know it."""
        del source
        return None


class SortedPairs:
    """The batches of a training, of sources of like length, so that little of the arithmetic goes into padding.

    `RESERVE` batches are drawn at once, sorted by length and cut, and then served in random order. Each reserve
    has a random stream of its own, by its number, so a resumed training draws the same ones wherever it stopped.
    """

    place = NOWHERE

    def __init__(self, task: "PairTask", settings: BatchSettings) -> None:
        self.task, self.settings = task, settings
        self._number, self._reserve = -1, list[list[Pair]]()

    def draw(self, step: int) -> PairBatch:
        """Return the batch of a training step, counted from 0."""
        number, index = divmod(step, RESERVE)
        if number != self._number:
            self._number, self._reserve = number, self._draw_reserve(number)
        return self.task.batch(self._reserve[index])

    def _draw_reserve(self, number: int) -> list[list[Pair]]:
        size = self.settings.batchsize
        generator = make_generator(self.settings.seed, f"pairs/{number}")
        pairs = sorted(self.task.pairs(RESERVE * size, generator), key=lambda pair: len(pair.source))
        order = torch.randperm(RESERVE, generator=generator).tolist()
        return [pairs[place * size : (place + 1) * size] for place in order]


class PairTask(SequenceTask):
    """A task from sequence to sequence that draws its samples.

    Subclasses also define `max_source`, `max_target`, `pair` and `known`.
    """

    max_source: int
    """Characters of the longest source."""
    max_target: int
    """Characters of the longest target."""

    def __init__(self, config: Any = None) -> None:
        self.config = self.config_class() if config is None else config

    @abstractmethod
    def pair(self, generator: torch.Generator, *, sample_len: int | None = None, unseen: bool = False) -> Pair:
        """Draw one pair; `unseen`: from those that training never draws, where the task holds some back."""

    @abstractmethod
    def known(self, source: str) -> Pair | None:
        """Return the pair of a source with the oracle's answer, or None where the source has none."""

    @property
    def longest_source(self) -> int:
        """The most characters of a text that a model is asked to answer: ten times those of the longest
        source."""
        return 10 * self.max_source

    @property
    def longest_target(self) -> int:
        """The most characters of an answer that is looked for: twice those of the longest target."""
        return 2 * self.max_target

    def batches(self, settings: BatchSettings, beginning: Beginning) -> SortedPairs:
        """Draw batches of like length, each reserve by a stream of its own."""
        del beginning
        return SortedPairs(self, settings)

    def check_sample_len(self, sample_len: int | None) -> None:
        """Raise `InputError` where samples cannot have this length."""
        if sample_len is not None:
            check_range("sample_len", sample_len, 1, self.max_source)

    def pairs(
        self, count: int, generator: torch.Generator, *, sample_len: int | None = None, unseen: bool = False
    ) -> list[Pair]:
        """Draw `count` pairs, the same for the same generator state. Raises `InputError` for a bad length."""
        self.check_sample_len(sample_len)
        return [self.pair(generator, sample_len=sample_len, unseen=unseen) for _ in range(count)]

    def example(self, generator: torch.Generator) -> tuple[str, str]:
        """Draw an input and its answer."""
        pair = self.pair(generator)
        return pair.source, pair.target

    def sample(self, batch: int, generator: torch.Generator) -> PairBatch:
        """Draw a batch to train on."""
        return self.batch(self.pairs(batch, generator))

    def batch(self, pairs: Sequence[Pair]) -> PairBatch:
        """Return pairs as indices."""
        return PairBatch(
            collate([self.source_vocabulary.encode(pair.source) for pair in pairs]),
            collate([self.target_vocabulary.encode(pair.target) for pair in pairs]),
        )


def links(pairs: Sequence[Pair], source_len: int, target_len: int) -> Tensor:
    """Return the alignment of pairs as (B, Tt, Ts) bool: which source steps each target step was made from."""
    found = torch.zeros(len(pairs), target_len, source_len, dtype=torch.bool)
    for row, pair in enumerate(pairs):
        for step, positions in enumerate(pair.alignment):
            found[row, step, list(positions)] = True
    return found
