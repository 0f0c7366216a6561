"""A prepared corpus: parallel text as indices, in shards that are mapped into memory as needed.

    shard-000000.bin, ...     so many lines of the text each, in their order: see `shards`
    corpus.json               how many shards and pairs there are, what was left out: there once all shards are

However long the corpus, what is read at a time are a few thousand pairs. How it comes to be is in `making`.
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
from regard.data.shards import CHECKED, Pairs, Shard, read_head
from regard.data.unknown_tokens import UnknownCount, UnknownShares
from regard.errors import InputError
from regard.io import mark_in_use, remove_quietly, write_json
from regard.io.reading import DamageError, convert_json, parse_json, read_bytes

FORMAT = "regard-corpus/3"
INDEX = "corpus.json"
CHUNK = 500
"""Pairs that are read together in training."""
COUNTED = 10
"""Shards of which unknown tokens are counted, at most."""
POOL = 100
"""Chunks in a pool."""
LARGEST = 1 << 16
"""Bytes of corpus.json, at most."""
MEND = "delete its folder to prepare it anew"
Number = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
PairRange = tuple["Corpus", int, int]
"""Pairs of a corpus: from which one to before which."""


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """What corpus.json holds."""

    format: str
    key: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
    shards: Annotated[int, msgspec.Meta(ge=1, le=2**32)]
    longest: Annotated[int, msgspec.Meta(ge=1, le=2**48)]
    symbols: tuple[Number, Number]
    counts: dict[str, Number]
    crc32: Number = 0
    """Of all that stands before it here."""


@dataclass(frozen=True)
class Corpus:
    """A corpus on disk."""

    folder: Path
    key: int
    """Of what it was made of."""
    shards: tuple[Shard, ...]
    longest: int
    """Most tokens of a sentence, its end of sequence counted."""
    symbols: tuple[int, int]
    """Of the vocabularies of source and target."""
    counts: PairCounts
    _whole: dict[int, np.ndarray] = field(default_factory=dict, compare=False, repr=False)
    """Of each shard that was read, which blocks were held against their checksums."""

    def __len__(self) -> int:
        return self.counts.pairs

    @property
    def summary(self) -> str:
        """How many pairs there are, and what was left out."""
        return str(self.counts)

    @property
    def pools(self) -> int:
        """How many pools make an epoch."""
        return -(-self._chunks // POOL)

    @property
    def _chunks(self) -> int:
        return -(-len(self) // CHUNK)

    @cached_property
    def _ends(self) -> np.ndarray:
        """The number of the pair before which each shard ends."""
        return np.cumsum([shard.head.pairs for shard in self.shards])

    def unknown(self, text: str) -> UnknownShares:
        """Return the unknown tokens of the corpus, which is called `text`; of a long one, of `COUNTED` shards
        from everywhere. Raises `InputError` where a shard is damaged."""
        with _damage_told(self.folder):
            counted = self.shards[:: -(-len(self.shards) // COUNTED)]
            unknown = [shard.unknown() for shard in counted]
        heads = [shard.head for shard in counted]
        pairs = sum(head.pairs for head in heads)
        return UnknownShares(
            text=text,
            pairs=pairs,
            source=UnknownCount(
                sum(head.sources for head in heads) - pairs, sum(source for source, _ in unknown)
            ),
            target=UnknownCount(
                sum(head.targets for head in heads) - pairs, sum(target for _, target in unknown)
            ),
        )

    def spans(self, seed: int, epoch: int, pool: int) -> list[PairRange]:
        """Return the chunks of a pool, in the random order of their epoch."""
        order = np.random.default_rng((seed, epoch)).permutation(self._chunks)
        chunks = order[pool * POOL : (pool + 1) * POOL].tolist()
        return [(self, chunk * CHUNK, min((chunk + 1) * CHUNK, len(self))) for chunk in chunks]

    def lengths(self, begin: int, end: int) -> np.ndarray:
        """Return how many tokens source and target have (pairs, 2), of the pairs from `begin` to before `end`.

        Raises `InputError` where they are not those that were prepared; so do all that read.
        """
        with _damage_told(self.folder):
            return np.concatenate([self.shards[at].lengths(*place) for at, *place in self._places(begin, end)])

    def read(
        self, begin: int, end: int, wanted: np.ndarray | None = None, *, rank: int = 0, size: int = 1
    ) -> Pairs:
        """Return sources and targets of the pairs from `begin` to before `end`, with their ends of sequence.

        `wanted` (pairs,) bool: only these are read, the others are empty. Process `rank` of `size` that read the
        same pairs, each other ones, holds its share of the blocks against their checksums.
        """
        sources: list[np.ndarray] = []
        targets: list[np.ndarray] = []
        with _damage_told(self.folder):
            for at, low, high in self._places(begin, end):
                self._check(at, low, high, rank, size)
                mine = None if wanted is None else wanted[len(sources) : len(sources) + high - low]
                for side, found in zip((sources, targets), self.shards[at].read(low, high, mine), strict=True):
                    side += found
        return sources, targets

    def _places(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield in which shards pairs are: from which of its pairs to before which."""
        first = int(np.searchsorted(self._ends, begin, "right"))
        for at in range(first, len(self.shards)):
            before = int(self._ends[at]) - self.shards[at].head.pairs
            if before >= end:
                return
            low, high = max(begin - before, 0), min(end - before, self.shards[at].head.pairs)
            if low < high:
                yield at, low, high

    def _check(self, at: int, begin: int, end: int, rank: int, size: int) -> None:
        shard = self.shards[at]
        if at not in self._whole:
            shard.check_blocks()
            self._whole[at] = np.zeros(shard.head.blocks, dtype=bool)
        for block in range(begin // CHECKED, -(-end // CHECKED)):
            if block % size == rank and not self._whole[at][block]:
                shard.check(block, self.symbols)
                self._whole[at][block] = True


def shard_path(folder: Path, number: int) -> Path:
    """Return where a shard of a corpus is."""
    return folder / f"shard-{number:06d}.bin"


def write_corpus_index(folder: Path, key: int, shards: int, symbols: tuple[int, int]) -> Corpus:
    """Make one corpus of so many shards, which are all there, and return it.

    Raises `InputError` where a shard is missing or another's, or no pair is left.
    """
    with _damage_told(folder):
        found = _shards(folder, key, shards)
    counts = sum((_counts(shard) for shard in found), PairCounts())
    if not counts.pairs:
        remove_quietly(folder)
        raise InputError(f"no pair to learn from: {counts}")
    longest = max(shard.head.longest for shard in found)
    write_json(folder / INDEX, _stored(Corpus(folder, key, found, longest, symbols, counts)))
    return open_corpus(folder)


def open_corpus(folder: Path) -> Corpus:
    """Return a corpus that is there; raises `InputError` where it is missing or damaged.

    While it is in use, it is not removed when its text has changed.
    """
    with _damage_told(folder):
        found = parse_json(read_bytes(folder / INDEX, most=LARGEST))
        if isinstance(found, dict) and isinstance(found.get("format"), str) and found["format"] != FORMAT:
            raise InputError(f"corpus {str(folder)!r} is not of format {FORMAT!r}: {MEND}")
        stored = convert_json(found, _Stored)
        if set(stored.counts) != {each.name for each in fields(PairCounts)}:
            raise DamageError(f"{INDEX} does not count what it should")
        shards = _shards(folder, stored.key, stored.shards)
        counts = PairCounts(**stored.counts)
        corpus = Corpus(folder, stored.key, shards, stored.longest, stored.symbols, counts)
        if _stored(corpus) != found:
            raise DamageError(f"{INDEX} has changed since it was written")
        if sum((_counts(shard) for shard in shards), PairCounts()) != counts:
            raise DamageError(f"{INDEX} counts other pairs than its shards have")
    mark_in_use(folder / INDEX, corpus)
    return corpus


def _shards(folder: Path, key: int, shards: int) -> tuple[Shard, ...]:
    paths = [shard_path(folder, number) for number in range(shards)]
    return tuple(Shard(path, read_head(path, key, number)) for number, path in enumerate(paths))


def _counts(shard: Shard) -> PairCounts:
    return PairCounts(**{each.name: getattr(shard.head, each.name) for each in fields(PairCounts)})


def _stored(corpus: Corpus) -> dict[str, Any]:
    """Return what corpus.json is to hold."""
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
def _damage_told(folder: Path) -> Iterator[None]:
    """Say of what is damaged in the block, which corpus that is, and what to do about it."""
    try:
        yield
    except DamageError as error:
        raise InputError(f"corpus {str(folder)!r} is damaged: {error}; {MEND}") from error
