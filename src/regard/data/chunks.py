"""Chunks of a text, the unit of parallel preparation, and the sample that vocabularies are learned from.

A plain text file is scanned once to find where each chunk begins, so each process can read its own chunks.
Compressed files and other sources are read in order by one process, which passes the lines on.
"""

import gzip
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from regard.data.parallel import PairCounts, PairSource, ParallelText, read_errors
from regard.data.vocabulary import is_blank
from regard.errors import InputError

LINES = 100_000
"""Lines per chunk."""
SAMPLE_PAIRS = 1_000_000
"""The maximal number of lines of a sample."""
READ = 1 << 20
"""Bytes per read."""
LINE_FEED = 10

ByteRange = tuple[int, int]
"""The first byte of some lines of a file, and the one after the last."""
ChunkRanges = list[list[ByteRange]]
"""The byte range in each file, for each chunk."""


class Sentences(NamedTuple):
    """The content of a chunk."""

    sources: Sequence[str]
    targets: Sequence[str]
    counts: PairCounts


@dataclass(frozen=True)
class PairChunk:
    """A chunk whose pairs have been read."""

    sentences: Sentences
    size: int
    """Bytes of the text, as far as known."""

    def read(self, limit: int | None = None) -> Sentences:
        """Return the pairs, or the first `limit` of them."""
        sources, targets, counts = self.sentences
        return Sentences(sources[:limit], targets[:limit], counts)


@dataclass(frozen=True)
class LineChunk:
    """Lines of the files of a parallel text, read on demand."""

    paths: tuple[Path, ...]
    strict: bool
    first: int
    """The number of the first line, from 1."""
    contents: tuple[ByteRange | bytes, ...]
    """For each file: the range of the lines, or the lines themselves."""
    size: int
    """Bytes of the text."""

    def read(self, limit: int | None = None) -> Sentences:
        """Return the pairs of all lines, or of the first `limit` lines.

        Raises `InputError` if they cannot be read, or if the text is strict and a pair must be skipped.
        """
        with read_errors(self.paths):
            contents = [
                self._read_bytes(path, content, limit)
                for path, content in zip(self.paths, self.contents, strict=True)
            ]
        return self._read_regular(contents) or self._read_line_by_line(contents)

    def _read_bytes(self, path: Path, content: ByteRange | bytes, limit: int | None) -> bytes:
        if isinstance(content, bytes):
            return content if limit is None else b"".join(islice(_split_lines(content), limit))
        with path.open("rb") as file:
            file.seek(content[0])
            if limit is not None:
                return b"".join(islice(file, limit)) if content[1] > content[0] else b""
            lines = file.read(content[1] - content[0])
        if len(lines) < content[1] - content[0]:
            raise InputError(f"{str(path)!r} became shorter while it was read: try again when it is complete")
        return lines

    def _read_regular(self, contents: Sequence[bytes]) -> Sentences | None:
        """Return the pairs if no line needs special treatment, otherwise None.

        This path decodes and strips whole chunks, which is several times faster than line by line.
        """
        try:
            texts = [content.decode() for content in contents]
        except UnicodeDecodeError:
            return None
        if any("\0" in text or (self.first == 1 and "\ufeff" in text) for text in texts):
            return None
        sides = [text.removesuffix("\n").split("\n") if text else [] for text in texts]
        if len(sides) == 1:
            rows = [line.rstrip("\r").split("\t", 2) for line in sides[0]]
            if any(len(row) < 2 for row in rows):
                return None
            sides = [[row[side] for row in rows] for side in range(2)]
        sources, targets = (list(map(str.strip, side)) for side in sides)
        if len(sources) != len(targets) or any(map(is_blank, sources)) or any(map(is_blank, targets)):
            return None
        return Sentences(sources, targets, PairCounts(pairs=len(sources)))

    def _read_line_by_line(self, contents: Sequence[bytes]) -> Sentences:
        """Return the pairs; count or refuse those that are skipped."""
        text = ParallelText(self.paths, strict=self.strict)
        rows = zip_longest(*([line.rstrip(b"\r\n") for line in _split_lines(content)] for content in contents))
        pairs = [pair for number, lines in enumerate(rows, self.first) if (pair := text.pair(lines, number))]
        text.counts.pairs = len(pairs)
        return Sentences([source for source, _ in pairs], [target for _, target in pairs], text.counts)


TextChunk = PairChunk | LineChunk


def is_plain(text: PairSource) -> bool:
    """Return whether a text consists of uncompressed files, so that each process can read its own lines."""
    return isinstance(text, ParallelText) and not any(path.suffix == ".gz" for path in text.paths)


def read_chunks(text: PairSource, *, ranges: ChunkRanges | None = None) -> Iterator[TextChunk]:
    """Yield the chunks of a text. `ranges`: their byte ranges, if known. Raises `InputError` for an unreadable
    text."""
    if not isinstance(text, ParallelText):
        return _chunks_of_pairs(text, LINES)
    if ranges is None:
        return _chunks_of_lines(text, LINES)
    return (_line_chunk(text, number, LINES, chunk) for number, chunk in enumerate(ranges))


def find_chunks(text: PairSource) -> tuple[int, ChunkRanges | None]:
    """Return the number of chunks of a text, and their byte ranges if the text consists of plain files.

    Raises `InputError` if the text cannot be read.
    """
    count, done, ranges = 0, 0, list[list[ByteRange]]()
    for chunk in read_chunks(text):
        count += 1
        done += chunk.size
        text.on_bytes(done)
        if is_plain(text) and isinstance(chunk, LineChunk):
            ranges.append([content for content in chunk.contents if not isinstance(content, bytes)])
    return count, ranges if is_plain(text) else None


def _chunks_of_lines(text: ParallelText, lines: int) -> Iterator[LineChunk]:
    paths, keep = tuple(text.paths), not is_plain(text)
    with read_errors(paths), ExitStack() as stack:
        raws = [stack.enter_context(path.open("rb")) for path in paths]
        files = [
            stack.enter_context(gzip.GzipFile(fileobj=raw)) if path.suffix == ".gz" else raw
            for path, raw in zip(paths, raws, strict=True)
        ]
        before = 0
        rows = zip_longest(*(_split_file(file, lines, keep=keep) for file in files), fillvalue=((0, 0), b""))
        for number, row in enumerate(rows):
            if keep:
                done = sum(raw.tell() for raw in raws)
                contents = tuple(content for _, content in row)
                yield LineChunk(paths, text.strict, number * lines + 1, contents, done - before)
                before = done
            else:
                yield _line_chunk(text, number, lines, [part for part, _ in row])


def _line_chunk(text: ParallelText, number: int, lines: int, ranges: Sequence[ByteRange]) -> LineChunk:
    size = sum(end - begin for begin, end in ranges)
    return LineChunk(tuple(text.paths), text.strict, number * lines + 1, tuple(ranges), size)


def _split_file(file: BinaryIO | gzip.GzipFile, lines: int, *, keep: bool) -> Iterator[tuple[ByteRange, bytes]]:
    """Yield the byte range of each `lines` lines of a file, and with `keep` the lines themselves."""
    begin = position = count = 0
    kept: list[bytes] = []
    while block := file.read(READ):
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == LINE_FEED) + 1
        used = 0
        # Every `lines`-th line feed, counted from the start of the file, ends a chunk.
        for end in ends[lines - count - 1 :: lines].tolist():
            if keep:
                kept.append(block[used:end])
            yield (begin, position + end), b"".join(kept)
            begin, used = position + end, end
            kept.clear()
        if keep:
            kept.append(block[used:])
        count = (count + len(ends)) % lines
        position += len(block)
    if position > begin:
        yield (begin, position), b"".join(kept)


def _chunks_of_pairs(text: PairSource, lines: int) -> Iterator[PairChunk]:
    counted, done, before = PairCounts(), 0, 0
    on_bytes = text.on_bytes

    def count(read: int) -> None:
        nonlocal done
        done = read
        on_bytes(read)

    text.on_bytes = count
    pairs, block = iter(text), [("", "")]
    while block:
        block = list(islice(pairs, lines))
        counts = replace(text.counts)
        if counts != counted:  # after the last pair, more pairs may have been skipped
            sides = [source for source, _ in block], [target for _, target in block]
            yield PairChunk(Sentences(*sides, counts - counted), done - before)
        counted, before = counts, done


def _split_lines(content: bytes) -> list[bytes]:
    """Return lines with their ends. Only a line feed ends a line."""
    lines = content.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


@dataclass
class Sample:
    """The sentences that vocabularies are learned from: all of a text, or the first lines of each chunk.

    Taking equally many lines from each chunk of a long text needs no random numbers, reads only these lines (of
    plain files), and gives the same sample on every machine. A sample can be iterated over again.
    """

    texts: Sequence[tuple[PairSource, ChunkRanges | None]]
    """Each text with the byte ranges of its chunks, if known."""
    chunks: int
    """The number of chunks of all texts."""
    side: int | None
    """0: sources, 1: targets, None: both."""
    on_share: Callable[[float], None] = field(default=lambda share: None)
    """Called from time to time with the share of the sample that was read, from 0 to 1."""
    pairs: int = 0
    """The number of pairs, known after an iteration."""
    bytes: int = 0
    """The size in UTF-8, known after an iteration."""

    @property
    def lines(self) -> int:
        """The number of lines taken from each chunk."""
        return LINES if self.chunks * LINES <= SAMPLE_PAIRS else max(1, SAMPLE_PAIRS // self.chunks)

    @property
    def summary(self) -> str:
        """A description of the size."""
        size = f"{self.pairs:,} pairs ({self.bytes / 1e6:,.1f} MB)"
        return f"all {size}" if self.lines == LINES else f"{size}, the first {self.lines:,} of each {LINES:,}"

    def __iter__(self) -> Iterator[str]:
        self.pairs = self.bytes = 0
        for number, sentences in enumerate(self._read()):
            sides = [sentences.sources, sentences.targets]
            if self.side is not None:
                sides = [sides[self.side]]
            self.pairs += len(sentences.sources)
            self.bytes += sum(len("".join(side).encode(errors="surrogatepass")) for side in sides)
            self.on_share(number / self.chunks)
            for texts in zip(*sides, strict=True):
                yield from texts

    def _read(self) -> Iterator[Sentences]:
        limit = None if self.lines == LINES else self.lines
        for text, ranges in self.texts:
            for chunk in read_chunks(text, ranges=ranges):
                yield chunk.read(limit)
