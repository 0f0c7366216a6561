"""Word alignments of a corpus that guide an attention head during training (Garg et al. 2019).

    links.bin, links-bounds.bin    source and target token of the links of each pair, see `RaggedWriter`
    guide.json                     the number of pairs, checksums, and the name of the folder

The alignments are derived from links between words, with a line in Moses' format for each line of the text. If
two words are linked, all their tokens are linked.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
import torch
from torch import Tensor

from regard.data.corpus import Checksums, Corpus, RaggedArray, RaggedWriter
from regard.data.corpus_builder import Vocabularies
from regard.data.parallel import ParallelText, check_files, file_digest, open_texts
from regard.data.tokenization import tokenize
from regard.data.word_alignment import parse_moses
from regard.errors import InputError, plural
from regard.io import (
    DamageError,
    add_digest,
    check_file,
    damaged_file,
    is_file,
    is_folder,
    new_folder,
    read_stored,
    write_json,
)
from regard.progress import reading_bar

FORMAT = "regard-guide/3"
REMEDY = "delete its folder to prepare the alignment again"
CHECKED_LINES = 1000  # The number of lines whose format is checked before the corpus is built
FORMAT_REMEDY = "give a line in Moses' format (0-0 1-2) for each line of the text"
TOKEN = np.dtype("<u4")
Number = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """The content of guide.json."""

    format: Literal["regard-guide/3"]
    name: str
    pairs: Number
    checksums: Checksums
    digest: str  # The digest of the other fields


@dataclass(frozen=True)
class GuidedAlignment:
    """The token alignment of a corpus, on disk."""

    folder: Path
    links: RaggedArray

    def read(self, begin: int, end: int) -> list[np.ndarray]:
        """Return the links (L, 2) between source and target tokens for each of the pairs `begin` to `end` -
        1."""
        return [links.reshape(-1, 2) for links in self.links.read(begin, end)]


def target_attention(links: list[np.ndarray], shape: tuple[int, int, int]) -> Tensor:
    """Return the target weights of a guided head, with `shape` (B, Tt, Ts) and dtype float32.

    A target token attends equally to all source tokens linked to it, so its row sums to 1. The row of a token
    without links is zero.

    >>> target_attention([np.array([[0, 1], [1, 1]])], (1, 2, 2))
    tensor([[[0.0000, 0.0000],
             [0.5000, 0.5000]]])
    """
    weights = torch.zeros(shape)
    for row, pair_links in zip(weights, links, strict=True):
        source, target = torch.from_numpy(pair_links.astype(np.int64)).unbind(1)
        row[target, source] = 1
    # `clamp_min` keeps rows without links at zero instead of NaN.
    return weights / weights.sum(2, keepdim=True).clamp_min(1)


def check_alignment_file(path: Path, text: Path) -> None:
    """Raise `InputError` if the file of links is missing, is not in Moses' format, or has a different number of
    lines than the text."""
    check_file(path)
    check_files([path], way_out="")
    for number, line in enumerate(islice(_read_lines(path), CHECKED_LINES), 1):
        parse_moses(line.decode(errors="replace"), f"line {number} of {str(path)!r}", FORMAT_REMEDY)
    count = file_digest(path).lines
    if is_file(text) and (lines := file_digest(text).lines) != count:
        raise InputError(
            f"{str(path)!r} has links for {plural(count, 'line')}, but {str(text)!r} has {lines:,}: give one "
            f"line of links per line of the text"
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
    """Return the token alignment of a corpus. The alignment is built from the file of links of the text, unless
    a prepared alignment exists beside the corpus. Raises `InputError` if the file belongs to a different text
    or is not in Moses' format."""
    name = file_digest(path).sha256[:16]
    folder = corpus.folder.with_name(f"{corpus.folder.name}-guide-{name}")
    if is_folder(folder):
        return _open(folder, corpus)
    with (
        reading_bar("prepare the guide", text.bytes, show=progress) as text.on_bytes,
        new_folder(folder) as building,
    ):
        checksums = _write_links(building, path, text, vocabularies, corpus, max_len)
        content = {"format": FORMAT, "name": folder.name, "pairs": len(corpus), "checksums": checksums}
        write_json(building / "guide.json", add_digest(content))
    return _open(folder, corpus)


def _write_links(
    folder: Path, path: Path, text: ParallelText, vocabularies: Vocabularies, corpus: Corpus, max_len: int
) -> Checksums:
    """Write the links of all pairs in the order of the corpus."""
    source_vocabulary, target_vocabulary = vocabularies
    lines, number, pairs = _read_lines(path), 0, 0
    writer = RaggedWriter(folder, "links", TOKEN)
    try:
        for source_text, target_text in text:
            line = ""
            while number < text.number:  # ignore the links of skipped pairs
                number += 1
                if (content := next(lines, None)) is None:
                    raise InputError(
                        f"{str(path)!r} ends before line {number} of the text: give one line of links per line "
                        f"of the text"
                    )
                line = content.decode(errors="replace").strip()
            where = f"line {number} of {str(path)!r}"
            source = tokenize(source_text, source_vocabulary, "words")
            target = tokenize(target_text, target_vocabulary, "words")
            alignment = parse_moses(line, where, FORMAT_REMEDY)
            alignment.check(len(source.spans), len(target.spans), where)
            if max(len(source.indices), len(target.indices)) > max_len:
                continue
            linked = np.zeros((len(source.spans), len(target.spans)), dtype=bool)
            linked[tuple(np.array(sorted(alignment.sure), dtype=np.int64).reshape(-1, 2).T)] = True
            # Form all pairs of tokens in linked words.
            links = np.argwhere(linked[np.ix_(source.word_ids, target.word_ids)])
            writer.append(links.ravel(), np.array([links.size]))
            pairs += 1
    finally:
        checksums = writer.close()
    extra = text.number - number + sum(1 for _ in lines)
    if extra:
        raise InputError(
            f"{str(path)!r} has {extra:,} more lines than the text: give one line of links per line of the text"
        )
    if pairs != len(corpus):
        raise InputError(
            f"the text has {plural(pairs, 'pair')}, but its corpus has {len(corpus):,}: train again if the text "
            f"has changed"
        )
    return checksums


def _read_lines(path: Path) -> Iterator[bytes]:
    with open_texts([path]) as (_, [file]):
        yield from file


def _open(folder: Path, corpus: Corpus) -> GuidedAlignment:
    """Return a prepared alignment. Raises `InputError` if the alignment is damaged."""
    stored = read_stored(folder / "guide.json", _Stored, folder.name, REMEDY)
    if stored.pairs != len(corpus):
        raise damaged_file(folder, "its corpus has changed", REMEDY)
    try:
        return GuidedAlignment(folder, RaggedArray(folder, "links", TOKEN, stored.checksums))
    except DamageError as error:
        raise damaged_file(folder, error, REMEDY) from error
