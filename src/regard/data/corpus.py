"""A prepared corpus: parallel text as indices, in files. Training reads a few thousand pairs at a time.

    source.bin, source-bounds.bin    the tokens of all sources, see `RaggedWriter`
    target.bin, target-bounds.bin    the tokens of all targets
    corpus.json                      the number of pairs, of skipped pairs and of unknown tokens, and checksums

Tokens are stored as uint16, or as uint32 for a vocabulary of more than 65,536 symbols. A corpus needs 2 bytes
per token and 16 bytes per pair. The alternative, Arrow with the library `datasets`, is slower. For 2 million
pairs of 14 words on two cores, Arrow took 36 s of processor time instead of 26 s with the same tokenizer (194 s
with the `tokenizers` library alone), 527 MiB of memory instead of 142 MiB, and one second of imports for every
training run. `corpus_builder` writes a corpus.
"""

import os
import weakref
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np

from regard.data.parallel import PairCounts
from regard.data.unknown_tokens import UnknownCount, UnknownShares
from regard.io import DamageError, check_file, damaged_file, read_stored

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


class StoredCorpus(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
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
    sides: tuple[RaggedArray, RaggedArray]
    """The tokens of sources and of targets, each with its end of sequence."""
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
    """Return the corpus in a folder. Raises `InputError` if the corpus is missing or damaged."""
    stored = read_stored(folder / INDEX, StoredCorpus, folder.name, REMEDY)
    try:
        source, target = (
            RaggedArray(folder, name, token_type(stored.symbols), checksums)
            for name, checksums in zip(SIDES, stored.checksums, strict=True)
        )
    except DamageError as error:
        raise damaged_file(folder, error, REMEDY) from error
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
        """Number of pairs per pool: small enough that no corpus repeats within a pool, but at least
        `MIN_SEGMENTS` segments."""
        limits = [int(len(corpus) / share) for corpus, share in zip(self.corpora, self.shares, strict=True)]
        return max(MIN_SEGMENTS * SEGMENT, min(POOL * SEGMENT, *limits))

    def ranges(self, seed: int, epoch: int, pool: int) -> list[PairRange]:
        """Return the pairs of a pool, corpus by corpus. `epoch` is always 0."""
        del epoch
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
