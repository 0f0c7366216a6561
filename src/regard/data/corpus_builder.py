"""Build a corpus: split a text into tokens on all cores, and write the tokens in the order of the text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from regard.data.chunks import TextChunk, read_chunks
from regard.data.corpus import FORMAT, SIDES, Corpus, StoredCorpus, open_corpus, token_type, write_index
from regard.data.parallel import PairCounts, PairSource
from regard.data.ragged import RaggedWriter
from regard.data.subwords import SubwordVocabulary
from regard.data.vocabulary import BLANK, EOS, UNKNOWN, LearnedVocabulary
from regard.data.worker_pool import available_cores, map_in_processes
from regard.errors import InputError, shorten
from regard.io.folders import new_folder

# Tokenize a corpus word by word, and each distinct word only once.
#
# Most words of a text have occurred before. If a vocabulary splits each word independently, as learned
# vocabularies do, the tokens of a sentence are the concatenated tokens of its words. The words of many sentences
# are looked up in a table, and only new words are passed to the `tokenizers` library.

CAPACITY = 200_000
"""The largest number of cached words. A larger table is cleared."""
END = "\n"
"""Marks the end of a sentence in a list of words. A sentence that contains this character is looked up as a
whole."""
WHOLE = " "
"""The prefix of the key of a sentence that is looked up as a whole.

No word and no `END` begins with this prefix.
"""

Tokens = tuple[np.ndarray, np.ndarray]
"""The concatenated tokens of all sentences (N,) uint32, with `EOS` after each sentence, and the number of
tokens per sentence (S,).
"""


class CachedTokenizer:
    """Tokenizes sentences with a table of words. `encode`: function that returns the indices of a new word.

    >>> tokens, lengths = CachedTokenizer(lambda word: [4 + len(word)])(["ein Hund", "so"])
    >>> tokens.tolist(), lengths.tolist()
    ([7, 8, 2, 6, 2], [3, 2])
    """

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self._encode = encode
        self._clear()

    def __call__(self, sentences: Sequence[str]) -> Tokens:
        """Return the tokens of sentences, and the number of tokens of each."""
        if len(self._table) > CAPACITY:
            self._clear()
        words = _split_words(sentences)
        numbers = np.fromiter(map(self._table.__getitem__, words), np.int64, len(words))
        lengths = np.array(self._table.lengths)
        begins = lengths.cumsum() - lengths
        counts, ends = lengths[numbers], np.flatnonzero(numbers == 0)
        total = counts.cumsum()
        # The position of each token in the table. Positions are consecutive within a word.
        positions = np.arange(total[-1] if len(total) else 0) + np.repeat(
            begins[numbers] - total + counts, counts
        )
        return self._table.indices()[positions], np.diff(total[ends], prepend=0)

    def _clear(self) -> None:
        self._table = _Table(self._encode)
        self._table[END] = 0
        self._table.add([EOS])


class _Table(dict[str, int]):
    """A table that maps words to numbers, and numbers to the tokens of the words."""

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        super().__init__()
        self._encode = encode
        self.lengths: list[int] = []
        self._tokens: list[list[int]] = []
        self._flat = np.zeros(0, np.uint32)

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self.lengths)
        self.add(self._encode(word.removeprefix(WHOLE)))
        return number

    def add(self, tokens: list[int]) -> None:
        self.lengths.append(len(tokens))
        self._tokens.append(tokens)

    def indices(self) -> np.ndarray:
        if self._tokens:
            new = np.fromiter(chain.from_iterable(self._tokens), np.uint32)
            self._flat, self._tokens = np.concatenate([self._flat, new]), []
        return self._flat


def _split_words(sentences: Sequence[str]) -> list[str]:
    """Return the words of all sentences with `END` after each sentence.

    A sentence with unusual whitespace is returned as a whole.
    """
    joined = f" {f' {END} '.join(sentences)} "
    if _has_single_blanks(joined) and joined.count(END) == len(sentences) - 1:
        return [*joined[1:-1].split(" "), END]
    words: list[str] = []
    for sentence in sentences:
        regular = END not in sentence and _has_single_blanks(f" {sentence} ")
        words += [*(sentence.split(" ") if regular else [WHOLE + sentence]), END]
    return words


def _has_single_blanks(text: str) -> bool:
    return "  " not in text and BLANK not in text


class PlainTokenizer:
    """Tokenizes sentences one by one, for a vocabulary whose tokens may cross word boundaries."""

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self._encode = encode

    def __call__(self, sentences: Sequence[str]) -> Tokens:
        tokens = [[*self._encode(sentence), EOS] for sentence in sentences]
        lengths = np.array([len(sentence) for sentence in tokens], np.int64)
        return np.fromiter(chain.from_iterable(tokens), np.uint32), lengths


CorpusTokenizer = CachedTokenizer | PlainTokenizer


def corpus_tokenizer(vocabulary: LearnedVocabulary) -> CorpusTokenizer:
    """Return a tokenizer of sentences for a vocabulary, with a cache if the vocabulary splits at whitespace."""
    cached = isinstance(vocabulary, SubwordVocabulary) and vocabulary.splits_at_blanks
    return CachedTokenizer(vocabulary.encode) if cached else PlainTokenizer(vocabulary.encode)


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
