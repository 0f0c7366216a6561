"""A prepared corpus: parallel text as indices, in files that are mapped into memory as needed.

    source.bin, target.bin    indices of all sentences, end to end, each with its end of sequence
    bounds.bin                where pair i begins: (pairs + 1, 2) int64, source and target
    corpus.json               how many pairs, of which width the indices are, what was left out

However long the corpus, what is read at a time is a block of pairs.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import numpy as np

from regard.errors import InputError
from regard.files import cannot_write, write_json
from regard.text.parallel import Counts, Text
from regard.text.subwords import Subwords
from regard.text.vocabulary import EOS

FORMAT = "regard-corpus/1"
BLOCK = 10_000
"""Pairs that are encoded at once, in parallel."""


@dataclass(frozen=True)
class Corpus:
    """A corpus on disk."""

    folder: Path
    pairs: int
    dtype: str
    """Of the indices: uint16 or uint32."""
    longest: int
    """Most tokens of a sentence, its end of sequence counted."""
    counts: Counts

    def __len__(self) -> int:
        return self.pairs

    def read(self, begin: int, end: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return sources and targets of the pairs from `begin` to before `end`, with their ends of sequence."""
        bounds = np.array(self._map("bounds.bin", "int64").reshape(-1, 2)[begin : end + 1])
        sides = []
        for side, name in enumerate(("source.bin", "target.bin")):
            first, *inner, last = bounds[:, side].tolist()
            # Copied and let go at once, so that what has been read does not stay in memory.
            indices = np.array(self._map(name, self.dtype)[first:last])
            sides.append(np.split(indices, np.array(inner, dtype=np.int64) - first))
        return sides[0], sides[1]

    def _map(self, name: str, dtype: str) -> np.ndarray:
        return np.memmap(self.folder / name, dtype=dtype, mode="r")


def write_corpus(
    folder: Path,
    text: Text | Iterable[tuple[str, str]],
    vocabularies: tuple[Subwords, Subwords],
    *,
    max_len: int,
    strict: bool = False,
) -> Corpus:
    """Encode parallel text into a new corpus at `folder`, complete or not at all.

    `vocabularies`: of source and target. Pairs with a side of more than `max_len` tokens are left out and
    counted, or with `strict` refused. Raises `InputError` where nothing is left, or the text cannot be read;
    `MachineError` where the disk refuses.
    """
    building = folder.with_name(f".{folder.name}.{os.getpid()}")
    dtype = "uint16" if max(map(len, vocabularies)) <= 1 << 16 else "uint32"
    pairs, longest, too_long = 0, 0, 0
    ends = np.zeros(2, dtype=np.int64)
    try:
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
        with (
            (building / "source.bin").open("wb") as source,
            (building / "target.bin").open("wb") as target,
            (building / "bounds.bin").open("wb") as bounds,
        ):
            bounds.write(ends.tobytes())
            for block in _blocks(text):
                sides = [
                    vocabulary.encode_all(side) for vocabulary, side in zip(vocabularies, block, strict=True)
                ]
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
        stored = {"format": FORMAT, "pairs": pairs, "dtype": dtype, "longest": longest, "counts": asdict(counts)}
        write_json(building / "corpus.json", stored)
        if not folder.is_dir():  # where another process was faster, its corpus is the same
            building.rename(folder)
    except OSError as error:
        raise cannot_write(folder, error) from error
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return Corpus(folder, pairs, dtype, longest, counts)


def open_corpus(folder: Path) -> Corpus:
    """Return the corpus that `write_corpus` made; raises `InputError` where it is missing or damaged."""
    try:
        stored = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
        if stored.pop("format") != FORMAT:
            raise InputError(f"corpus {str(folder)!r} is not of format {FORMAT!r}: delete it to prepare it anew")
        corpus = Corpus(folder, **{**stored, "counts": Counts(**stored["counts"])})
        expected = (len(corpus) + 1) * 2 * np.dtype(np.int64).itemsize
        if (folder / "bounds.bin").stat().st_size != expected:
            raise ValueError("bounds.bin is cut short")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"corpus {str(folder)!r} is damaged ({error}): delete it to prepare it anew") from error
    return corpus


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
        f"sentence {text[:40] + '…' if len(text) > 40 else text!r} has {len(sides[side][row])} tokens, at most "
        f"{max_len} are taken: raise --max_len, or leave out --strict"
    )
