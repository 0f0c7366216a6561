"""A prepared corpus: parallel text as indices, in files. Training reads a few thousand pairs at a time.

    source.bin, source-bounds.bin    the tokens of all sources, see `RaggedWriter`
    target.bin, target-bounds.bin    the tokens of all targets
    corpus.json                      the number of pairs, of skipped pairs and of unknown tokens, and checksums

Tokens are stored as uint16, or as uint32 for a vocabulary of more than 65,536 symbols. A corpus needs 2 bytes per token
and 16 bytes per pair. The alternative, Arrow with the library `datasets`, is slower. For 2 million pairs of 14 words on
two cores, Arrow took 36 s of processor time instead of 26 s with the same tokenizer (194 s with the `tokenizers`
library alone), 527 MiB of memory instead of 142 MiB, and one second of imports for every training run.
"""

import os
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np

from regard.data.parallel import ConcatenatedText, PairCounts, PairSource, ParallelText, open_texts
from regard.data.subwords import SubwordVocabulary
from regard.data.unknown_tokens import UnknownCount, UnknownShares
from regard.data.vocabulary import BLANK, EOS, UNKNOWN, LearnedVocabulary, is_blank
from regard.data.worker_pool import map_in_processes
from regard.errors import InputError, plural, shorten
from regard.io import DamageError, add_digest, check_file, damage_errors, new_folder, read_stored, write_json
from regard.machine import available_cores

BOUND = np.dtype("<i8")
BLOCK = 1 << 20  # The number of bytes per read when checksums are computed
Checksums = tuple[int, int]  # CRC-32 checksums of the values and of the bounds


class RaggedWriter:
    """Writes rows block by block. Close the writer before the rows are read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     writer = RaggedWriter(Path(folder), "words", np.dtype("<u2"))
    ...     writer.append(np.array([5, 6, 7]), np.array([2, 1]))
    ...     checksums = writer.close()
    ...     rows = RaggedArray(Path(folder), "words", np.dtype("<u2"), checksums)
    ...     rows.read(1, 2)
    [array([7], dtype=uint16)]
    """

    def __init__(self, folder: Path, name: str, dtype: np.dtype) -> None:
        self._dtype, self._total = dtype, 0
        self._files = [path.open("xb") for path in _paths(folder, name)]
        self._checksums = [0, 0]
        self._write(1, np.zeros(1, BOUND))

    def append(self, values: np.ndarray, lengths: np.ndarray) -> None:
        self._write(0, np.ascontiguousarray(values, self._dtype))
        ends = self._total + np.cumsum(lengths, dtype=np.int64)
        self._write(1, ends.astype(BOUND))
        self._total += len(values)

    def close(self) -> Checksums:
        for file in self._files:
            file.close()
        return self._checksums[0], self._checksums[1]

    def _write(self, number: int, content: np.ndarray) -> None:
        self._files[number].write(content.data)
        self._checksums[number] = zlib.crc32(content.data, self._checksums[number])


class RaggedArray:
    """Rows written by `RaggedWriter`. Both files are read once to verify their checksums. Verifying parts on
    their first use would save little time, because the scan of the text before each training run reads more
    bytes. Raises `DamageError` if the files have changed, and `InputError` if the files are missing."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype, checksums: Checksums) -> None:
        self.dtype = dtype
        self._descriptors = []
        for path, expected in zip(_paths(folder, name), checksums, strict=True):
            check_file(path)
            self._descriptors.append(descriptor := os.open(path, os.O_RDONLY))
            weakref.finalize(self, os.close, descriptor)
            total = offset = 0
            while block := os.pread(descriptor, BLOCK, offset):
                total, offset = zlib.crc32(block, total), offset + len(block)
            if total != expected:
                raise DamageError(f"{path.name} changed after it was written (CRC-32)")
        self._rows = offset // BOUND.itemsize - 1

    def __len__(self) -> int:
        return self._rows

    @property
    def total(self) -> int:
        return int(self._bounds(len(self), len(self))[0])

    def counts(self, size: int) -> np.ndarray:
        counts, total = np.zeros(size, np.int64), self.total
        for begin in range(0, total, BLOCK):
            counts += np.bincount(self._read(0, self.dtype, begin, min(begin + BLOCK, total)), minlength=size)
        return counts

    def read(self, begin: int, end: int) -> list[np.ndarray]:
        """Return the rows `begin` to `end` - 1 as read-only arrays."""
        bounds = self._bounds(begin, end)
        # Split one contiguous read, instead of reading row by row.
        values = self._read(0, self.dtype, int(bounds[0]), int(bounds[-1]))
        return np.split(values, bounds[1:-1] - bounds[0])

    def _bounds(self, begin: int, end: int) -> np.ndarray:
        return self._read(1, BOUND, begin, end + 1)

    def _read(self, number: int, dtype: np.dtype, begin: int, end: int) -> np.ndarray:
        size = dtype.itemsize
        content = os.pread(self._descriptors[number], (end - begin) * size, begin * size)
        return np.frombuffer(content, dtype)


def _paths(folder: Path, name: str) -> tuple[Path, Path]:
    return folder / f"{name}.bin", folder / f"{name}-bounds.bin"


FORMAT: Literal["regard-corpus/4"] = "regard-corpus/4"
INDEX = "corpus.json"
SIDES = ("source", "target")  # The names of the files of each side
SEGMENT = 500  # The number of adjacent pairs that training reads together
POOL = 100  # Segments per pool
REMEDY = "delete its folder to prepare the corpus again"
Number = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
PairRange = tuple["Corpus", int, int]
"""A range of pairs in a corpus: the index of the first pair, and the index after the last pair."""


class StoredCorpus(msgspec.Struct, forbid_unknown_fields=True):
    """The content of corpus.json."""

    format: Literal["regard-corpus/4"]
    name: str  # The name of the folder, which identifies the text, the vocabularies and the maximum length
    longest: Annotated[int, msgspec.Meta(ge=1, le=2**48)]
    symbols: tuple[Number, Number]
    unknown: tuple[Number, Number]
    counts: PairCounts
    checksums: tuple[Checksums, Checksums]
    digest: str = ""


@dataclass(frozen=True)
class Corpus:
    """A corpus on disk."""

    folder: Path
    sides: tuple[RaggedArray, RaggedArray]  # The tokens of sources and of targets, each with its end of sequence
    longest: int  # The number of tokens of the longest sentence, including its end of sequence
    symbols: tuple[int, int]  # The sizes of the vocabularies of source and target
    unknown_tokens: tuple[int, int]  # The number of unknown tokens of sources and of targets
    counts: PairCounts

    def __len__(self) -> int:
        return self.counts.pairs

    @property
    def summary(self) -> str:
        return str(self.counts)

    @property
    def segments(self) -> int:
        return -(-len(self) // SEGMENT)

    @property
    def pools(self) -> int:
        return -(-self.segments // POOL)

    def unknown(self, text: str) -> UnknownShares:
        """Return the fractions of unknown tokens. `text`: the name of the corpus in messages."""
        # The end of sequence on each side of a pair is not counted.
        source, target = (
            UnknownCount(side.total - len(self), unknown)
            for side, unknown in zip(self.sides, self.unknown_tokens, strict=True)
        )
        return UnknownShares(text=text, pairs=len(self), source=source, target=target)

    def symbol_counts(self) -> list[np.ndarray]:
        return [side.counts(size) for side, size in zip(self.sides, self.symbols, strict=True)]

    def ranges(self, seed: int, epoch: int, pool: int) -> list[PairRange]:
        """Return the segments of a pool in the random order of the epoch."""
        order = np.random.default_rng((seed, epoch)).permutation(self.segments)
        segments = order[pool * POOL : (pool + 1) * POOL].tolist()
        return [(self, segment * SEGMENT, min((segment + 1) * SEGMENT, len(self))) for segment in segments]

    def read(self, begin: int, end: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        source, target = self.sides
        return source.read(begin, end), target.read(begin, end)


def token_type(symbols: tuple[int, int]) -> np.dtype:
    """Return the dtypes of the indices of a corpus for the sizes of its vocabularies.

    >>> token_type((12_000, 12_000)), token_type((70_000, 12_000))
    (dtype('uint16'), dtype('uint32'))
    """
    return np.dtype("<u2" if max(symbols) <= 1 << 16 else "<u4")


def open_corpus(folder: Path) -> Corpus:
    stored = read_stored(folder / INDEX, StoredCorpus, folder.name, REMEDY)
    with damage_errors(folder, REMEDY):
        source, target = (
            RaggedArray(folder, name, token_type(stored.symbols), checksums)
            for name, checksums in zip(SIDES, stored.checksums, strict=True)
        )
    return Corpus(folder, (source, target), stored.longest, stored.symbols, stored.unknown, stored.counts)


MIN_SEGMENTS = 5  # Smallest number of segments in a pool, so that batches contain sentences of similar length


@dataclass(frozen=True)
class Mixture:
    """Corpora with their weights."""

    corpora: tuple[Corpus, ...]
    weights: tuple[float, ...]  # One positive weight per corpus. Only their ratios matter.

    @property
    def longest(self) -> int:
        return max(corpus.longest for corpus in self.corpora)

    @property
    def summary(self) -> str:
        parts = zip(self.shares, self.corpora, strict=True)
        return ", and ".join(f"{float(share):.1%} from {corpus.summary}" for share, corpus in parts)

    @property
    def pools(self) -> int:
        return 1 << 62

    @property
    def shares(self) -> list[Fraction]:
        # Use exact fractions, so that positions are exact after any number of pools.
        weights = [Fraction(weight) for weight in self.weights]
        return [weight / sum(weights) for weight in weights]

    @property
    def pool_size(self) -> int:
        """Number of pairs per pool: no corpus repeats, but at least `MIN_SEGMENTS`."""
        limits = [int(len(corpus) / share) for corpus, share in zip(self.corpora, self.shares, strict=True)]
        return max(MIN_SEGMENTS * SEGMENT, min(POOL * SEGMENT, *limits))

    def ranges(self, seed: int, epoch: int, pool: int) -> list[PairRange]:
        """Return the pairs of a pool, corpus by corpus. `epoch` is always 0."""
        parts: list[PairRange] = []
        for index, share in enumerate(self.shares):
            begin, end = (int(number * self.pool_size * share) for number in (pool, pool + 1))
            parts += self._drawn(index, seed, begin, end)
        return parts

    def _drawn(self, index: int, seed: int, begin: int, end: int) -> Iterator[PairRange]:
        """Yield the ranges of pairs `begin` to `end` - 1 from a corpus, counted over all its epochs."""
        corpus = self.corpora[index]
        while begin < end:
            epoch, position = divmod(begin, len(corpus))
            stop = min(position + end - begin, len(corpus))
            # The seed has four numbers, so that the random stream differs from the streams of single corpora
            # and of pools.
            order = np.random.default_rng((seed, epoch, index, 1)).permutation(corpus.segments)
            firsts = order * SEGMENT
            ends = np.minimum(SEGMENT, len(corpus) - firsts).cumsum()  # end of each segment in the epoch
            begins = np.array([0, *ends[:-1]])
            for segment in np.flatnonzero((ends > position) & (begins < stop)):
                shift = int(firsts[segment] - begins[segment])
                low, high = max(int(begins[segment]), position), min(int(ends[segment]), stop)
                yield corpus, shift + low, shift + high
            begin += stop - position


# Build a corpus: split a text into tokens on all cores, and write the tokens in the order of the text.

LINES = 20_000
"""Lines per chunk. A worker needs 128 MiB for chunks of 20,000 lines and 317 MiB for chunks of 100,000 lines.
Both sizes have the same speed.
"""
STRETCH = 5  # Number of chunks per stretch. A sample of a long text consists of the first lines of each stretch
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
        contents = self.contents
        if limit is not None:
            contents = tuple(b"".join(_split_lines(content)[:limit]) for content in contents)
        if (chunk := self._read_regular(contents)) is not None:
            return chunk
        # Line by line: skipped pairs are counted or refused.
        text = ParallelText(self.paths, strict=self.strict)
        rows = zip_longest(*([line.rstrip(b"\r\n") for line in _split_lines(content)] for content in contents))
        pairs = [pair for number, lines in enumerate(rows, self.first) if (pair := text.pair(lines, number))]
        text.counts.pairs = len(pairs)
        return PairChunk([source for source, _ in pairs], [target for _, target in pairs], text.counts)

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


TextChunk = PairChunk | LineChunk


def read_chunks(text: PairSource) -> Iterator[TextChunk]:
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
        self.texts = self.text.texts if isinstance(self.text, ConcatenatedText) else [self.text]
        longest = [max(digest.lines for digest in text.digests()) for text in self.texts]
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
        for text in self.texts:
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
"""Marks the end of a sentence in a list of words. A sentence that contains this character is looked up as a whole."""
WHOLE = " "
"""The prefix of the key of a sentence that is looked up as a whole.

No word and no `END` begins with this prefix.
"""

Tokens = tuple[np.ndarray, np.ndarray]
"""The concatenated tokens of all sentences (N,) uint32, with `EOS` after each, and the tokens per sentence (S,)."""


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
    """Return the words of all sentences with `END` after each sentence. One with unusual whitespace stays whole."""
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
    """Build a corpus in a new folder, which is created atomically, and return the corpus. `max_len` and `strict` are
    those of `ChunkEncoder`. `on_chunk` is called with the number of pairs and bytes of each chunk."""
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
        unknown_tokens = int(unknown[0]), int(unknown[1])
        stored = StoredCorpus(FORMAT, folder.name, longest, symbols, unknown_tokens, counts, (source, target))
        write_json(building / INDEX, add_digest(msgspec.to_builtins(stored)))
    return open_corpus(folder)
