"""Word alignments: links between the words of a source and the words of its target.

A link (i, j) means that source word i and target word j are translations of each other. Words are counted from
0. Two formats are supported:

    0-0 1-2 2?1     Moses: one line per sentence pair; `?` marks a possible link
    1 1 1 S         NAACL: one line per link: sentence, source word and target word from 1, S(ure) or P(ossible)

If no links are given, eflomal (Östling and Tiedemann 2016) computes links in both directions with a Bayesian model with
an HMM and fertilities. eflomal learns from the text that it aligns, so a few sentences are not sufficient.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np

from regard.arguments import public
from regard.data.tokenization import Span, Tokenizer, Unit, word_ids, word_spans
from regard.errors import InputError, plural, shorten
from regard.io import read_text

Link = tuple[int, int]  # A link: the indices of a source word and a target word
Heuristic = Literal["intersection", "union", "grow-diag-final"]
Symmetrization = Literal["product", Heuristic]
"""Methods for combining the links of both directions. product: multiply the weights (see `links_from_weights`)."""
MAX_BYTES = 1 << 30  # Largest size of a file of links in bytes
REMEDY = "give links in Moses' format (0-0 1-2) or NAACL's (1 1 1 S)"
_MOSES = re.compile(r"(\d{1,6})([-?])(\d{1,6})")
_NAACL = re.compile(r"(\d{1,9})\s+(\d{1,6})\s+(\d{1,6})(?:\s+([SP]))?(?:\s+[\d.eE+-]+)?")
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


@public
@dataclass(frozen=True)
class WordAlignment:
    """The reference links of a sentence pair (Och and Ney 2003, section 5)."""

    sure: frozenset[Link]
    """The sure links, which count for recall."""
    possible: frozenset[Link]
    """The possible links, including the sure links."""

    @classmethod
    def of(
        cls, sure: Sequence[Link] | frozenset[Link], possible: Sequence[Link] | frozenset[Link] = ()
    ) -> "WordAlignment":
        """Return an alignment whose possible links include the sure links.

        >>> sorted(WordAlignment.of([(0, 0)], [(1, 2)]).possible)
        [(0, 0), (1, 2)]
        """
        return cls(frozenset(sure), frozenset(sure) | frozenset(possible))

    def turned(self) -> "WordAlignment":
        """Return the alignment from target to source."""
        sure, possible = (frozenset(link[::-1] for link in links) for links in (self.sure, self.possible))
        return WordAlignment(sure, possible)

    def check(self, sources: int, targets: int, where: str) -> None:
        """Raise `InputError` for a link with a word index out of range. `where`: prefix of the message."""
        for source, target in self.possible:
            if source >= sources or target >= targets:
                raise InputError(
                    f"{where}: link {source}-{target} is beyond a source of {plural(sources, 'word')} and a "
                    f"target of {plural(targets, 'word')}: give links with the same tokenization as the text"
                )


@public
def read_links(path: Path, pairs: int) -> list[WordAlignment]:
    """Return the alignments of `pairs` sentence pairs from a file in Moses' or NAACL's format.

    Raises `InputError` if the file cannot be read, has a different format, or has a different number of pairs.
    """
    lines = read_text(path, REMEDY, most=MAX_BYTES).removeprefix("\ufeff").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    first = next((line for line in lines if line.strip()), "")
    if not _NAACL.fullmatch(first.strip()):
        if len(lines) != pairs:
            count = plural(len(lines), "pair")
            raise InputError(f"{str(path)!r} has links for {count}, but the text has {pairs:,}: give the same pairs")
        return [parse_moses(line, f"line {number} of {str(path)!r}") for number, line in enumerate(lines, start=1)]
    sure: list[list[Link]] = [[] for _ in range(pairs)]
    possible: list[list[Link]] = [[] for _ in range(pairs)]
    for number, line in enumerate(lines, start=1):
        where = f"line {number} of {str(path)!r}"
        if not line.strip():
            continue
        match = _NAACL.fullmatch(line.strip())
        if match is None:
            raise InputError(f"{where} is {shorten(line.strip(), 30)}, which is not a link: {REMEDY}")
        sentence, source, target = int(match[1]), int(match[2]), int(match[3])
        if not 1 <= sentence <= pairs:
            raise InputError(
                f"{where} belongs to sentence {sentence}, but the text has {plural(pairs, 'pair')}: give links "
                f"and text of the same pairs"
            )
        if source and target:  # 0 marks a word without a partner
            (possible if match[4] == "P" else sure)[sentence - 1].append((source - 1, target - 1))
    return [WordAlignment.of(*links) for links in zip(sure, possible, strict=True)]


def parse_moses(line: str, where: str, remedy: str = REMEDY) -> WordAlignment:
    """Return the links of a line in Moses' format.

    >>> sorted(parse_moses("0-0 1-2", "line 1").sure)
    [(0, 0), (1, 2)]
    """
    sure: list[Link] = []
    possible: list[Link] = []
    for word in line.split():
        match = _MOSES.fullmatch(word)
        if match is None:
            raise InputError(f"{where} has {shorten(word, 20)}, which is not a link: {remedy}")
        (sure if match[2] == "-" else possible).append((int(match[1]), int(match[3])))
    return WordAlignment.of(sure, possible)


def format_moses(links: Sequence[Link] | frozenset[Link]) -> str:
    """Return links in Moses' format, sorted by source word.

    >>> format_moses([(1, 2), (0, 0)])
    '0-0 1-2'
    """
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def symmetrize(forward: frozenset[Link], backward: frozenset[Link], how: Heuristic) -> frozenset[Link]:
    """Combine the links of both directions. Both sets contain pairs of source and target.

    intersection: links in both sets. union: links in at least one set. grow-diag-final: begin with the intersection.
    Repeatedly add links of the union that are adjacent to an added link and cover a new word. Finally, add all links
    that cover a new word (Koehn et al. 2003, section 3; pseudocode in Koehn 2010, figure 4.12).

    >>> sorted(symmetrize(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0)}), "grow-diag-final"))
    [(0, 0), (1, 1)]
    """
    if how == "intersection":
        return forward & backward
    if how == "union":
        return forward | backward
    links = set(forward & backward)
    sources, targets = {source for source, _ in links}, {target for _, target in links}

    def add(link: Link) -> None:
        if link[0] not in sources or link[1] not in targets:
            links.add(link)
            sources.add(link[0])
            targets.add(link[1])

    union, size = forward | backward, -1
    # Repeat until a pass adds no link.
    while len(links) > size:
        size = len(links)
        for link in sorted(links):
            for down, right in NEIGHBOURS:
                neighbour = (link[0] + down, link[1] + right)
                if neighbour in union:
                    add(neighbour)
    for direction in (forward, backward):
        for link in sorted(direction):
            add(link)
    return frozenset(links)


def links_from_weights(forward: np.ndarray, backward: np.ndarray) -> frozenset[Link]:
    """Return the links for attention weights of both directions: (Wt, Ws) for target words, (Ws, Wt) for source words.

    The weights are multiplied, so both directions must agree (like posteriors in Liang et al. 2006, section
    3.3). The best links of all target words and of all source words are combined by grow-diag-final.

    >>> weights = np.array([[0.9, 0.1], [0.2, 0.8]])
    >>> sorted(links_from_weights(weights, weights.T))
    [(0, 0), (1, 1)]
    """
    product = forward * backward.T
    if not product.size:
        return frozenset()
    by_target = frozenset((int(source), target) for target, source in enumerate(product.argmax(1)))
    by_source = frozenset((source, int(target)) for source, target in enumerate(product.argmax(0)))
    return symmetrize(by_target, by_source, "grow-diag-final")


def check_eflomal() -> None:
    if find_spec("eflomal") is None:
        raise InputError("silver links need eflomal: pip install 'regard[align]', or give --links")


def align_with_eflomal(
    pairs: Sequence[tuple[str, str]],
    corpus: Sequence[tuple[str, str]] = (),
    tokenizers: Sequence[Tokenizer | None] = (None, None),
) -> list[frozenset[Link]]:
    """Return the links between the words of each pair, computed by eflomal. `corpus`: additional pairs for learning.
    `tokenizers`: vocabularies of source and target, whose tokens are the words of text without spaces (see
    `word_spans`)."""
    check_eflomal()
    from eflomal import Aligner  # type: ignore[import-not-found,import-untyped,unused-ignore]

    # Lower case, and punctuation split off: `dog.` is the same word as `dog`. eflomal drops empty lines.
    sides = [
        [
            " ".join(text[begin:end].lower() for begin, end in _find_words(text, "parts", tokenizer)) or "."
            for text in (pair[side] for pair in (*pairs, *corpus))
        ]
        for side, tokenizer in enumerate(tokenizers)
    ]
    with TemporaryDirectory() as folder:
        forward_file, backward_file = Path(folder) / "forward", Path(folder) / "backward"
        Aligner().align(*sides, links_filename_fwd=str(forward_file), links_filename_rev=str(backward_file))
        outputs = [path.read_text().split("\n")[: len(pairs)] for path in (forward_file, backward_file)]
    links = []
    for pair, *lines in zip(pairs, *outputs, strict=True):
        forward, backward = (parse_moses(line, "eflomal's output").sure for line in lines)
        parts = symmetrize(forward, backward, "grow-diag-final")
        source, target = (
            word_ids(_find_words(text, "words", tokenizer), _find_words(text, "parts", tokenizer))
            for text, tokenizer in zip(pair, tokenizers, strict=True)
        )
        links.append(frozenset((source[i], target[j]) for i, j in parts if i < len(source) and j < len(target)))
    return links


def _find_words(text: str, unit: Unit, tokenizer: Tokenizer | None) -> list[Span]:
    return word_spans(text, unit, () if tokenizer is None else tokenizer.offsets(text))
