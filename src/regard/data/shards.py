"""A shard of a corpus: the indices of one chunk of text, in a file that is mapped into memory.

    head       (14,) int64, see `Head`
    blocks     (blocks, 4) int64: for each block of pairs, the position of its first source token and of its first
               target token, and the CRC-32 of its lengths and of its tokens
    lengths    (pairs, 2) uint32: tokens of each source and target, including the end of sequence
    sources    the tokens of all sources, joined, each with its end of sequence; uint16 or uint32
    targets    the tokens of all targets

A block of pairs is checked against its checksums when it is first read, so training never uses damaged text.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.data.vocabulary import UNKNOWN
from regard.io import write_file
from regard.io.reading import DamageError, check_file

MAGIC = int.from_bytes(b"regard/3", "little")
BLOCK_PAIRS = 500
"""Pairs per block."""
BLOCK_BYTES, PAIR_BYTES = 4 * 8, 2 * 4
"""Bytes of a row of blocks, and of a row of lengths."""
Pairs = tuple[list[np.ndarray], list[np.ndarray]]
"""Sources and targets as indices, each with its end of sequence."""


class Head(NamedTuple):
    """The head of a shard. All fields are integers."""

    magic: int = MAGIC
    key: int = 0
    """Identifies the corpus, see `corpus_builder.corpus_key`."""
    number: int = 0
    """The number of the shard in the corpus, from 0."""
    pairs: int = 0
    sources: int = 0
    """Tokens of all sources."""
    targets: int = 0
    """Tokens of all targets."""
    width: int = 2
    """Bytes of an index: 2 or 4."""
    longest: int = 0
    """Tokens of the longest sentence, including its end of sequence."""
    empty: int = 0
    not_utf8: int = 0
    without_partner: int = 0
    too_long: int = 0
    """Skipped pairs by reason, see `parallel.PairCounts`."""
    blocks_crc: int = 0
    """CRC-32 of the blocks."""
    crc: int = 0
    """CRC-32 of the fields before it."""

    @property
    def skipped(self) -> int:
        """The number of skipped pairs."""
        return self.empty + self.not_utf8 + self.without_partner + self.too_long

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return -(-self.pairs // BLOCK_PAIRS)

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return self.section_offsets()[-1]

    def section_offsets(self) -> list[int]:
        """Return the offsets of blocks, lengths, sources and targets in the file, and its size."""
        sizes = [
            self.blocks * BLOCK_BYTES,
            self.pairs * PAIR_BYTES,
            self.sources * self.width,
            self.targets * self.width,
        ]
        return list(accumulate(sizes, initial=HEAD_BYTES))

    def to_bytes(self) -> bytes:
        """Return the head as stored, with a new checksum."""
        content = np.array(self[:-1], "<i8").tobytes()
        return content + np.array([zlib.crc32(content)], "<i8").tobytes()


HEAD_BYTES = len(Head._fields) * 8


def write_shard(path: Path, head: Head, lengths: np.ndarray, tokens: Sequence[np.ndarray]) -> Head:
    """Write a shard atomically, and return its head with the fields that follow from the arrays.

    `lengths`: (pairs, 2). `tokens`: those of all sources and of all targets. Raises `InputError` or
    `MachineError` if the file cannot be written.
    """
    dtype = np.dtype(f"<u{head.width}")
    lengths = np.ascontiguousarray(lengths, "<u4")
    sides = [np.ascontiguousarray(side, dtype) for side in tokens]
    ends = np.concatenate([np.zeros((1, 2), np.int64), lengths.cumsum(0, dtype=np.int64)])
    blocks = []
    for begin in range(0, len(lengths), BLOCK_PAIRS):
        end = min(begin + BLOCK_PAIRS, len(lengths))
        parts = [side[first:last] for side, first, last in zip(sides, ends[begin], ends[end], strict=True)]
        blocks.append([*ends[begin].tolist(), _checksum(lengths[begin:end]), _checksum(*parts)])
    table = np.array(blocks, "<i8").tobytes()
    head = head._replace(
        pairs=len(lengths),
        sources=len(sides[0]),
        targets=len(sides[1]),
        longest=int(lengths.max(initial=0)),
        blocks_crc=zlib.crc32(table),
    )
    write_file(path, b"".join([head.to_bytes(), table, lengths.tobytes(), *(side.tobytes() for side in sides)]))
    return head


def read_head(path: Path, key: int, number: int) -> Head:
    """Return the head of a shard.

    Raises `DamageError` if it is damaged or belongs to another shard, and `InputError` if it cannot be read.
    """
    size = check_file(path)
    with path.open("rb") as file:
        content = file.read(HEAD_BYTES)
    if len(content) < HEAD_BYTES:
        raise DamageError(f"{path.name} has {size:,} bytes, too few for a shard")
    head = Head(*np.frombuffer(content, "<i8").tolist())
    if head.magic != MAGIC:
        raise DamageError(f"{path.name} is not a shard of this format")
    if content != head.to_bytes():
        raise DamageError(f"the head of {path.name} changed after it was written")
    if (head.key, head.number) != (key, number):
        raise DamageError(f"{path.name} is a shard of another corpus")
    if size != head.size:
        raise DamageError(f"{path.name} has {size:,} bytes, not {head.size:,}")
    return head


class _Sections(NamedTuple):
    """The sections of a shard, mapped into memory."""

    blocks: np.ndarray
    lengths: np.ndarray
    sides: tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Shard:
    """A shard on disk. Reads copy the data and release the mapping, so the shard does not fill memory.

    All methods raise `DamageError` if the data changed after it was prepared.
    """

    path: Path
    head: Head

    def lengths(self, begin: int, end: int) -> np.ndarray:
        """Return the number of source and target tokens (pairs, 2) of the pairs `begin` to `end` - 1."""
        return self._lengths(self._map(), begin, end)

    def read(self, begin: int, end: int, wanted: np.ndarray | None = None) -> Pairs:
        """Return the sources and targets of the pairs `begin` to `end` - 1.

        `wanted` (pairs,) bool: read only these pairs, and return the others empty.
        """
        # The table has the position of a block's first token; the lengths before `begin` give the rest.
        mapped, first = self._map(), begin - begin % BLOCK_PAIRS
        lengths = self._lengths(mapped, first, end).astype(np.int64)
        ends = (mapped.blocks[first // BLOCK_PAIRS, :2] + lengths.cumsum(0))[begin - first :]
        begins = ends - lengths[begin - first :]
        if wanted is None:
            # Copy one contiguous range per side and split it, instead of one copy per sentence.
            whole = [
                np.split(np.array(side[low[0] : high[-1]]), high[:-1] - low[0])
                for side, low, high in zip(mapped.sides, begins.T, ends.T, strict=True)
            ]
            return whole[0], whole[1]
        bounds = [np.where(wanted, edges.T, 0).tolist() for edges in (begins, ends)]
        pairs = [
            [np.array(side[low:high]) for low, high in zip(*edges, strict=True)]
            for side, *edges in zip(mapped.sides, *bounds, strict=True)
        ]
        return pairs[0], pairs[1]

    def check(self, block: int, vocabulary_sizes: tuple[int, int]) -> None:
        """Raise `DamageError` if the tokens of a block changed, or exceed the sizes of the vocabularies."""
        mapped = self._map()
        row = np.array(mapped.blocks[block])
        lengths = self._lengths(mapped, block * BLOCK_PAIRS, (block + 1) * BLOCK_PAIRS)
        ends = row[:2] + lengths.sum(0, dtype=np.int64)
        sides = [np.array(side[low:high]) for side, low, high in zip(mapped.sides, row[:2], ends, strict=True)]
        if _checksum(*sides) != row[3]:
            raise self._damage(block)
        for side, size in zip(sides, vocabulary_sizes, strict=True):
            if int(side.max()) >= size:
                raise DamageError(f"index {side.max()} is beyond a vocabulary of {size} symbols")

    def unknown(self) -> tuple[int, int]:
        """Return the number of unknown tokens of its sources and of its targets. This does not check the
        blocks."""
        source, target = (int(np.count_nonzero(np.array(side) == UNKNOWN)) for side in self._map().sides)
        return source, target

    def check_blocks(self) -> None:
        """Raise `DamageError` if the table of blocks changed."""
        if _checksum(np.array(self._map().blocks)) != self.head.blocks_crc:
            raise DamageError(f"the blocks of {self.path.name} changed after they were written")

    def _lengths(self, mapped: _Sections, begin: int, end: int) -> np.ndarray:
        first, last = begin // BLOCK_PAIRS, min(-(-end // BLOCK_PAIRS), self.head.blocks)
        # Read whole blocks, because a checksum covers a block.
        lengths = np.array(mapped.lengths[first * BLOCK_PAIRS : last * BLOCK_PAIRS])
        for block, expected in enumerate(mapped.blocks[first:last, 2].tolist()):
            if _checksum(lengths[block * BLOCK_PAIRS : (block + 1) * BLOCK_PAIRS]) != expected:
                raise self._damage(first + block)
        return lengths[begin - first * BLOCK_PAIRS : end - first * BLOCK_PAIRS]

    def _damage(self, block: int) -> DamageError:
        return DamageError(
            f"{self.path.name} changed after it was prepared, from its pair {block * BLOCK_PAIRS} on (CRC-32)"
        )

    def _map(self) -> _Sections:
        try:
            data = np.memmap(self.path, mode="r")
        except (OSError, ValueError) as error:
            raise DamageError(f"{self.path.name} cannot be read") from error
        if len(data) != self.head.size:
            raise DamageError(f"{self.path.name} has {len(data):,} bytes, not {self.head.size:,}")
        dtypes = ["<i8", "<u4", f"<u{self.head.width}", f"<u{self.head.width}"]
        sections = zip(pairwise(self.head.section_offsets()), dtypes, strict=True)
        blocks, lengths, *sides = [data[begin:end].view(dtype) for (begin, end), dtype in sections]
        return _Sections(blocks.reshape(-1, 4), lengths.reshape(-1, 2), (sides[0], sides[1]))


def _checksum(*parts: np.ndarray) -> int:
    total = 0
    for part in parts:
        total = zlib.crc32(np.ascontiguousarray(part).data, total)
    return total
