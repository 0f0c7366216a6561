"""Build a corpus: split a text into tokens on all cores, and write the tokens in the order of the text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from regard.data.chunks import TextChunk, read_chunks
from regard.data.corpus import FORMAT, SIDES, Corpus, StoredCorpus, open_corpus, token_type, write_index
from regard.data.parallel import PairCounts, PairSource
from regard.data.ragged import RaggedWriter
from regard.data.vocabulary import UNKNOWN, LearnedVocabulary
from regard.data.word_cache import CorpusTokenizer, corpus_tokenizer
from regard.data.worker_pool import available_cores, map_in_processes
from regard.errors import InputError, shorten
from regard.io.folders import new_folder

Vocabularies = tuple[LearnedVocabulary, LearnedVocabulary]
"""The vocabularies of source and target."""


class EncodedChunk(NamedTuple):
    """The tokens of a chunk."""

    tokens: tuple[np.ndarray, np.ndarray]
    """The concatenated tokens of all sources, and those of all targets."""
    lengths: np.ndarray
    """(pairs, 2), the lengths of each source and target, including `EOS`."""
    counts: PairCounts
    size: int
    """Bytes of the text."""


@dataclass(frozen=True)
class ChunkEncoder:
    """Splits chunks of text into tokens.

    Pairs with a side of more than `max_len` tokens are skipped and counted, or raise an error if `strict`.
    """

    vocabularies: Vocabularies
    max_len: int
    strict: bool

    def __call__(self, chunk: TextChunk) -> EncodedChunk:
        """Return the tokens of a chunk. Raises `InputError` if the text is strict and a pair must be skipped."""
        sentences = chunk.read()
        texts = (sentences.sources, sentences.targets)
        sides = [tokenizer(side) for tokenizer, side in zip(self._tokenizers, texts, strict=True)]
        lengths = np.stack([side_lengths for _, side_lengths in sides], 1)
        # Lengths include the end of sequence, but `max_len` does not.
        fits = lengths.max(1, initial=0) <= self.max_len + 1
        if self.strict and not fits.all():
            raise InputError(_too_long_message(texts, lengths, fits, self.max_len))
        dtype = token_type((len(self.vocabularies[0]), len(self.vocabularies[1])))
        source, target = (tokens[np.repeat(fits, side_lengths)].astype(dtype) for tokens, side_lengths in sides)
        counts = sentences.counts + PairCounts(pairs=-int((~fits).sum()), too_long=int((~fits).sum()))
        return EncodedChunk((source, target), lengths[fits], counts, chunk.size)

    @cached_property
    def _tokenizers(self) -> list[CorpusTokenizer]:
        source, target = self.vocabularies
        first = corpus_tokenizer(source)
        return [first, first if target is source else corpus_tokenizer(target)]

    def __reduce__(self) -> tuple[Any, ...]:
        # Worker processes receive the encoder without the cached words.
        return ChunkEncoder, (self.vocabularies, self.max_len, self.strict)


def no_pairs(text: PairSource, description: str, counts: PairCounts) -> InputError:
    """Return an error for a text without pairs. `description`: its use, such as "training"."""
    files = " and ".join(map(repr, text.locations()))
    way_out = "raise max_len, or give another text" if counts.too_long else "give another text"
    if counts.without_partner and len(text.locations()) == 1:
        way_out = "separate source and target in each line by a tab, or give two files"
    return InputError(f"{description} text {files} has no pairs: {counts}; {way_out}")


def build_corpus(
    folder: Path,
    text: PairSource,
    vocabularies: Vocabularies,
    *,
    max_len: int,
    strict: bool = False,
    on_chunk: Callable[[int, int], None] = lambda pairs, size: None,
    processes: int | None = None,
) -> Corpus:
    """Build a corpus in a new folder, which is created atomically, and return the corpus.

    `max_len` and `strict` are those of `ChunkEncoder`. `on_chunk` is called with the number of pairs and bytes
    of each chunk. Raises `InputError` if the text cannot be read, if the text is strict and a pair must be
    skipped, or if no pairs remain, and `MachineError` if the disk is full.
    """
    symbols = len(vocabularies[0]), len(vocabularies[1])
    encoder = ChunkEncoder(vocabularies, max_len, strict)
    counts, longest, unknown = PairCounts(), 0, np.zeros(2, np.int64)
    with new_folder(folder) as building:
        writers = [RaggedWriter(building, name, token_type(symbols)) for name in SIDES]
        try:
            cores = processes or available_cores()
            for chunk in map_in_processes(
                encoder, read_chunks(text), processes=cores, purpose="prepares the text"
            ):
                for writer, tokens, lengths in zip(writers, chunk.tokens, chunk.lengths.T, strict=True):
                    writer.append(tokens, lengths)
                counts += chunk.counts
                longest = max(longest, int(chunk.lengths.max(initial=0)))
                unknown += [np.count_nonzero(tokens == UNKNOWN) for tokens in chunk.tokens]
                on_chunk(chunk.counts.pairs, chunk.size)
        finally:
            source, target = (writer.close() for writer in writers)
        if not counts.pairs:
            raise no_pairs(text, "training", counts)
        stored = StoredCorpus(
            format=FORMAT,
            name=folder.name,
            longest=longest,
            symbols=symbols,
            unknown=(int(unknown[0]), int(unknown[1])),
            counts=counts,
            checksums=(source, target),
        )
        write_index(building, stored)
    return open_corpus(folder)


def _too_long_message(
    texts: tuple[Sequence[str], Sequence[str]], lengths: np.ndarray, fits: np.ndarray, max_len: int
) -> str:
    row = int(np.flatnonzero(~fits)[0])
    side = int(lengths[row, 0] <= max_len + 1)
    tokens = lengths[row, side] - 1
    return (
        f"sentence {shorten(texts[side][row])} has {tokens} tokens, but the limit is {max_len}: raise "
        f"--max_len, or leave out --strict"
    )
