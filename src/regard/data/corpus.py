"""A prepared corpus: parallel text as indices, in shards that are mapped into memory.

    shard-000000.bin, ...     one chunk of the text each, in order: see `shards`
    corpus.json               the number of shards and pairs, and the skipped pairs; written after all shards

Training reads a few thousand pairs at a time, however long the corpus is. `corpus_builder` writes a corpus.
"""

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from regard.data.parallel import PairCounts
from regard.data.shards import BLOCK_PAIRS, Pairs, Shard, read_head
from regard.data.unknown_tokens import UnknownCount, UnknownShares
from regard.errors import InputError
from regard.io import mark_in_use, remove_quietly, write_json
from regard.io.reading import DamageError, convert_json, parse_json, read_bytes

FORMAT = "regard-corpus/3"
INDEX = "corpus.json"
SEGMENT = 500
"""Neighbouring pairs that training reads together."""
POOL = 100
"""Segments per pool."""
MAX_COUNTED = 10
"""The maximal number of shards whose unknown tokens are counted."""
MAX_INDEX_BYTES = 1 << 16
REMEDY = "delete its folder to prepare it anew"
Number = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
PairRange = tuple["Corpus", int, int]
"""The first pair of a range in a corpus, and the one after the last."""


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """The content of corpus.json."""

    format: str
    key: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
    shards: Annotated[int, msgspec.Meta(ge=1, le=2**32)]
    longest: Annotated[int, msgspec.Meta(ge=1, le=2**48)]
    symbols: tuple[Number, Number]
    counts: dict[str, Number]
    crc32: Number = 0
    """CRC-32 of the fields before it."""


@dataclass(frozen=True)
class Corpus:
    """A corpus on disk. All methods that read raise `InputError` if the data changed after it was prepared."""

    folder: Path
    key: int
    """Identifies text, vocabularies and limits, see `corpus_builder.corpus_key`."""
    shards: tuple[Shard, ...]
    longest: int
    """Tokens of the longest sentence, including its end of sequence."""
    symbols: tuple[int, int]
    """The sizes of the vocabularies of source and target."""
    counts: PairCounts
    _checked: dict[int, np.ndarray] = field(default_factory=dict, compare=False, repr=False)
    """For each shard that was read: the blocks whose checksums were verified."""

    def __len__(self) -> int:
        return self.counts.pairs

    @property
    def summary(self) -> str:
        """The number of pairs, and of skipped pairs."""
        return str(self.counts)

    @property
    def pools(self) -> int:
        """The number of pools per epoch."""
        return -(-self._segments // POOL)

    @property
    def _segments(self) -> int:
        return -(-len(self) // SEGMENT)

    @cached_property
    def _ends(self) -> np.ndarray:
        """The number of pairs up to the end of each shard."""
        return np.cumsum([shard.head.pairs for shard in self.shards])

    def unknown(self, text: str) -> UnknownShares:
        """Return the shares of unknown tokens, from at most `MAX_COUNTED` evenly spaced shards.

        `text`: the name of the corpus in messages.
        """
        with _explain_damage(self.folder):
            counted = self.shards[:: -(-len(self.shards) // MAX_COUNTED)]
            unknown = [shard.unknown() for shard in counted]
        heads = [shard.head for shard in counted]
        pairs = sum(
            head.pairs for head in heads
        )  # each side has one end of sequence per pair, which is not counted
        sources, targets = (
            sum(head.sources for head in heads) - pairs,
            sum(head.targets for head in heads) - pairs,
        )
        return UnknownShares(
            text=text,
            pairs=pairs,
            source=UnknownCount(sources, sum(source for source, _ in unknown)),
            target=UnknownCount(targets, sum(target for _, target in unknown)),
        )

    def ranges(self, seed: int, epoch: int, pool: int) -> list[PairRange]:
        """Return the segments of a pool, in the random order of the epoch."""
        order = np.random.default_rng((seed, epoch)).permutation(self._segments)
        segments = order[pool * POOL : (pool + 1) * POOL].tolist()
        return [(self, segment * SEGMENT, min((segment + 1) * SEGMENT, len(self))) for segment in segments]

    def lengths(self, begin: int, end: int) -> np.ndarray:
        """Return the number of source and target tokens (pairs, 2) of the pairs `begin` to `end` - 1."""
        with _explain_damage(self.folder):
            return np.concatenate(
                [self.shards[number].lengths(low, high) for number, low, high in self._locate(begin, end)]
            )

    def read(
        self, begin: int, end: int, wanted: np.ndarray | None = None, *, rank: int = 0, size: int = 1
    ) -> Pairs:
        """Return the sources and targets of the pairs `begin` to `end` - 1, with their ends of sequence.

        `wanted` (pairs,) bool: read only these pairs, and return the others empty. `rank`, `size`: the number of
        this process among those that read the same range. Each process verifies its share of the checksums.
        """
        sources: list[np.ndarray] = []
        targets: list[np.ndarray] = []
        with _explain_damage(self.folder):
            for number, low, high in self._locate(begin, end):
                self._check(number, low, high, rank, size)
                mine = None if wanted is None else wanted[len(sources) : len(sources) + high - low]
                for side, pairs in zip(
                    (sources, targets), self.shards[number].read(low, high, mine), strict=True
                ):
                    side += pairs
        return sources, targets

    def _locate(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield the shards that contain a range of pairs, each with the range in the shard."""
        # `right` skips empty shards, which end where the shard before them ends.
        first = int(np.searchsorted(self._ends, begin, "right"))
        for number in range(first, len(self.shards)):
            before = int(self._ends[number]) - self.shards[number].head.pairs
            if before >= end:
                return
            low, high = max(begin - before, 0), min(end - before, self.shards[number].head.pairs)
            if low < high:
                yield number, low, high

    def _check(self, number: int, begin: int, end: int, rank: int, size: int) -> None:
        shard = self.shards[number]
        if number not in self._checked:
            shard.check_blocks()
            self._checked[number] = np.zeros(shard.head.blocks, dtype=bool)
        for block in range(begin // BLOCK_PAIRS, -(-end // BLOCK_PAIRS)):
            # Processes read the same blocks, so each block is checked by one of them.
            if block % size == rank and not self._checked[number][block]:
                shard.check(block, self.symbols)
                self._checked[number][block] = True


def shard_path(folder: Path, number: int) -> Path:
    """Return the path of a shard of a corpus."""
    return folder / f"shard-{number:06d}.bin"


def write_corpus_index(folder: Path, key: int, shards: int, symbols: tuple[int, int]) -> Corpus:
    """Write corpus.json for the given number of shards, and return the corpus.

    Raises `InputError` if a shard is missing or belongs to another corpus, or if no pair is left.
    """
    with _explain_damage(folder):
        opened = _open_shards(folder, key, shards)
    counts = sum((_shard_counts(shard) for shard in opened), PairCounts())
    if not counts.pairs:
        remove_quietly(folder)
        raise InputError(f"no pair to learn from: {counts}")
    longest = max(shard.head.longest for shard in opened)
    write_json(folder / INDEX, _to_stored(Corpus(folder, key, opened, longest, symbols, counts)))
    return open_corpus(folder)


def open_corpus(folder: Path) -> Corpus:
    """Return the corpus in a folder. Raises `InputError` if it is missing or damaged.

    While the object lives, no process removes the corpus when its text changes.
    """
    with _explain_damage(folder):
        content = parse_json(read_bytes(folder / INDEX, most=MAX_INDEX_BYTES))
        if isinstance(content, dict) and isinstance(content.get("format"), str) and content["format"] != FORMAT:
            raise InputError(f"corpus {str(folder)!r} is not of format {FORMAT!r}: {REMEDY}")
        stored = convert_json(content, _Stored)
        if set(stored.counts) != {field.name for field in fields(PairCounts)}:
            raise DamageError(f"{INDEX} has other counts than expected")
        shards = _open_shards(folder, stored.key, stored.shards)
        counts = PairCounts(**stored.counts)
        corpus = Corpus(folder, stored.key, shards, stored.longest, stored.symbols, counts)
        if _to_stored(corpus) != content:
            raise DamageError(f"{INDEX} has changed since it was written")
        if sum((_shard_counts(shard) for shard in shards), PairCounts()) != counts:
            raise DamageError(f"the counts of {INDEX} differ from those of its shards")
    mark_in_use(folder / INDEX, corpus)
    return corpus


def _open_shards(folder: Path, key: int, shards: int) -> tuple[Shard, ...]:
    paths = [shard_path(folder, number) for number in range(shards)]
    return tuple(Shard(path, read_head(path, key, number)) for number, path in enumerate(paths))


def _shard_counts(shard: Shard) -> PairCounts:
    return PairCounts(**{field.name: getattr(shard.head, field.name) for field in fields(PairCounts)})


def _to_stored(corpus: Corpus) -> dict[str, Any]:
    """Return the content of corpus.json."""
    stored = {
        "format": FORMAT,
        "key": corpus.key,
        "shards": len(corpus.shards),
        "longest": corpus.longest,
        "symbols": list(corpus.symbols),
        "counts": asdict(corpus.counts),
    }
    return {**stored, "crc32": zlib.crc32(json.dumps(stored).encode())}


@contextmanager
def _explain_damage(folder: Path) -> Iterator[None]:
    """Add the folder and the remedy to an error about damage."""
    try:
        yield
    except DamageError as error:
        raise InputError(f"corpus {str(folder)!r} is damaged: {error}; {REMEDY}") from error
