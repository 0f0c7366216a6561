"""Chunks of a text, the unit of parallel preparation, and the sample from which vocabularies are learned.

One process reads the files in order and passes the bytes of the lines to the workers. Decoding and splitting a
chunk takes 89 ms and reading a chunk takes 4 ms, so one reading process can supply about twenty workers.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import NamedTuple

from regard.data.parallel import ConcatenatedText, PairCounts, PairSource, ParallelText, decompress, read_errors
from regard.data.vocabulary import is_blank
from regard.errors import plural

LINES = 20_000
"""Lines per chunk. A worker needs 128 MiB for chunks of 20,000 lines and 317 MiB for chunks of 100,000 lines.
Both sizes have the same speed.
"""
STRETCH = 5
"""Number of chunks per stretch. A sample of a long text consists of the first lines of each stretch."""
SAMPLE_PAIRS = 1_000_000
"""Largest number of lines in a sample."""


class Sentences(NamedTuple):
    """The content of a chunk."""

    sources: Sequence[str]
    targets: Sequence[str]
    counts: PairCounts


@dataclass(frozen=True)
class PairChunk:
    """Chunk of pairs that have already been read."""

    sentences: Sentences

    @property
    def size(self) -> int:
        return self.sentences.counts.pairs + self.sentences.counts.skipped

    def read(self, limit: int | None = None) -> Sentences:
        """Return the pairs, or the first `limit` of them."""
        sources, targets, counts = self.sentences
        return Sentences(sources[:limit], targets[:limit], counts)


@dataclass(frozen=True)
class LineChunk:
    """Lines of a parallel text, decoded on demand."""

    paths: tuple[Path, ...]
    strict: bool
    first: int
    """The number of the first line, counted from 1."""
    contents: tuple[bytes, ...]
    """The lines of each file."""
    size: int
    """The number of bytes in the files, before decompression."""

    def read(self, limit: int | None = None) -> Sentences:
        """Return the pairs of all lines, or of the first `limit` lines.

        Raises `InputError` if the text is strict and a pair must be skipped.
        """
        contents = self.contents
        if limit is not None:
            contents = tuple(b"".join(_split_lines(content)[:limit]) for content in contents)
        return self._read_regular(contents) or self._read_line_by_line(contents)

    def _read_regular(self, contents: Sequence[bytes]) -> Sentences | None:
        """Return the pairs if no line needs special treatment, otherwise None.

        Decoding and stripping whole chunks is several times faster than doing so line by line.
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
        """Return the pairs; skipped pairs are counted or refused."""
        text = ParallelText(self.paths, strict=self.strict)
        rows = zip_longest(*([line.rstrip(b"\r\n") for line in _split_lines(content)] for content in contents))
        pairs = [pair for number, lines in enumerate(rows, self.first) if (pair := text.pair(lines, number))]
        text.counts.pairs = len(pairs)
        return Sentences([source for source, _ in pairs], [target for _, target in pairs], text.counts)


TextChunk = PairChunk | LineChunk


def read_chunks(text: PairSource) -> Iterator[TextChunk]:
    """Yield the chunks of a text. Raises `InputError` for an unreadable text."""
    if isinstance(text, ConcatenatedText):
        for part in text.texts:
            yield from read_chunks(part)
    else:
        yield from _chunks_of_lines(text) if isinstance(text, ParallelText) else _chunks_of_pairs(text)


def _chunks_of_lines(text: ParallelText) -> Iterator[LineChunk]:
    with read_errors(text.paths), ExitStack() as stack:
        raws = [stack.enter_context(path.open("rb")) for path in text.paths]
        files = [decompress(path, raw, stack) for path, raw in zip(text.paths, raws, strict=True)]
        first, before = 1, 0
        while any(contents := tuple(b"".join(islice(file, LINES)) for file in files)):
            done = sum(raw.tell() for raw in raws)
            yield LineChunk(tuple(text.paths), text.strict, first, contents, done - before)
            first, before = first + LINES, done


def _chunks_of_pairs(text: PairSource) -> Iterator[PairChunk]:
    counted, pairs, block = PairCounts(), iter(text), [("", "")]
    while block:
        block = list(islice(pairs, LINES))
        counts = replace(text.counts)
        if counts != counted:  # after the last pair, more pairs may have been skipped
            sides = [source for source, _ in block], [target for _, target in block]
            yield PairChunk(Sentences(*sides, counts - counted))
        counted = counts


def _split_lines(content: bytes) -> list[bytes]:
    lines = content.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


@dataclass
class Sample:
    """Sentences from which vocabularies are learned: the whole text, or the first lines of each stretch of the
    text.

    A sample with the same number of lines from each stretch needs no random numbers and is the same on every
    machine. A sample can be iterated over repeatedly.
    """

    text: PairSource
    side: int | None
    """0: sources, 1: targets, None: both."""
    on_share: Callable[[float], None] = field(default=lambda share: None)
    """Called repeatedly with the fraction of the sample that has been read, from 0 to 1."""
    pairs: int = 0
    """The number of pairs in the sample, known after an iteration."""
    bytes: int = 0
    """The size of the sample in UTF-8 bytes, known after an iteration."""

    def __post_init__(self) -> None:
        stretch = LINES * STRETCH
        texts = self.text.texts if isinstance(self.text, ConcatenatedText) else [self.text]
        longest = [max(digest.lines for digest in text.digests()) for text in texts]
        self.stretches = sum(-(-lines // stretch) for lines in longest)
        self.lines = stretch
        """The number of lines taken from each stretch."""
        if self.stretches * stretch > SAMPLE_PAIRS:
            self.lines = max(1, SAMPLE_PAIRS // self.stretches)

    @property
    def summary(self) -> str:
        size = f"{plural(self.pairs, 'pair')} ({self.bytes / 1e6:,.1f} MB)"
        stretch = LINES * STRETCH
        return f"all {size}" if self.lines == stretch else f"{size}, the first {self.lines:,} of each {stretch:,}"

    def __iter__(self) -> Iterator[str]:
        self.pairs = self.bytes = 0
        for number, sentences in enumerate(self._read()):
            sides = [sentences.sources, sentences.targets]
            if self.side is not None:
                sides = [sides[self.side]]
            self.pairs += len(sentences.sources)
            self.bytes += sum(len("".join(side).encode(errors="surrogatepass")) for side in sides)
            self.on_share(min(1.0, number / (self.stretches * STRETCH)))
            for texts in zip(*sides, strict=True):
                yield from texts

    def _read(self) -> Iterator[Sentences]:
        texts = self.text.texts if isinstance(self.text, ConcatenatedText) else [self.text]
        for text in texts:
            for number, chunk in enumerate(read_chunks(text)):
                # Number of lines to read from this chunk; may be negative or larger than the chunk.
                wanted = self.lines - number % STRETCH * LINES
                if wanted > 0:
                    yield chunk.read(wanted if wanted < LINES else None)
