"""Links between the words of a source and those of its target: read, written, and made of two directions.

A link (i, j) says that source word i and target word j mean the same; both count from 0. Two formats are read:

    0-0 1-2 2?1     Moses: a line for each pair of sentences; `?` for a link that is only possible
    1 1 1 S         NAACL: a line for each link: sentence, source and target word from 1, S sure or P possible
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from regard.errors import InputError, shorten
from regard.io.reading import read_text

Link = tuple[int, int]
"""A source word and a target word, each by its place from 0."""
Heuristic = Literal["intersection", "union", "grow-diag-final"]
Symmetrization = Literal["product", Heuristic]
"""How links of two directions are made one; product: from their weights, by `links_from_weights`."""
MOST = 1 << 30
"""Bytes of a file of links, at most."""
MEND = "give links in Moses' format (0-0 1-2) or NAACL's (1 1 1 S)"
_MOSES = re.compile(r"(\d{1,6})([-?])(\d{1,6})")
_NAACL = re.compile(r"(\d{1,9})\s+(\d{1,6})\s+(\d{1,6})(?:\s+([SP]))?(?:\s+[\d.eE+-]+)?")
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


@dataclass(frozen=True)
class WordAlignment:
    """The links of one pair of sentences, as somebody has judged them (Och and Ney 2003, section 5)."""

    sure: frozenset[Link]
    """What has to be found."""
    possible: frozenset[Link]
    """What may be found; the sure ones are among them."""

    @classmethod
    def of(
        cls, sure: Sequence[Link] | frozenset[Link], possible: Sequence[Link] | frozenset[Link] = ()
    ) -> "WordAlignment":
        """Return links of which the sure ones are possible too."""
        return cls(frozenset(sure), frozenset(sure) | frozenset(possible))

    def turned(self) -> "WordAlignment":
        """Return the links of the other direction: from target to source."""
        return WordAlignment(frozenset(map(_turn, self.sure)), frozenset(map(_turn, self.possible)))

    def check(self, sources: int, targets: int, where: str) -> None:
        """Raise `InputError` where a link leads past the words of its sentences."""
        for source, target in self.possible:
            if source >= sources or target >= targets:
                raise InputError(
                    f"{where}: link {source}-{target} leads past a source of {sources} words and a target of "
                    f"{targets}: are links and text of the same words?"
                )


def _turn(link: Link) -> Link:
    return link[1], link[0]


def read_links(path: Path, pairs: int) -> list[WordAlignment]:
    """Return the links of so many pairs of sentences from a file in Moses' format or in NAACL's.

    Raises `InputError` where it cannot be read, is in neither, or is of another number of pairs.
    """
    lines = read_text(path, MEND, most=MOST).removeprefix("\ufeff").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    first = next((line for line in lines if line.strip()), "")
    if _NAACL.fullmatch(first.strip()):
        return _read_naacl(path, lines, pairs)
    if len(lines) != pairs:
        raise InputError(
            f"{str(path)!r} has links of {len(lines):,} pairs, the text has {pairs:,}: give both alike"
        )
    return [parse_moses(line, f"line {number} of {str(path)!r}") for number, line in enumerate(lines, start=1)]


def parse_moses(line: str, where: str, mend: str = MEND) -> WordAlignment:
    """Return the links of a line in Moses' format; raises `InputError`, with `where`, for one that is not."""
    sure: list[Link] = []
    possible: list[Link] = []
    for word in line.split():
        match = _MOSES.fullmatch(word)
        if match is None:
            raise InputError(f"{where} has {shorten(word, 20)}, which is no link: {mend}")
        (sure if match[2] == "-" else possible).append((int(match[1]), int(match[3])))
    return WordAlignment.of(sure, possible)


def _read_naacl(path: Path, lines: Sequence[str], pairs: int) -> list[WordAlignment]:
    sure: list[list[Link]] = [[] for _ in range(pairs)]
    possible: list[list[Link]] = [[] for _ in range(pairs)]
    for number, line in enumerate(lines, start=1):
        where = f"line {number} of {str(path)!r}"
        if not line.strip():
            continue
        match = _NAACL.fullmatch(line.strip())
        if match is None:
            raise InputError(f"{where} is {shorten(line.strip(), 30)}, which is no link: {MEND}")
        sentence, source, target = int(match[1]), int(match[2]), int(match[3])
        if not 1 <= sentence <= pairs:
            raise InputError(f"{where} is of sentence {sentence}, the text has {pairs:,} pairs: give both alike")
        if not (source and target):  # which stands for no word at all
            continue
        (possible if match[4] == "P" else sure)[sentence - 1].append((source - 1, target - 1))
    return [WordAlignment.of(*each) for each in zip(sure, possible, strict=True)]


def format_moses(links: Sequence[Link] | frozenset[Link]) -> str:
    """Return links in Moses' format, by source word."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def symmetrize(forward: frozenset[Link], backward: frozenset[Link], how: Heuristic) -> frozenset[Link]:
    """Return one set of links of those of both directions, both given from source to target.

    intersection: what both have; union: what one of them has; grow-diag-final: the intersection, to which are
    added those links of the union that lie beside one and bring a word that had none, and then those that bring
    one at all (Koehn et al. 2003, section 3; the pseudocode of Koehn 2010, figure 4.12).
    """
    if how == "intersection":
        return forward & backward
    if how == "union":
        return forward | backward
    found = set(forward & backward)
    sources, targets = {source for source, _ in found}, {target for _, target in found}

    def add(link: Link) -> None:
        if link[0] not in sources or link[1] not in targets:
            found.add(link)
            sources.add(link[0])
            targets.add(link[1])

    both, before = forward | backward, -1
    while len(found) > before:
        before = len(found)
        for link in sorted(found):
            for near in _beside(link):
                if near in both:
                    add(near)
    for links in (forward, backward):
        for link in sorted(links):
            add(link)
    return frozenset(found)


def links_from_weights(forward: np.ndarray, backward: np.ndarray) -> frozenset[Link]:
    """Return the links of weights of both directions, (Wt, Ws) of target words and (Ws, Wt) of source words.

    They are multiplied, so that a link counts for what both think of it (as posteriors of two models are in Liang
    et al. 2006, section 3.3); then the best one of each target word and those of source words are made one as
    grow-diag-final.
    """
    both = forward * backward.T
    if not both.size:
        return frozenset()
    by_target = frozenset((int(source), target) for target, source in enumerate(both.argmax(1)))
    by_source = frozenset((source, int(target)) for source, target in enumerate(both.argmax(0)))
    return symmetrize(by_target, by_source, "grow-diag-final")


def _beside(link: Link) -> Iterator[Link]:
    return ((link[0] + down, link[1] + right) for down, right in NEIGHBOURS)
