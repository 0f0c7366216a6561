"""Batches of sentences of similar length from a corpus, limited by a number of tokens, in a resumable order.

An epoch reads segments of adjacent pairs in random order. A pool of segments is sorted by length and split into
batches whose number of tokens, including padding, is within the limit. The batches of a pool are shuffled.
Memory contains only one pool, regardless of the size of the corpus. A batch is identified by its position:
epoch, pool, and batch in the pool.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
import torch
from torch import Tensor

from regard.data.batch import PairBatch
from regard.data.corpus import Checksums, Corpus, Mixture, RaggedArray, RaggedWriter, Vocabularies
from regard.data.parallel import ParallelText, check_files, file_digest, open_texts
from regard.data.tokenization import tokenize
from regard.data.vocabulary import PAD
from regard.data.word_alignment import parse_moses
from regard.errors import InputError, plural
from regard.io import (
    add_digest,
    check_file,
    damage_errors,
    damaged_file,
    is_file,
    is_folder,
    new_folder,
    read_stored,
    write_json,
)
from regard.progress import reading_bar

# Word alignments of a corpus that guide an attention head during training (Garg et al. 2019).
#
#     links.bin, links-bounds.bin    source and target token of the links of each pair, see `RaggedWriter`
#     guide.json                     the number of pairs, checksums, and the name of the folder
#
# The alignments are derived from links between words, with a line in Moses' format for each line of the text. If
# two words are linked, all their tokens are linked.

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
        return [links.reshape(-1, 2) for links in self.links.read(begin, end)]


def target_attention(links: list[np.ndarray], shape: tuple[int, int, int]) -> Tensor:
    """Return the target weights of a guided head, with `shape` (B, Tt, Ts) and dtype float32.

    A target token attends equally to all source tokens linked to it, so its row sums to 1, or 0 without links.

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
    """Raise `InputError` if the file of links is missing, not in Moses' format, or has other lines than the text."""
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
    path: Path, text: ParallelText, vocabularies: Vocabularies, corpus: Corpus, *, max_len: int, progress: bool = True
) -> GuidedAlignment:
    """Return the token alignment of a corpus. The alignment is built from the file of links of the text, unless a
    prepared alignment exists beside the corpus."""
    name = file_digest(path).sha256[:16]
    folder = corpus.folder.with_name(f"{corpus.folder.name}-guide-{name}")
    if is_folder(folder):
        return _open(folder, corpus)
    with reading_bar("prepare the guide", text.bytes, show=progress) as text.on_bytes, new_folder(folder) as building:
        checksums = _write_links(building, path, text, vocabularies, corpus, max_len)
        content = {"format": FORMAT, "name": folder.name, "pairs": len(corpus), "checksums": checksums}
        write_json(building / "guide.json", add_digest(content))
    return _open(folder, corpus)


def _write_links(
    folder: Path, path: Path, text: ParallelText, vocabularies: Vocabularies, corpus: Corpus, max_len: int
) -> Checksums:
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
    stored = read_stored(folder / "guide.json", _Stored, folder.name, REMEDY)
    if stored.pairs != len(corpus):
        raise damaged_file(folder, "its corpus has changed", REMEDY)
    with damage_errors(folder, REMEDY):
        return GuidedAlignment(folder, RaggedArray(folder, "links", TOKEN, stored.checksums))


class BatchPosition(NamedTuple):
    """The position of a batch."""

    epoch: int
    pool: int
    batch: int


BEGIN = BatchPosition(0, 0, 0)
Resegment = Callable[[np.ndarray, np.random.Generator], np.ndarray]
"""Maps the indices of a sentence to a random segmentation of the sentence (see `bpe_dropout`)."""


@dataclass
class Buckets:
    """The batches of a corpus or a mixture. Raises `InputError` if the longest sentence alone exceeds `tokens`."""

    corpus: Corpus | Mixture
    tokens: int  # Largest number of tokens in a batch on the longer side, including padding
    seed: int
    place: BatchPosition = BEGIN  # The position of the next batch
    resegment: tuple[Resegment, Resegment] | None = None
    """Functions that sample segmentations of sources and targets (see `Resegment`)."""
    max_pairs: int = 0  # Largest number of pairs in a batch; 0: no limit
    guide: GuidedAlignment | None = None  # Alignment of the corpus, which is added to the batches, or None

    def __post_init__(self) -> None:
        if self.tokens < self.corpus.longest:
            raise InputError(
                f"tokens {self.tokens} is less than the {self.corpus.longest} tokens of the longest sentence "
                f"in the corpus: raise --tokens, or lower --max_len"
            )
        self._pool: list[tuple[list[np.ndarray], ...]] = []
        self._drawn: tuple[int, int] | None = None

    def draw(self, step: int = 0) -> PairBatch:
        epoch, pool, number = self.place
        if self._drawn != (epoch, pool):
            self._pool, self._drawn = self._draw_pool(epoch, pool), (epoch, pool)
        if not 0 <= number < len(self._pool):
            raise InputError(
                f"batch {number} of pool {pool} does not exist, because the text has changed since training "
                f"began: restore the text, or start a new training run"
            )
        source, target, *links = self._pool[number]
        if number + 1 < len(self._pool):
            self.place = BatchPosition(epoch, pool, number + 1)
        elif pool + 1 < self.corpus.pools:
            self.place = BatchPosition(epoch, pool + 1, 0)
        else:
            self.place = BatchPosition(epoch + 1, 0, 0)
        batch = PairBatch(pad_sentences(source), pad_sentences(target))
        if not links:
            return batch
        shape = (len(source), batch.target.shape[1], batch.source.shape[1])
        return batch._replace(alignment=target_attention(links[0], shape))

    def _draw_pool(self, epoch: int, pool: int) -> list[tuple[list[np.ndarray], ...]]:
        """Return the batches of a pool in random order: sources, targets, and links for a guided alignment."""
        random = np.random.default_rng((self.seed, epoch, pool))
        ranges = self.corpus.ranges(self.seed, epoch, pool)
        sides: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        for corpus, begin, end in ranges:
            for side, sentences in zip(sides, corpus.read(begin, end), strict=True):
                side += sentences
        if self.resegment is not None:
            source, target = self.resegment
            sides = [source(row, random) for row in sides[0]], [target(row, random) for row in sides[1]]
        lengths = np.array([[len(sentence) for sentence in side] for side in sides]).T
        # Sort by target length, then by source length, then at random.
        ranks = np.lexsort((random.random(len(lengths)), lengths[:, 0], lengths[:, 1]))
        bounds = split_batches(lengths.max(1)[ranks], self.tokens, self.max_pairs)
        # Shuffle the batches, so that sentences do not become longer within a pool.
        batches = [ranks[slice(*bounds[index])] for index in random.permutation(len(bounds))]
        columns: list[list[np.ndarray]] = [*sides]
        if self.guide is not None:
            columns.append([links for _, begin, end in ranges for links in self.guide.read(begin, end)])
        return [tuple([column[row] for row in rows] for column in columns) for rows in batches]


def split_batches(lengths: np.ndarray, tokens: int, max_pairs: int = 0) -> list[tuple[int, int]]:
    """Split sentences of `lengths` (N,) into consecutive batches of at most `tokens`, including padding.

    `max_pairs`: largest number of sentences in a batch; 0: no limit. A sentence longer than `tokens` is a batch of one
    sentence. Returns the index of the first sentence of each batch, and the index after the last sentence.

    >>> split_batches(np.array([2, 3, 3, 9]), 6)
    [(0, 2), (2, 3), (3, 4)]
    """
    batches, begin, longest = [], 0, 0
    for index, length in enumerate(lengths.tolist()):
        count = index + 1 - begin
        if index > begin and (max(longest, length) * count > tokens or 0 < max_pairs < count):
            batches.append((begin, index))
            begin, longest = index, 0
        longest = max(longest, length)
    return [*batches, (begin, len(lengths))]


def pad_sentences(sentences: Sequence[np.ndarray]) -> Tensor:
    """Join sentences into one tensor (B, T) int64, padded with `PAD`.

    >>> pad_sentences([np.array([5, 6, 2]), np.array([7, 2])])
    tensor([[5, 6, 2],
            [7, 2, 0]])
    """
    padded = np.full((len(sentences), max(map(len, sentences))), PAD, dtype=np.int64)
    for row, sentence in enumerate(sentences):
        padded[row, : len(sentence)] = sentence
    return torch.from_numpy(padded)
