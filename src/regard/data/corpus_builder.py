"""Build a corpus: split a text into tokens on all cores, and write the tokens in the order of the text."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from regard.data.corpus import FORMAT, INDEX, SIDES, Corpus, RaggedWriter, StoredCorpus, open_corpus, token_type
from regard.data.parallel import ConcatenatedText, PairCounts, PairSource, ParallelText, open_texts
from regard.data.subwords import SubwordVocabulary
from regard.data.vocabulary import BLANK, EOS, UNKNOWN, LearnedVocabulary, is_blank
from regard.data.worker_pool import map_in_processes
from regard.errors import InputError, plural, shorten
from regard.io import add_digest, new_folder, write_json
from regard.machine import available_cores

LINES = 20_000
"""Lines per chunk. A worker needs 128 MiB for chunks of 20,000 lines and 317 MiB for chunks of 100,000 lines.
Both sizes have the same speed.
"""
STRETCH = 5
"""Number of chunks per stretch. A sample of a long text consists of the first lines of each stretch."""
SAMPLE_PAIRS = 1_000_000  # Largest number of lines in a sample


class PairChunk(NamedTuple):
    """A chunk of pairs."""

    sources: Sequence[str]
    targets: Sequence[str]
    counts: PairCounts

    @property
    def size(self) -> int:
        return self.counts.pairs + self.counts.skipped

    def read(self, limit: int | None = None) -> "PairChunk":
        """Return the pairs, or the first `limit` of them."""
        return PairChunk(self.sources[:limit], self.targets[:limit], self.counts)


@dataclass(frozen=True)
class LineChunk:
    """Lines of a parallel text, decoded on demand."""

    paths: tuple[Path, ...]
    strict: bool
    first: int  # The number of the first line, counted from 1
    contents: tuple[bytes, ...]  # The lines of each file
    size: int  # The number of bytes in the files, before decompression

    def read(self, limit: int | None = None) -> PairChunk:
        """Return the pairs of all lines, or of the first `limit` lines. Raises `InputError` if the text is
        strict and a pair must be skipped."""
        contents = self.contents
        if limit is not None:
            contents = tuple(b"".join(_split_lines(content)[:limit]) for content in contents)
        return self._read_regular(contents) or self._read_line_by_line(contents)

    def _read_regular(self, contents: Sequence[bytes]) -> PairChunk | None:
        """Return the pairs if no line needs special treatment, otherwise None. Decoding and stripping whole
        chunks is several times faster than doing so line by line."""
        try:
            texts = [content.decode() for content in contents]
        except UnicodeDecodeError:
            return None
        if any("\0" in text or (self.first == 1 and "\ufeff" in text) for text in texts):
            return None
        sides = [text.removesuffix("\n").split("\n") if text else [] for text in texts]
        if len(sides) == 1:
            rows = [line.rstrip("\r").split("\t", 2) for line in sides[0]]
            if any(len(row) < 2 for row in rows):
                return None
            sides = [[row[side] for row in rows] for side in range(2)]
        sources, targets = (list(map(str.strip, side)) for side in sides)
        if len(sources) != len(targets) or any(map(is_blank, sources)) or any(map(is_blank, targets)):
            return None
        return PairChunk(sources, targets, PairCounts(pairs=len(sources)))

    def _read_line_by_line(self, contents: Sequence[bytes]) -> PairChunk:
        """Return the pairs; skipped pairs are counted or refused."""
        text = ParallelText(self.paths, strict=self.strict)
        rows = zip_longest(*([line.rstrip(b"\r\n") for line in _split_lines(content)] for content in contents))
        pairs = [pair for number, lines in enumerate(rows, self.first) if (pair := text.pair(lines, number))]
        text.counts.pairs = len(pairs)
        return PairChunk([source for source, _ in pairs], [target for _, target in pairs], text.counts)


TextChunk = PairChunk | LineChunk


def read_chunks(text: PairSource) -> Iterator[TextChunk]:
    """Yield the chunks of a text. Raises `InputError` for an unreadable text."""
    if isinstance(text, ConcatenatedText):
        for part in text.texts:
            yield from read_chunks(part)
    elif isinstance(text, ParallelText):
        with open_texts(text.paths) as (raws, files):
            first, before = 1, 0
            while any(contents := tuple(b"".join(islice(file, LINES)) for file in files)):
                done = sum(raw.tell() for raw in raws)
                yield LineChunk(tuple(text.paths), text.strict, first, contents, done - before)
                first, before = first + LINES, done
    else:
        counted, pairs, block = PairCounts(), iter(text), [("", "")]
        while block:
            block = list(islice(pairs, LINES))
            counts = replace(text.counts)
            if counts != counted:  # after the last pair, more pairs may have been skipped
                sides = [source for source, _ in block], [target for _, target in block]
                yield PairChunk(*sides, counts - counted)
            counted = counts


def _split_lines(content: bytes) -> list[bytes]:
    lines = content.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


@dataclass
class Sample:
    """Sentences from which vocabularies are learned: the whole text, or the first lines of each stretch of the
    text. A sample with the same number of lines from each stretch needs no random numbers and is the same on
    every machine. A sample can be iterated over repeatedly."""

    text: PairSource
    side: int | None  # 0: sources, 1: targets, None: both
    on_share: Callable[[float], None] = field(default=lambda share: None)
    """Called repeatedly with the fraction of the sample that has been read, from 0 to 1."""
    pairs: int = 0  # The number of pairs in the sample, known after an iteration
    bytes: int = 0  # The size of the sample in UTF-8 bytes, known after an iteration

    def __post_init__(self) -> None:
        stretch = LINES * STRETCH
        texts = self.text.texts if isinstance(self.text, ConcatenatedText) else [self.text]
        longest = [max(digest.lines for digest in text.digests()) for text in texts]
        self.stretches = sum(-(-lines // stretch) for lines in longest)
        self.lines = stretch
        """The number of lines taken from each stretch."""
        if self.stretches * stretch > SAMPLE_PAIRS:
            self.lines = max(1, SAMPLE_PAIRS // self.stretches)

    @property
    def summary(self) -> str:
        size = f"{plural(self.pairs, 'pair')} ({self.bytes / 1e6:,.1f} MB)"
        stretch = LINES * STRETCH
        return f"all {size}" if self.lines == stretch else f"{size}, the first {self.lines:,} of each {stretch:,}"

    def __iter__(self) -> Iterator[str]:
        self.pairs = self.bytes = 0
        for number, sentences in enumerate(self._read()):
            sides = [sentences.sources, sentences.targets]
            if self.side is not None:
                sides = [sides[self.side]]
            self.pairs += len(sentences.sources)
            self.bytes += sum(len("".join(side).encode(errors="surrogatepass")) for side in sides)
            self.on_share(min(1.0, number / (self.stretches * STRETCH)))
            for texts in zip(*sides, strict=True):
                yield from texts

    def _read(self) -> Iterator[PairChunk]:
        texts = self.text.texts if isinstance(self.text, ConcatenatedText) else [self.text]
        for text in texts:
            for number, chunk in enumerate(read_chunks(text)):
                # Number of lines to read from this chunk; may be negative or larger than the chunk.
                wanted = self.lines - number % STRETCH * LINES
                if wanted > 0:
                    yield chunk.read(wanted if wanted < LINES else None)


# Tokenize a corpus word by word, and each distinct word only once.
#
# Most words of a text have occurred before. If a vocabulary splits each word independently, as learned
# vocabularies do, the tokens of a sentence are the concatenated tokens of its words. The words of many sentences
# are looked up in a table, and only new words are passed to the `tokenizers` library.

CAPACITY = 200_000  # The largest number of cached words. A larger table is cleared.
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


class CachedTokenizer(dict[str, int]):
    """Tokenizes sentences with a table of words, which maps each word to a number.

    `encode`: function that returns the indices of a new word.

    >>> tokens, lengths = CachedTokenizer(lambda word: [4 + len(word)])(["ein Hund", "so"])
    >>> tokens.tolist(), lengths.tolist()
    ([7, 8, 2, 6, 2], [3, 2])
    """

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        super().__init__()
        self._encode = encode
        self._reset()

    def _reset(self) -> None:
        self.clear()
        self[END] = 0
        self._lengths: list[int] = [1]
        self._flat, self._new = np.zeros(0, np.uint32), [[EOS]]
        """The tokens of all words, and those of the words that were added since."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self._lengths)
        tokens = self._encode(word.removeprefix(WHOLE))
        self._lengths.append(len(tokens))
        self._new.append(tokens)
        return number

    def __call__(self, sentences: Sequence[str]) -> Tokens:
        """Return the tokens of sentences, and the number of tokens of each."""
        if len(self) > CAPACITY:
            self._reset()
        words = _split_words(sentences)
        numbers = np.fromiter(map(self.__getitem__, words), np.int64, len(words))
        lengths = np.array(self._lengths)
        begins = lengths.cumsum() - lengths
        counts, ends = lengths[numbers], np.flatnonzero(numbers == 0)
        total = counts.cumsum()
        # The position of each token in the table. Positions are consecutive within a word.
        positions = np.arange(total[-1] if len(total) else 0) + np.repeat(begins[numbers] - total + counts, counts)
        if self._new:
            new = np.fromiter(chain.from_iterable(self._new), np.uint32)
            self._flat, self._new = np.concatenate([self._flat, new]), []
        return self._flat[positions], np.diff(total[ends], prepend=0)


def _split_words(sentences: Sequence[str]) -> list[str]:
    """Return the words of all sentences with `END` after each sentence. A sentence with unusual whitespace is
    returned as a whole."""
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


Vocabularies = tuple[LearnedVocabulary, LearnedVocabulary]  # The vocabularies of source and target


class EncodedChunk(NamedTuple):
    """The tokens of a chunk."""

    tokens: tuple[np.ndarray, np.ndarray]  # The concatenated tokens of all sources, and those of all targets
    lengths: np.ndarray  # (pairs, 2), the lengths of each source and target, including `EOS`
    counts: PairCounts
    size: int  # Bytes of the text


@dataclass(frozen=True)
class ChunkEncoder:
    """Splits chunks of text into tokens. Pairs with a side of more than `max_len` tokens are skipped and
    counted, or raise an error if `strict`."""

    vocabularies: Vocabularies
    max_len: int
    strict: bool

    def __call__(self, chunk: TextChunk) -> EncodedChunk:
        """Return the tokens of a chunk. Raises `InputError` if the text is strict and a pair must be skipped."""
        sources, targets, skipped = chunk.read()
        texts = (sources, targets)
        sides = [tokenizer(side) for tokenizer, side in zip(self._tokenizers, texts, strict=True)]
        lengths = np.stack([side_lengths for _, side_lengths in sides], 1)
        # Lengths include the end of sequence, but `max_len` does not.
        fits = lengths.max(1, initial=0) <= self.max_len + 1
        if self.strict and not fits.all():
            row = int(np.flatnonzero(~fits)[0])
            side = int(lengths[row, 0] <= self.max_len + 1)
            raise InputError(
                f"sentence {shorten(texts[side][row])} has {lengths[row, side] - 1} tokens, but the limit is "
                f"{self.max_len}: raise --max_len, or leave out --strict"
            )
        dtype = token_type((len(self.vocabularies[0]), len(self.vocabularies[1])))
        source, target = (tokens[np.repeat(fits, side_lengths)].astype(dtype) for tokens, side_lengths in sides)
        counts = skipped + PairCounts(pairs=-int((~fits).sum()), too_long=int((~fits).sum()))
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
            for chunk in map_in_processes(encoder, read_chunks(text), processes=cores, purpose="prepares the text"):
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
        write_json(building / INDEX, add_digest(msgspec.to_builtins(stored)))
    return open_corpus(folder)
