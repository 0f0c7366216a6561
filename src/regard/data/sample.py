"""The pairs of a text that vocabularies are learned from: all of them, or of a long text some from everywhere.

Of each stretch of a long text the first lines are taken, as many of each. So the sample needs no chance, reads no
more than it takes (of plain files), and is the same on every machine.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from regard.data.chunks import LINES, ChunkRanges, Sentences, read_chunks
from regard.data.parallel import PairSource

PAIRS = 1_000_000
"""Lines of a sample, at most."""


@dataclass
class Sample:
    """The sentences of the pairs, of one side (0: source, 1: target) or of both; can be read again and again."""

    texts: Sequence[tuple[PairSource, ChunkRanges | None]]
    """Each with where its stretches are, where that is known."""
    stretches: int
    """Of all texts."""
    side: int | None
    on_share: Callable[[float], None] = field(default=lambda share: None)
    """Called now and then with how much of the sample was read, from 0 to 1."""
    pairs: int = 0
    """How many it has, and"""
    bytes: int = 0
    """how many bytes of UTF-8 these are: known when it has been read."""

    @property
    def lines(self) -> int:
        """How many lines of each stretch are taken."""
        return LINES if self.stretches * LINES <= PAIRS else max(1, PAIRS // self.stretches)

    @property
    def summary(self) -> str:
        """How large the sample is."""
        size = f"{self.pairs:,} pairs ({self.bytes / 1e6:,.1f} MB)"
        return f"all {size}" if self.lines == LINES else f"{size}, the first {self.lines:,} of each {LINES:,}"

    def __iter__(self) -> Iterator[str]:
        self.pairs = self.bytes = 0
        for number, found in enumerate(self._read()):
            sides = [found.sources, found.targets]
            if self.side is not None:
                sides = [sides[self.side]]
            self.pairs += len(found.sources)
            self.bytes += sum(len("".join(side).encode(errors="surrogatepass")) for side in sides)
            self.on_share(number / self.stretches)
            for sentences in zip(*sides, strict=True):
                yield from sentences

    def _read(self) -> Iterator[Sentences]:
        most = None if self.lines == LINES else self.lines
        for text, spans in self.texts:
            for stretch in read_chunks(text, spans=spans):
                yield stretch.read(most)
