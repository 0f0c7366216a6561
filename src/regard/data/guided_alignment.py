"""Links between the tokens of a corpus, by which a head of attention is guided as it learns (Garg et al. 2019).

    links.bin     source and target token of all links, pair after pair: (links, 2) uint32
    bounds.bin    where those of pair i begin: (pairs + 1,) int64
    guide.json    how many pairs, the checksums of both, and the name of the folder

They are made of links between words, a line in Moses' format for each line of the text: of two words that are
linked, all tokens are.
"""

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
import torch
from torch import Tensor

from regard.data.corpus import Corpus
from regard.data.corpus_builder import Vocabularies
from regard.data.cutting import tokenize
from regard.data.parallel import ParallelText, check_files, file_digest
from regard.data.word_alignment import parse_moses
from regard.errors import InputError
from regard.io import new_folder, write_json
from regard.io.reading import (
    add_digest,
    check_file,
    damaged_file,
    has_valid_digest,
    is_file,
    is_folder,
    read_json,
)
from regard.progress import reading_bar

FORMAT = "regard-guide/2"
MEND = "delete its folder to prepare it anew"
FIRST = 1000
"""Lines that are looked at before any work."""
FORM = "give a line in Moses' format (0-0 1-2) for each line of the text"
TOKEN = np.dtype(np.uint32)
Number = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class _Kept(msgspec.Struct, forbid_unknown_fields=True):
    """What guide.json holds."""

    format: Literal["regard-guide/2"]
    name: str
    pairs: Number
    checksums: tuple[Number, Number]
    """CRC-32 of links.bin and bounds.bin."""
    digest: str
    """Of all of it."""


@dataclass(frozen=True)
class GuidedAlignment:
    """The links of a corpus, on disk."""

    folder: Path
    pairs: int

    def read(self, begin: int, end: int) -> list[np.ndarray]:
        """Return source and target token of each link, (L, 2), of the pairs from `begin` to before `end`."""
        bounds = np.array(np.memmap(self.folder / "bounds.bin", dtype=np.int64, mode="r")[begin : end + 1])
        if bounds[-1] == bounds[0]:
            return [np.zeros((0, 2), TOKEN)] * (end - begin)
        links = np.array(
            np.memmap(self.folder / "links.bin", dtype=TOKEN, mode="r")[2 * bounds[0] : 2 * bounds[-1]]
        )
        return np.split(links.reshape(-1, 2), bounds[1:-1] - bounds[0])


def target_attention(links: list[np.ndarray], shape: tuple[int, int, int]) -> Tensor:
    """Return what a guided head is to attend to, `shape` (B, Tt, Ts) float32: for each target token the source
    tokens that it is linked to, all alike, so that a row sums to 1; to 0, where it is linked to none."""
    found = torch.zeros(shape)
    for row, each in zip(found, links, strict=True):
        source, target = torch.from_numpy(each.astype(np.int64)).unbind(1)
        row[target, source] = 1
    return found / found.sum(2, keepdim=True).clamp_min(1)


def check_alignment_file(path: Path, text: Path) -> None:
    """Raise `InputError` where there is no file of links, it does not begin in Moses' format, or it has not as
    many lines as a file of the text."""
    check_file(path)
    check_files([path], way_out="")
    count = 0
    for count, line in enumerate(_lines(path), 1):
        if count <= FIRST:
            parse_moses(line.decode(errors="replace"), f"line {count} of {str(path)!r}", FORM)
    if is_file(text) and (lines := sum(1 for _ in _lines(text))) != count:
        raise InputError(
            f"{str(path)!r} has links of {count:,} lines, {str(text)!r} has {lines:,}: give those of its lines"
        )


def prepare_alignment(
    path: Path,
    text: ParallelText,
    vocabularies: Vocabularies,
    corpus: Corpus,
    *,
    max_len: int,
    progress: bool = True,
) -> GuidedAlignment:
    """Return the links of a corpus by a file of links of its text, prepared or found beside the corpus.

    Raises `InputError` where the file is not of this text, or is not in Moses' format.
    """
    name = file_digest(path).sha256[:16]
    folder = corpus.folder.with_name(f"{corpus.folder.name}-guide-{name}")
    if is_folder(folder):
        return _open(folder, corpus)
    with (
        reading_bar("prepare the guide", text.bytes, show=progress) as text.on_bytes,
        new_folder(folder) as building,
    ):
        _write(building, folder.name, path, text, vocabularies, corpus, max_len)
    return _open(folder, corpus)


def _write(
    folder: Path,
    name: str,
    path: Path,
    text: ParallelText,
    vocabularies: Vocabularies,
    corpus: Corpus,
    max_len: int,
) -> None:
    """Write the links of all pairs of a corpus, in its order; `name`: what the folder is to be called."""
    source, target = vocabularies
    lines, number, bounds = _lines(path), 0, [0]
    with (folder / "links.bin").open("wb") as file:
        for pair in text:
            line = ""
            while number < text.number:  # lines of which the text has left out the pair are passed over
                number, line = number + 1, _next(lines, path, number + 1)
            where = f"line {number} of {str(path)!r}"
            one, other = tokenize(pair[0], source, "words"), tokenize(pair[1], target, "words")
            known = parse_moses(line, where, FORM)
            known.check(len(one.spans), len(other.spans), where)
            if max(len(one.indices), len(other.indices)) > max_len:
                continue
            words = np.zeros((len(one.spans), len(other.spans)), dtype=bool)
            words[tuple(np.array(sorted(known.sure), dtype=np.int64).reshape(-1, 2).T)] = True
            links = np.argwhere(words[np.ix_(one.word_ids, other.word_ids)])
            file.write(links.astype(TOKEN).tobytes())
            bounds.append(bounds[-1] + len(links))
    left = text.number - number + sum(1 for _ in lines)
    if left:
        raise InputError(f"{str(path)!r} has {left:,} lines more than the text: give the links of its lines")
    if len(bounds) - 1 != len(corpus):
        raise InputError(f"the text has {len(bounds) - 1:,} pairs, its corpus {len(corpus):,}: has it changed?")
    (folder / "bounds.bin").write_bytes(np.array(bounds, dtype=np.int64).tobytes())
    sums = [_checksum(folder / each) for each in ("links.bin", "bounds.bin")]
    about = {"format": FORMAT, "name": name, "pairs": len(corpus), "checksums": sums}
    write_json(folder / "guide.json", add_digest(about))


def _checksum(path: Path) -> int:
    """Return the CRC-32 of a file; raises `InputError` where there is none."""
    check_file(path)
    total = 0
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            total = zlib.crc32(part, total)
    return total


def _lines(path: Path) -> Iterator[bytes]:
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            yield from file
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot read {str(path)!r}: {error}; give links in Moses' format (0-0 1-2)") from error


def _next(lines: Iterator[bytes], path: Path, number: int) -> str:
    line = next(lines, None)
    if line is None:
        raise InputError(
            f"{str(path)!r} ends before line {number}, the text goes on: give the links of its lines"
        )
    return line.decode(errors="replace").strip()


def _open(folder: Path, corpus: Corpus) -> GuidedAlignment:
    """Return links that were prepared; raises `InputError` where they are damaged."""
    kept = read_json(folder / "guide.json", _Kept, MEND)
    sums = [_checksum(folder / each) for each in ("links.bin", "bounds.bin")]
    if (
        not has_valid_digest(msgspec.to_builtins(kept))
        or sums != list(kept.checksums)
        or kept.pairs != len(corpus)
    ):
        raise damaged_file(folder, "it has changed since it was written", MEND)
    if kept.name != folder.name:
        raise damaged_file(folder, f"it holds {kept.name}", MEND)
    return GuidedAlignment(folder, kept.pairs)
