"""Build a corpus shard by shard, on all cores.

Each chunk of a text becomes one shard. Existing shards are kept, so an interrupted build continues.
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
"""The vocabularies of source and target."""


class ShardReport(NamedTuple):
    """A finished shard."""

    pairs: int
    bytes: int
    """Bytes of its text."""
    existed: bool
    """Whether an earlier build wrote it."""


@dataclass(frozen=True)
class ShardBuilder:
    """Builds the shards of a corpus.

    Pairs with a side of more than `max_len` tokens are skipped and counted, or refused if `strict`.
    """

    folder: Path
    vocabularies: Vocabularies
    max_len: int
    strict: bool
    key: int
    """Identifies the corpus, see `corpus_key`."""

    def __call__(self, job: tuple[int, TextChunk]) -> ShardReport:
        """Build a shard, given its number and its chunk of text."""
        number, chunk = job
        sentences = chunk.read()
        texts = (sentences.sources, sentences.targets)
        sides = [tokenizer(side) for tokenizer, side in zip(self._tokenizers, texts, strict=True)]
        tokens, lengths = [side[0] for side in sides], np.stack([side[1] for side in sides], 1)
        # Lengths include the end of sequence, `max_len` does not.
        fits = lengths.max(1, initial=0) <= self.max_len + 1
        if not fits.all():
            if self.strict:
                raise InputError(_too_long_message(texts, lengths, fits, self.max_len))
            tokens = [
                side[np.repeat(fits, side_lengths)] for side, side_lengths in zip(tokens, lengths.T, strict=True)
            ]
        head = Head(
            key=self.key,
            number=number,
            # uint16 halves the file, if it can hold all indices.
            width=2 if max(map(len, self.vocabularies)) <= 1 << 16 else 4,
            empty=sentences.counts.empty,
            not_utf8=sentences.counts.not_utf8,
            without_partner=sentences.counts.without_partner,
            too_long=len(fits) - int(fits.sum()),
        )
        head = write_shard(shard_path(self.folder, number), head, lengths[fits], tokens)
        return ShardReport(head.pairs, chunk.size, existed=False)

    def find(self, number: int) -> Head | None:
        """Return the head of an existing shard, or None if the shard must be built."""
        path = shard_path(self.folder, number)
        try:
            head = read_head(path, self.key, number) if is_file(path) else None
        except DamageError:
            return None
        return None if head is None or (self.strict and head.skipped) else head

    @cached_property
    def _tokenizers(self) -> list[CorpusTokenizer]:
        source, target = self.vocabularies
        first = corpus_tokenizer(source)
        return [first, first if target is source else corpus_tokenizer(target)]

    def __reduce__(self) -> tuple[Any, ...]:
        # Worker processes receive the builder without the cached words.
        return ShardBuilder, (self.folder, self.vocabularies, self.max_len, self.strict, self.key)


def corpus_key(text: PairSource, vocabularies: Vocabularies, max_len: int) -> int:
    """Return a number that identifies the text, vocabularies and limit of a corpus."""
    content = json.dumps([text.identity(), [vocabulary.to_json() for vocabulary in vocabularies], max_len])
    # 64 bits, so that the key fits into the head of a shard.
    return int.from_bytes(hashlib.sha256(content.encode()).digest()[:8], "little", signed=True)


def build_shards(
    builder: ShardBuilder,
    text: PairSource,
    ranges: ChunkRanges | None = None,
    *,
    on_shard: Callable[[ShardReport], None] = lambda report: None,
    processes: int | None = None,
) -> int:
    """Build the missing shards of a text, and return the number of all shards.

    `ranges`: the byte ranges of its chunks, if known. `on_shard` is called for each shard. Raises `InputError` if
    the text cannot be read or the builder refuses it, and `MachineError` if the disk is full.
    """
    total = 0

    def missing_shards() -> Iterator[tuple[int, TextChunk]]:
        nonlocal total
        for number, chunk in enumerate(read_chunks(text, ranges=ranges)):
            total = number + 1
            head = builder.find(number)
            if head is None:
                yield number, chunk
            else:
                on_shard(ShardReport(head.pairs, chunk.size, existed=True))

    make_folder(builder.folder, below=builder.folder.parent.parent)
    try:
        for report in map_in_processes(builder, missing_shards(), processes=processes or available_cores()):
            on_shard(report)
    finally:
        with suppress(OSError):
            builder.folder.rmdir()  # succeeds only if nothing was written
    return total


def build_corpus(
    folder: Path, text: PairSource, vocabularies: Vocabularies, *, max_len: int, strict: bool = False
) -> Corpus:
    """Build a corpus in a folder. For arguments and errors see `ShardBuilder`, `build_shards` and
    `write_corpus_index`."""
    key = corpus_key(text, vocabularies, max_len)
    shards = build_shards(ShardBuilder(folder, vocabularies, max_len, strict, key), text)
    return write_corpus_index(folder, key, shards, (len(vocabularies[0]), len(vocabularies[1])))


def _too_long_message(
    texts: tuple[Sequence[str], Sequence[str]], lengths: np.ndarray, fits: np.ndarray, max_len: int
) -> str:
    row = int(np.flatnonzero(~fits)[0])
    side = int(lengths[row, 0] <= max_len + 1)
    tokens = lengths[row, side] - 1
    return (
        f"sentence {shorten(texts[side][row])} has {tokens} tokens, at most {max_len} are taken: raise "
        f"--max_len, or leave out --strict"
    )
