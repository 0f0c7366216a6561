"""A prepared corpus: parallel text as indices, in files. Training reads a few thousand pairs at a time.

    source.bin, source-bounds.bin    the tokens of all sources, see `ragged`
    target.bin, target-bounds.bin    the tokens of all targets
    corpus.json                      the number of pairs, of skipped pairs and of unknown tokens, and checksums

Tokens are stored as uint16, or as uint32 for a vocabulary of more than 65,536 symbols. A corpus needs 2 bytes
per token and 16 bytes per pair. The alternative, Arrow with the library `datasets`, is slower. For 2 million
pairs of 14 words on two cores, Arrow took 36 s of processor time instead of 26 s with the same tokenizer (194 s
with the `tokenizers` library alone), 527 MiB of memory instead of 142 MiB, and one second of imports for every
training run. `corpus_builder` writes a corpus.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np

from regard.data.parallel import PairCounts
from regard.data.ragged import Checksums, RaggedArray
from regard.data.unknown_tokens import UnknownCount, UnknownShares
from regard.errors import InputError
from regard.io.reading import (
    DamageError,
    add_digest,
    convert_json,
    damaged_file,
    has_valid_digest,
    parse_json,
    read_bytes,
)
from regard.io.writing import write_json

FORMAT: Literal["regard-corpus/4"] = "regard-corpus/4"
INDEX = "corpus.json"
SIDES = ("source", "target")
"""The names of the files of each side."""
SEGMENT = 500
"""The number of adjacent pairs that training reads together."""
POOL = 100
"""Segments per pool."""
MAX_INDEX_BYTES = 1 << 16
REMEDY = "delete its folder to prepare the corpus again"
Number = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
PairRange = tuple["Corpus", int, int]
"""A range of pairs in a corpus: the index of the first pair, and the index after the last pair."""


class StoredCorpus(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The content of corpus.json."""

    format: Literal["regard-corpus/4"]
    name: str
    """The name of the folder, which identifies the text, the vocabularies and the maximum length."""
    longest: Annotated[int, msgspec.Meta(ge=1, le=2**48)]
    symbols: tuple[Number, Number]
    unknown: tuple[Number, Number]
    counts: PairCounts
    checksums: tuple[Checksums, Checksums]
    digest: str = ""
    """The digest of the preceding fields."""


@dataclass(frozen=True)
class Corpus:
    """A corpus on disk."""

    folder: Path
    sides: tuple[RaggedArray, RaggedArray]
    """The tokens of sources and of targets, each with its end of sequence."""
    longest: int
    """The number of tokens of the longest sentence, including its end of sequence."""
    symbols: tuple[int, int]
    """The sizes of the vocabularies of source and target."""
    unknown_tokens: tuple[int, int]
    """The number of unknown tokens of sources and of targets."""
    counts: PairCounts

    def __len__(self) -> int:
        return self.counts.pairs

    @property
    def summary(self) -> str:
        return str(self.counts)

    @property
    def pools(self) -> int:
        return -(-self._segments // POOL)

    @property
    def _segments(self) -> int:
        return -(-len(self) // SEGMENT)

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
        order = np.random.default_rng((seed, epoch)).permutation(self._segments)
        segments = order[pool * POOL : (pool + 1) * POOL].tolist()
        return [(self, segment * SEGMENT, min((segment + 1) * SEGMENT, len(self))) for segment in segments]

    def lengths(self, begin: int, end: int) -> np.ndarray:
        return np.stack([side.lengths(begin, end) for side in self.sides], 1)

    def read(self, begin: int, end: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        source, target = self.sides
        return source.read(begin, end), target.read(begin, end)


def token_type(symbols: tuple[int, int]) -> np.dtype:
    """Return the dtypes of the indices of a corpus for the sizes of its vocabularies.

    >>> token_type((12_000, 12_000)), token_type((70_000, 12_000))
    (dtype('uint16'), dtype('uint32'))
    """
    return np.dtype("<u2" if max(symbols) <= 1 << 16 else "<u4")


def write_index(folder: Path, stored: StoredCorpus) -> None:
    """Write the index of a corpus. All other files must already be in the folder."""
    write_json(folder / INDEX, add_digest(msgspec.to_builtins(stored)))


def open_corpus(folder: Path) -> Corpus:
    """Return the corpus in a folder. Raises `InputError` if the corpus is missing or damaged."""
    try:
        content = parse_json(read_bytes(folder / INDEX, most=MAX_INDEX_BYTES))
        if isinstance(content, dict) and isinstance(content.get("format"), str) and content["format"] != FORMAT:
            raise InputError(f"corpus {str(folder)!r} is not of format {FORMAT!r}: {REMEDY}")
        stored = convert_json(content, StoredCorpus)
        if not has_valid_digest(content):
            raise DamageError(f"{INDEX} has changed since it was written")
        if stored.name != folder.name:
            raise DamageError(f"it is {stored.name}, under another name")
        source, target = (
            RaggedArray(folder, name, token_type(stored.symbols), checksums)
            for name, checksums in zip(SIDES, stored.checksums, strict=True)
        )
    except DamageError as error:
        raise damaged_file(folder, error, REMEDY) from error
    return Corpus(folder, (source, target), stored.longest, stored.symbols, stored.unknown, stored.counts)
