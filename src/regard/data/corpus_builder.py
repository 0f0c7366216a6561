"""How a corpus comes to be: shard by shard, on all cores, on several machines if need be.

Each stretch of a text makes one shard. Which of them this process makes is said by its part; those that are there
already are left as they are, so that what was interrupted goes on.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from regard.data.chunks import ChunkRanges, TextChunk, read_chunks
from regard.data.corpus import Corpus, shard_path, write_corpus_index
from regard.data.parallel import PairSource
from regard.data.shards import Head, read_head, write_shard
from regard.data.vocabulary import LearnedVocabulary
from regard.data.word_cache import CorpusTokenizer, corpus_tokenizer
from regard.data.worker_pool import available_cores, map_in_processes
from regard.errors import InputError, shorten
from regard.io import make_folder
from regard.io.reading import DamageError, is_file

Vocabularies = tuple[LearnedVocabulary, LearnedVocabulary]
"""Of source and target."""


class CorpusPart(NamedTuple):
    """Which part of a corpus, counted from 1, and of how many; part k of n makes the shards k - 1, n + k - 1,
    ..."""

    number: int
    parts: int

    def __str__(self) -> str:
        return f"{self.number}/{self.parts}"


WHOLE = CorpusPart(1, 1)


class ShardReport(NamedTuple):
    """A shard that is there."""

    pairs: int
    bytes: int
    """Of the text."""
    before: bool
    """Whether it was there before."""


@dataclass(frozen=True)
class ShardBuilder:
    """Makes shards in a folder. Pairs with a side of more than `max_len` tokens are left out and counted, or,
    where it is `strict`, refused."""

    folder: Path
    vocabularies: Vocabularies
    max_len: int
    strict: bool
    key: int
    """Of what the corpus is made of: see `corpus_key`."""

    def __call__(self, job: tuple[int, TextChunk]) -> ShardReport:
        """Make the shard of a number of a stretch of text."""
        number, stretch = job
        sentences = stretch.read()
        texts = (sentences.sources, sentences.targets)
        sides = [cutter(side) for cutter, side in zip(self._cutters, texts, strict=True)]
        tokens, lengths = [side[0] for side in sides], np.stack([side[1] for side in sides], 1)
        fits = lengths.max(1, initial=0) <= self.max_len + 1
        if not fits.all():
            if self.strict:
                raise InputError(_too_long(texts, lengths, fits, self.max_len))
            tokens = [side[np.repeat(fits, each)] for side, each in zip(tokens, lengths.T, strict=True)]
        head = Head(
            key=self.key,
            number=number,
            width=2 if max(map(len, self.vocabularies)) <= 1 << 16 else 4,
            empty=sentences.counts.empty,
            not_utf8=sentences.counts.not_utf8,
            without_partner=sentences.counts.without_partner,
            too_long=len(fits) - int(fits.sum()),
        )
        head = write_shard(shard_path(self.folder, number), head, lengths[fits], tokens)
        return ShardReport(head.pairs, stretch.size, before=False)

    def found(self, number: int) -> Head | None:
        """Return the head of a shard that is there and need not be made."""
        path = shard_path(self.folder, number)
        try:
            head = read_head(path, self.key, number) if is_file(path) else None
        except DamageError:
            return None
        return None if head is None or (self.strict and head.skipped) else head

    @cached_property
    def _cutters(self) -> list[CorpusTokenizer]:
        source, target = self.vocabularies
        first = corpus_tokenizer(source)
        return [first, first if target is source else corpus_tokenizer(target)]

    def __reduce__(self) -> tuple[Any, ...]:
        # To another process go no words that have been cut here.
        return ShardBuilder, (self.folder, self.vocabularies, self.max_len, self.strict, self.key)


def corpus_key(text: PairSource, vocabularies: Vocabularies, max_len: int) -> int:
    """Return a number that tells a corpus from those of other text, other vocabularies, other limits."""
    content = json.dumps([text.identity(), [each.to_json() for each in vocabularies], max_len])
    return int.from_bytes(hashlib.sha256(content.encode()).digest()[:8], "little", signed=True)


def build_shards(
    maker: ShardBuilder,
    text: PairSource,
    spans: ChunkRanges | None = None,
    *,
    part: CorpusPart = WHOLE,
    on_made: Callable[[ShardReport], None] = lambda made: None,
    processes: int | None = None,
) -> int:
    """Make the shards of a part of a text, and return how many all parts have.

    `spans`: where its stretches are, where that is known. `on_made` is called of each shard that is there. Raises
    `InputError` where the text cannot be read, or the maker refuses it; `MachineError` where the disk refuses.
    """
    total = 0

    def jobs() -> Iterator[tuple[int, TextChunk]]:
        nonlocal total
        for number, stretch in enumerate(read_chunks(text, spans=spans)):
            total = number + 1
            if number % part.parts != part.number - 1:
                continue
            head = maker.found(number)
            if head is None:
                yield number, stretch
            else:
                on_made(ShardReport(head.pairs, stretch.size, before=True))

    make_folder(maker.folder, below=maker.folder.parent.parent)
    try:
        for made in map_in_processes(maker, jobs(), processes=processes or available_cores()):
            on_made(made)
    finally:
        with suppress(OSError):
            maker.folder.rmdir()  # if nothing came of it
    return total


def build_corpus(
    folder: Path, text: PairSource, vocabularies: Vocabularies, *, max_len: int, strict: bool = False
) -> Corpus:
    """Make a corpus of a text in a folder; the other arguments and what is raised are those of `ShardBuilder`,
    `build_shards` and `write_corpus_index`."""
    key = corpus_key(text, vocabularies, max_len)
    shards = build_shards(ShardBuilder(folder, vocabularies, max_len, strict, key), text)
    return write_corpus_index(folder, key, shards, (len(vocabularies[0]), len(vocabularies[1])))


def _too_long(
    texts: tuple[Sequence[str], Sequence[str]], lengths: np.ndarray, fits: np.ndarray, most: int
) -> str:
    row = int(np.flatnonzero(~fits)[0])
    side = int(lengths[row, 0] <= most + 1)
    tokens = lengths[row, side] - 1
    return (
        f"sentence {shorten(texts[side][row])} has {tokens} tokens, at most {most} are taken: raise --max_len, "
        f"or "
        f"leave out --strict"
    )
