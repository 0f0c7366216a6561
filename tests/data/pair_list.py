"""A parallel text in memory."""

from collections.abc import Iterator, Sequence

from regard.data.parallel import PairCounts, PairSource, TextDigest
from regard.io import json_digest


class PairList(PairSource):
    """Pairs in memory."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self.pairs = pairs
        self.bytes = len(pairs)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        self.counts = PairCounts()
        for pair in self.pairs:
            self.counts.pairs += 1
            yield pair

    def digests(self) -> list[TextDigest]:
        return [TextDigest(lines=len(self.pairs), sha256=json_digest(list(self.pairs)))]

    def locations(self) -> list[str]:
        return []
