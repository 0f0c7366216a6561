"""A prepared corpus: parallel text as indices, in files that are mapped into memory as needed.

    source.bin, target.bin    indices of all sentences, end to end, each with its end of sequence
    bounds.bin                where pair i begins: (pairs + 1, 2) int64, source and target
    checksums.bin             of each block of pairs: (blocks,) uint32, CRC-32 of its bounds, sources and targets
    corpus.json               how many pairs, of which width the indices are, what was left out

However long the corpus, what is read at a time is a block of pairs; it is held against its checksum when it is
read first, so that nothing is learned that was not in the text.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import msgspec
import numpy as np

from regard.errors import InputError, begun
from regard.files import new_folder, write_json
from regard.reading import DamageError, check_file, parse_json, read_bytes, shaped
from regard.text.parallel import Counts, Text
from regard.text.vocabulary import EOS, Learned

FORMAT = "regard-corpus/2"
BLOCK = 10_000
"""Pairs that are encoded at once, in parallel."""
CHUNK = 500
"""Pairs that are read together in training."""
POOL = 100
"""Chunks in a pool."""
CHECKED = 500
"""Pairs that have a checksum together."""
SIDES = ("source.bin", "target.bin")
BOUNDS = np.dtype(np.int64).itemsize * len(SIDES)
"""Bytes of where a pair begins."""
LARGEST = 1 << 16
"""Bytes of corpus.json, at most."""
MEND = "delete its folder to prepare it anew"
Number = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Pairs = tuple[list[np.ndarray], list[np.ndarray]]
"""Sources and targets, each as indices with its end of sequence."""


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """What corpus.json holds."""

    format: str
    pairs: Annotated[int, msgspec.Meta(ge=1, le=2**48)]
    dtype: Literal["uint16", "uint32"]
    longest: Annotated[int, msgspec.Meta(ge=1, le=2**48)]
    symbols: tuple[Number, Number]
    counts: dict[str, Number]
    checksums: Number
    """CRC-32 of checksums.bin."""
    crc32: Number = 0
    """Of all that stands before it here."""


@dataclass(frozen=True)
class Corpus:
    """A corpus on disk."""

    folder: Path
    pairs: int
    dtype: str
    """Of the indices: uint16 or uint32."""
    longest: int
    """Most tokens of a sentence, its end of sequence counted."""
    symbols: tuple[int, int]
    """Of the vocabularies of source and target."""
    counts: Counts
    _found_whole: set[int] = field(default_factory=set, compare=False, repr=False)
    """Blocks that were held against their checksums."""

    def __len__(self) -> int:
        return self.pairs

    @property
    def told(self) -> str:
        """How many pairs there are, and what was left out."""
        return str(self.counts)

    @property
    def pools(self) -> int:
        """How many pools make an epoch."""
        return -(-self._chunks // POOL)

    @property
    def _chunks(self) -> int:
        return -(-len(self) // CHUNK)

    def chunks_of(self, seed: int, epoch: int, pool: int) -> list[tuple[int, int]]:
        """Return the chunks of a pool, in the random order of their epoch: from which pair to before which."""
        order = np.random.default_rng((seed, epoch)).permutation(self._chunks)
        chunks = order[pool * POOL : (pool + 1) * POOL].tolist()
        return [(chunk * CHUNK, min((chunk + 1) * CHUNK, len(self))) for chunk in chunks]

    def read_pool(self, seed: int, epoch: int, pool: int) -> Pairs:
        """Return sources and targets of a pool."""
        sources: list[np.ndarray] = []
        targets: list[np.ndarray] = []
        for begin, end in self.chunks_of(seed, epoch, pool):
            source, target = self.read(begin, end)
            sources += source
            targets += target
        return sources, targets

    def read(self, begin: int, end: int) -> Pairs:
        """Return sources and targets of the pairs from `begin` to before `end`, with their ends of sequence.

        Raises `InputError` where they are not those that were prepared.
        """
        for block in range(begin // CHECKED, -(-end // CHECKED)):
            if block not in self._found_whole:
                self._check(block)
                self._found_whole.add(block)
        bounds = self._bounds(begin, end)
        sides = []
        for side, name in enumerate(SIDES):
            first, *inner, last = bounds[:, side].tolist()
            indices = self._indices(name, first, last)
            sides.append(np.split(indices, np.array(inner, dtype=np.int64) - first))
        return sides[0], sides[1]

    def _bounds(self, begin: int, end: int) -> np.ndarray:
        return self._part("bounds.bin", "int64", 2 * begin, 2 * end + 2).reshape(-1, 2)

    def _indices(self, name: str, begin: int, end: int) -> np.ndarray:
        return self._part(name, self.dtype, begin, end)

    def _part(self, name: str, dtype: str, begin: int, end: int) -> np.ndarray:
        try:
            # Copied and let go at once, so that what has been read does not stay in memory.
            return np.array(np.memmap(self.folder / name, dtype=dtype, mode="r")[begin:end])
        except (OSError, ValueError) as error:
            raise _damaged(self.folder, f"{name} cannot be read") from error

    def _check(self, block: int) -> None:
        """Raise `InputError` where a block is not as it was prepared."""
        expected = int(self._part("checksums.bin", "uint32", block, block + 1)[0])
        bounds = self._bounds(block * CHECKED, min((block + 1) * CHECKED, self.pairs))
        ends = bounds[[0, -1]].T.tolist()
        sizes = [(self.folder / name).stat().st_size // np.dtype(self.dtype).itemsize for name in SIDES]
        if (np.diff(bounds, axis=0) < 1).any() or any(
            not 0 <= begin <= end <= size for (begin, end), size in zip(ends, sizes, strict=True)
        ):
            raise _damaged(self.folder, f"pairs from {block * CHECKED} on do not lie where they should")
        sides = [self._indices(name, begin, end) for name, (begin, end) in zip(SIDES, ends, strict=True)]
        if _sum(bounds, *sides) != expected:
            raise _damaged(
                self.folder, f"pairs from {block * CHECKED} on have changed since they were prepared (CRC-32)"
            )
        for side, symbols in zip(sides, self.symbols, strict=True):
            if int(side.max()) >= symbols:
                raise _damaged(self.folder, f"index {side.max()} is beyond a vocabulary of {symbols} symbols")


def _sum(*parts: np.ndarray) -> int:
    total = 0
    for part in parts:
        total = zlib.crc32(part.tobytes(), total)
    return total


def _damaged(folder: Path, what: object) -> InputError:
    return InputError(f"corpus {str(folder)!r} is damaged: {what}; {MEND}")


def write_corpus(
    folder: Path,
    text: Text | Iterable[tuple[str, str]],
    vocabularies: tuple[Learned, Learned],
    *,
    max_len: int,
    strict: bool = False,
) -> Corpus:
    """Encode parallel text into a new corpus at `folder`, complete or not at all.

    `vocabularies`: of source and target. Pairs with a side of more than `max_len` tokens are left out and
    counted, or with `strict` refused. Raises `InputError` where nothing is left, or the text cannot be read;
    `MachineError` where the disk refuses.
    """
    with new_folder(folder) as building:
        corpus = _encode(building, text, vocabularies, max_len=max_len, strict=strict)
        write_json(building / "corpus.json", _stored(corpus, _write_checksums(corpus)))
    return replace(corpus, folder=folder)


def _encode(
    folder: Path,
    text: Text | Iterable[tuple[str, str]],
    vocabularies: tuple[Learned, Learned],
    *,
    max_len: int,
    strict: bool,
) -> Corpus:
    """Write the indices and bounds of all pairs into a folder; the arguments are those of `write_corpus`."""
    dtype = "uint16" if max(map(len, vocabularies)) <= 1 << 16 else "uint32"
    pairs, longest, too_long = 0, 0, 0
    ends = np.zeros(2, dtype=np.int64)
    with (
        (folder / "source.bin").open("wb") as source,
        (folder / "target.bin").open("wb") as target,
        (folder / "bounds.bin").open("wb") as bounds,
    ):
        bounds.write(ends.tobytes())
        for block in _blocks(text):
            sides = [vocabulary.encode_all(side) for vocabulary, side in zip(vocabularies, block, strict=True)]
            fits = [max(len(each), len(other)) <= max_len for each, other in zip(*sides, strict=True)]
            too_long += len(fits) - sum(fits)
            if strict and not all(fits):
                raise InputError(_too_long(block, sides, fits, max_len))
            kept = [[each for each, fit in zip(side, fits, strict=True) if fit] for side in sides]
            lengths = np.array([[len(each) + 1 for each in side] for side in kept], dtype=np.int64).T
            for file, side in zip((source, target), kept, strict=True):
                _write(file, side, dtype)
            if len(lengths):
                bounds.write((ends + lengths.cumsum(0)).tobytes())
                ends += lengths.sum(0)
                longest = max(longest, int(lengths.max()))
            pairs += len(lengths)
    counts = text.counts if isinstance(text, Text) else Counts(pairs=pairs + too_long)
    counts.too_long, counts.pairs = too_long, pairs
    if not pairs:
        raise InputError(f"no pair to learn from: {counts}")
    return Corpus(folder, pairs, dtype, longest, (len(vocabularies[0]), len(vocabularies[1])), counts)


def _write_checksums(corpus: Corpus) -> int:
    """Write the checksum of every block, and return that of them all."""
    sums = []
    for begin in range(0, len(corpus), CHECKED):
        bounds = corpus._bounds(begin, min(begin + CHECKED, len(corpus)))
        ends = bounds[[0, -1]].T.tolist()
        sums.append(_sum(bounds, *(corpus._indices(name, *each) for name, each in zip(SIDES, ends, strict=True))))
    content = np.array(sums, dtype=np.uint32).tobytes()
    (corpus.folder / "checksums.bin").write_bytes(content)
    return zlib.crc32(content)


def _stored(corpus: Corpus, checksums: int) -> dict[str, Any]:
    """Return what corpus.json is to hold."""
    stored = {
        "format": FORMAT,
        "pairs": corpus.pairs,
        "dtype": corpus.dtype,
        "longest": corpus.longest,
        "symbols": list(corpus.symbols),
        "counts": asdict(corpus.counts),
        "checksums": checksums,
    }
    return {**stored, "crc32": zlib.crc32(json.dumps(stored).encode())}


def open_corpus(folder: Path) -> Corpus:
    """Return the corpus that `write_corpus` made; raises `InputError` where it is missing or damaged."""
    try:
        found = parse_json(read_bytes(folder / "corpus.json", most=LARGEST))
        if isinstance(found, dict) and isinstance(found.get("format"), str) and found["format"] != FORMAT:
            raise InputError(f"corpus {str(folder)!r} is not of format {FORMAT!r}: {MEND}")
        stored = shaped(found, _Stored)
        if set(stored.counts) != {each.name for each in fields(Counts)}:
            raise DamageError("corpus.json does not count what it should")
        corpus = Corpus(
            folder, stored.pairs, stored.dtype, stored.longest, stored.symbols, Counts(**stored.counts)
        )
        if _stored(corpus, stored.checksums) != found:
            raise DamageError("corpus.json has changed since it was written")
        _check_sizes(corpus, stored.checksums)
    except DamageError as error:
        raise _damaged(folder, error) from error
    return corpus


def _check_sizes(corpus: Corpus, checksums: int) -> None:
    """Raise `DamageError` where a file is not as large as it should be, or the checksums are others."""
    sizes = {name: check_file(corpus.folder / name) for name in ("bounds.bin", "checksums.bin", *SIDES)}
    if sizes["bounds.bin"] != (len(corpus) + 1) * BOUNDS:
        raise DamageError(f"bounds.bin has {sizes['bounds.bin']:,} bytes, not those of {len(corpus):,} pairs")
    if zlib.crc32(read_bytes(corpus.folder / "checksums.bin")) != checksums:
        raise DamageError("checksums.bin has changed since it was written")
    ends = corpus._bounds(len(corpus), len(corpus))[0].tolist()
    for name, end in zip(SIDES, ends, strict=True):
        if sizes[name] != end * np.dtype(corpus.dtype).itemsize:
            raise DamageError(f"{name} has {sizes[name]:,} bytes, not those of {end:,} tokens")


def _blocks(text: Iterable[tuple[str, str]]) -> Iterator[tuple[list[str], list[str]]]:
    pairs = iter(text)
    while block := list(islice(pairs, BLOCK)):
        yield [source for source, _ in block], [target for _, target in block]


def _write(file: BinaryIO, sentences: Sequence[list[int]], dtype: str) -> None:
    flat = [index for sentence in sentences for index in (*sentence, EOS)]
    file.write(np.array(flat, dtype=dtype).tobytes())


def _too_long(
    block: tuple[list[str], list[str]], sides: list[list[list[int]]], fits: list[bool], max_len: int
) -> str:
    row = fits.index(False)
    side = 0 if len(sides[0][row]) > max_len else 1
    text = block[side][row]
    return (
        f"sentence {begun(text)} has {len(sides[side][row])} tokens, at most "
        f"{max_len} are taken: raise --max_len, or leave out --strict"
    )
