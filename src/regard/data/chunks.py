"""Stretches of a text: so many lines that are read together, by whichever process has time for them.

Where a text is in plain files, it is gone through once, to find where each stretch begins; after that every
process reads its own. What is compressed, or comes from elsewhere, is read by one process in order, and handed
on.
"""

import gzip
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from regard.data.parallel import PairCounts, PairSource, ParallelText, read_errors
from regard.data.vocabulary import is_blank
from regard.errors import InputError

LINES = 100_000
"""Lines of a stretch."""
READ = 1 << 20
"""Bytes that are read at a time."""
LINE_FEED = 10

ByteRange = tuple[int, int]
"""Where lines begin and end in a file, in bytes."""
ChunkRanges = list[list[ByteRange]]
"""Of each stretch, where its lines stand in each file."""


class Sentences(NamedTuple):
    """What a stretch holds."""

    sources: Sequence[str]
    targets: Sequence[str]
    counts: PairCounts


@dataclass(frozen=True)
class PairChunk:
    """Pairs that have been read already."""

    sentences: Sentences
    size: int
    """Bytes of the text, as far as they are known."""

    def read(self, most: int | None = None) -> Sentences:
        """Return the pairs, the first `most` of them at most."""
        sources, targets, counts = self.sentences
        return Sentences(sources[:most], targets[:most], counts)


@dataclass(frozen=True)
class LineChunk:
    """Lines of the files of a parallel text, which are read when they are asked for."""

    paths: tuple[Path, ...]
    strict: bool
    first: int
    """Number of the first line, from 1."""
    contents: tuple[ByteRange | bytes, ...]
    """Of each file: where its lines stand, or the lines themselves."""
    size: int
    """Bytes of the text."""

    def read(self, most: int | None = None) -> Sentences:
        """Return the pairs of all lines, or of the first `most` lines.

        Raises `InputError` where they cannot be read, or the text is strict and one would be left out.
        """
        with read_errors(self.paths):
            contents = [self._content(*each, most) for each in zip(self.paths, self.contents, strict=True)]
        return self._plain(contents) or self._line_by_line(contents)

    def _content(self, path: Path, content: ByteRange | bytes, most: int | None) -> bytes:
        if isinstance(content, bytes):
            return content if most is None else b"".join(islice(_lines(content), most))
        with path.open("rb") as file:
            file.seek(content[0])
            if most is not None:
                return b"".join(islice(file, most)) if content[1] > content[0] else b""
            found = file.read(content[1] - content[0])
        if len(found) < content[1] - content[0]:
            raise InputError(f"{str(path)!r} has become shorter while it was read: try again when it is whole")
        return found

    def _plain(self, contents: Sequence[bytes]) -> Sentences | None:
        """Return the pairs of lines of which nothing has to be left out; None where some may have to."""
        try:
            texts = [content.decode() for content in contents]
        except UnicodeDecodeError:
            return None
        if any("\0" in text or (self.first == 1 and "\ufeff" in text) for text in texts):
            return None
        sides = [text.removesuffix("\n").split("\n") if text else [] for text in texts]
        if len(sides) == 1:
            cells = [line.rstrip("\r").split("\t", 2) for line in sides[0]]
            if any(len(each) < 2 for each in cells):
                return None
            sides = [[each[side] for each in cells] for side in range(2)]
        sources, targets = (list(map(str.strip, side)) for side in sides)
        if len(sources) != len(targets) or any(map(is_blank, sources)) or any(map(is_blank, targets)):
            return None
        return Sentences(sources, targets, PairCounts(pairs=len(sources)))

    def _line_by_line(self, contents: Sequence[bytes]) -> Sentences:
        """Return the pairs of lines, and count or refuse what is to be left out."""
        text = ParallelText(self.paths, strict=self.strict)
        rows = zip_longest(*([line.rstrip(b"\r\n") for line in _lines(content)] for content in contents))
        pairs = [pair for number, lines in enumerate(rows, self.first) if (pair := text.pair(lines, number))]
        text.counts.pairs = len(pairs)
        return Sentences([source for source, _ in pairs], [target for _, target in pairs], text.counts)


TextChunk = PairChunk | LineChunk


def is_plain(text: PairSource) -> bool:
    """Whether every process can read its own lines of a text."""
    return isinstance(text, ParallelText) and not any(path.suffix == ".gz" for path in text.paths)


def read_chunks(text: PairSource, *, spans: ChunkRanges | None = None) -> Iterator[TextChunk]:
    """Yield a text in stretches of so many lines, or pairs where it is in no files of lines; none where it is
    empty.

    `spans`: where they are, if that was found before. Raises `InputError` where the text cannot be read.
    """
    if not isinstance(text, ParallelText):
        return _of_pairs(text, LINES)
    if spans is None:
        return _of_lines(text, LINES)
    return (_stretch(text, number, LINES, each) for number, each in enumerate(spans))


def find_chunks(text: PairSource) -> tuple[int, ChunkRanges | None]:
    """Return how many stretches a text has, and where they are, which is known of plain files only.

    Raises `InputError` where it cannot be read.
    """
    count, done, found = 0, 0, list[list[ByteRange]]()
    for stretch in read_chunks(text):
        count += 1
        done += stretch.size
        text.on_bytes(done)
        if is_plain(text) and isinstance(stretch, LineChunk):
            found.append([span for span in stretch.contents if not isinstance(span, bytes)])
    return count, found if is_plain(text) else None


def _of_lines(text: ParallelText, lines: int) -> Iterator[LineChunk]:
    paths, keep = tuple(text.paths), not is_plain(text)
    with read_errors(paths), ExitStack() as stack:
        raws = [stack.enter_context(path.open("rb")) for path in paths]
        files = [
            stack.enter_context(gzip.GzipFile(fileobj=raw)) if path.suffix == ".gz" else raw
            for path, raw in zip(paths, raws, strict=True)
        ]
        before = 0
        rows = zip_longest(*(_cut(file, lines, keep=keep) for file in files), fillvalue=((0, 0), b""))
        for number, row in enumerate(rows):
            if keep:
                done = sum(raw.tell() for raw in raws)
                contents = tuple(content for _, content in row)
                yield LineChunk(paths, text.strict, number * lines + 1, contents, done - before)
                before = done
            else:
                yield _stretch(text, number, lines, [span for span, _ in row])


def _stretch(text: ParallelText, number: int, lines: int, spans: Sequence[ByteRange]) -> LineChunk:
    size = sum(end - begin for begin, end in spans)
    return LineChunk(tuple(text.paths), text.strict, number * lines + 1, tuple(spans), size)


def _cut(file: BinaryIO | gzip.GzipFile, lines: int, *, keep: bool) -> Iterator[tuple[ByteRange, bytes]]:
    """Yield where each so many lines of a file stand, and with `keep` the lines themselves."""
    begin = place = count = 0
    held: list[bytes] = []
    while block := file.read(READ):
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == LINE_FEED) + 1
        used = 0
        for cut in ends[lines - count - 1 :: lines].tolist():
            if keep:
                held.append(block[used:cut])
            yield (begin, place + cut), b"".join(held)
            begin, used = place + cut, cut
            held.clear()
        if keep:
            held.append(block[used:])
        count = (count + len(ends)) % lines
        place += len(block)
    if place > begin:
        yield (begin, place), b"".join(held)


def _of_pairs(text: PairSource, lines: int) -> Iterator[PairChunk]:
    seen, before = PairCounts(), [0, 0]
    on_bytes = text.on_bytes

    def count(done: int) -> None:
        before[1] = done
        on_bytes(done)

    text.on_bytes = count
    pairs, block = iter(text), [("", "")]
    while block:
        block = list(islice(pairs, lines))
        now = replace(text.counts)
        if now != seen:  # at the end there may be some more that were left out
            sides = [source for source, _ in block], [target for _, target in block]
            yield PairChunk(Sentences(*sides, now - seen), before[1] - before[0])
        seen, before[0] = now, before[1]


def _lines(content: bytes) -> list[bytes]:
    """Return lines that end at a line feed and nowhere else, with their ends."""
    lines = content.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
