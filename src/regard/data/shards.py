"""One shard of a corpus: so many lines of a text as indices, in a file that is mapped into memory as needed.

    head       (14,) int64, see `Head`
    blocks     (blocks, 4) int64: where the tokens of each block of pairs begin, of source and of target, and
               CRC-32 of its lengths and of its tokens
    lengths    (pairs, 2) uint32: tokens of each source and target, their ends of sequence counted
    sources    tokens of all sources, end to end, each with its end of sequence; uint16 or uint32
    targets    tokens of all targets

What is read at a time is a block of pairs; it is held against its checksums when it is read first, so that
nothing is learned that was not in the text.
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
CHECKED = 500
"""Pairs that have checksums together."""
BLOCK, PAIR = 4 * 8, 2 * 4
"""Bytes of a row of blocks, and of lengths."""
Pairs = tuple[list[np.ndarray], list[np.ndarray]]
"""Sources and targets, each as indices with its end of sequence."""


class Head(NamedTuple):
    """What a shard begins with; all are whole numbers."""

    magic: int = MAGIC
    key: int = 0
    """Of what the corpus is made of."""
    number: int = 0
    """Which shard of the corpus, from 0."""
    pairs: int = 0
    sources: int = 0
    """Tokens of all sources."""
    targets: int = 0
    width: int = 2
    """Bytes of an index: 2 or 4."""
    longest: int = 0
    """Most tokens of a sentence, its end of sequence counted; 0 where there is none."""
    empty: int = 0
    not_utf8: int = 0
    without_partner: int = 0
    too_long: int = 0
    """Pairs that were left out, by reason: as in `parallel.Counts`."""
    blocks_crc: int = 0
    """CRC-32 of the blocks."""
    crc: int = 0
    """Of all that stands before it here."""

    @property
    def skipped(self) -> int:
        """How many pairs were left out."""
        return self.empty + self.not_utf8 + self.without_partner + self.too_long

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return -(-self.pairs // CHECKED)

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return self.begins()[-1]

    def begins(self) -> list[int]:
        """Return where blocks, lengths, sources and targets begin in the file, and where it ends."""
        sizes = [self.blocks * BLOCK, self.pairs * PAIR, self.sources * self.width, self.targets * self.width]
        return list(accumulate(sizes, initial=HEAD))

    def to_bytes(self) -> bytes:
        """Return the head as it stands in the file, its checksum made anew."""
        before = np.array(self[:-1], "<i8").tobytes()
        return before + np.array([zlib.crc32(before)], "<i8").tobytes()


HEAD = len(Head._fields) * 8
"""Bytes of a head."""


def write_shard(path: Path, head: Head, lengths: np.ndarray, tokens: Sequence[np.ndarray]) -> Head:
    """Write a shard, whole or not at all, and return its head, of which what follows from the arrays is worked
    out.

    `lengths`: (pairs, 2); `tokens`: those of sources and of targets. Raises `InputError` or `MachineError`
    where the disk refuses.
    """
    dtype = np.dtype(f"<u{head.width}")
    lengths = np.ascontiguousarray(lengths, "<u4")
    sides = [np.ascontiguousarray(side, dtype) for side in tokens]
    ends = np.concatenate([np.zeros((1, 2), np.int64), lengths.cumsum(0, dtype=np.int64)])
    blocks = []
    for begin in range(0, len(lengths), CHECKED):
        end = min(begin + CHECKED, len(lengths))
        parts = [side[first:last] for side, first, last in zip(sides, ends[begin], ends[end], strict=True)]
        blocks.append([*ends[begin].tolist(), _sum(lengths[begin:end]), _sum(*parts)])
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
    """Return the head of a shard; raises `DamageError` where it is not whole, or that of another one, and
    `InputError` where it cannot be read."""
    size = check_file(path)
    with path.open("rb") as file:
        content = file.read(HEAD)
    if len(content) < HEAD:
        raise DamageError(f"{path.name} has {size:,} bytes, not those of a shard")
    head = Head(*np.frombuffer(content, "<i8").tolist())
    if head.magic != MAGIC:
        raise DamageError(f"{path.name} is no shard of this format")
    if content != head.to_bytes():
        raise DamageError(f"the head of {path.name} has changed since it was written")
    if (head.key, head.number) != (key, number):
        raise DamageError(f"{path.name} is a shard of another corpus")
    if size != head.size:
        raise DamageError(f"{path.name} has {size:,} bytes, not {head.size:,}")
    return head


class _Mapped(NamedTuple):
    """The parts of a shard, mapped into memory."""

    blocks: np.ndarray
    lengths: np.ndarray
    sides: tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Shard:
    """A shard on disk. What is read of it is copied and let go at once, so that it does not stay in memory.

    All of its methods raise `DamageError` where what they read is not as it was prepared.
    """

    path: Path
    head: Head

    def lengths(self, begin: int, end: int) -> np.ndarray:
        """Return the tokens of source and target (pairs, 2) of the pairs from `begin` to before `end`."""
        return self._lengths(self._map(), begin, end)

    def read(self, begin: int, end: int, wanted: np.ndarray | None = None) -> Pairs:
        """Return sources and targets of the pairs from `begin` to before `end`; with `wanted` (pairs,) bool, only
        those that it names are read, and the others are empty."""
        mapped, first = self._map(), begin - begin % CHECKED
        lengths = self._lengths(mapped, first, end).astype(np.int64)
        ends = (mapped.blocks[first // CHECKED, :2] + lengths.cumsum(0))[begin - first :]
        begins = ends - lengths[begin - first :]
        if wanted is None:
            whole = [
                np.split(np.array(side[low[0] : high[-1]]), high[:-1] - low[0])
                for side, low, high in zip(mapped.sides, begins.T, ends.T, strict=True)
            ]
            return whole[0], whole[1]
        places = [np.where(wanted, each.T, 0).tolist() for each in (begins, ends)]
        found = [
            [np.array(side[low:high]) for low, high in zip(*each, strict=True)]
            for side, *each in zip(mapped.sides, *places, strict=True)
        ]
        return found[0], found[1]

    def check(self, block: int, symbols: tuple[int, int]) -> None:
        """Raise `DamageError` where the tokens of a block are not those that were prepared, or lie beyond
        vocabularies of so many symbols."""
        mapped = self._map()
        row = np.array(mapped.blocks[block])
        ends = row[:2] + self._lengths(mapped, block * CHECKED, (block + 1) * CHECKED).sum(0, dtype=np.int64)
        sides = [np.array(side[low:high]) for side, low, high in zip(mapped.sides, row[:2], ends, strict=True)]
        if _sum(*sides) != row[3]:
            raise self._changed(block)
        for side, most in zip(sides, symbols, strict=True):
            if int(side.max()) >= most:
                raise DamageError(f"index {side.max()} is beyond a vocabulary of {most} symbols")

    def unknown(self) -> tuple[int, int]:
        """Return how many tokens of its sources and of its targets are unknown; it is read as it is."""
        source, target = (int(np.count_nonzero(np.array(side) == UNKNOWN)) for side in self._map().sides)
        return source, target

    def check_blocks(self) -> None:
        """Raise `DamageError` where the table of blocks is not as it was prepared."""
        if _sum(np.array(self._map().blocks)) != self.head.blocks_crc:
            raise DamageError(f"the blocks of {self.path.name} have changed since they were written")

    def _lengths(self, mapped: _Mapped, begin: int, end: int) -> np.ndarray:
        first, last = begin // CHECKED, min(-(-end // CHECKED), self.head.blocks)
        found = np.array(mapped.lengths[first * CHECKED : last * CHECKED])
        for block, expected in enumerate(mapped.blocks[first:last, 2].tolist()):
            if _sum(found[block * CHECKED : (block + 1) * CHECKED]) != expected:
                raise self._changed(first + block)
        return found[begin - first * CHECKED : end - first * CHECKED]

    def _changed(self, block: int) -> DamageError:
        return DamageError(
            f"{self.path.name} has changed since it was prepared, from its pair {block * CHECKED} on (CRC-32)"
        )

    def _map(self) -> _Mapped:
        try:
            data = np.memmap(self.path, mode="r")
        except (OSError, ValueError) as error:
            raise DamageError(f"{self.path.name} cannot be read") from error
        if len(data) != self.head.size:
            raise DamageError(f"{self.path.name} has {len(data):,} bytes, not {self.head.size:,}")
        dtypes = ["<i8", "<u4", f"<u{self.head.width}", f"<u{self.head.width}"]
        parts = zip(pairwise(self.head.begins()), dtypes, strict=True)
        blocks, lengths, *sides = [data[begin:end].view(dtype) for (begin, end), dtype in parts]
        return _Mapped(blocks.reshape(-1, 4), lengths.reshape(-1, 2), (sides[0], sides[1]))


def _sum(*parts: np.ndarray) -> int:
    total = 0
    for part in parts:
        total = zlib.crc32(np.ascontiguousarray(part).data, total)
    return total
