"""Silver links: what a statistical aligner makes of a corpus, where nobody has drawn links by hand.

The work is done by eflomal (Östling and Tiedemann 2016), a Bayesian model with HMM and fertilities, in both
directions; these are made one by `links.symmetrise`. It learns from the very text that it aligns, so that a few
sentences alone are not enough: give it the corpus they come from besides.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from regard.data.tokenization import word_ids, word_spans
from regard.data.word_alignment import Link, parse_moses, symmetrize
from regard.errors import InputError


def check_eflomal() -> None:
    """Raise `InputError` where the extra `align` is not installed."""
    if find_spec("eflomal") is None:
        raise InputError("silver links need eflomal: pip install 'regard[align]', or give --links")


def align_with_eflomal(
    pairs: Sequence[tuple[str, str]], besides: Sequence[tuple[str, str]] = ()
) -> list[frozenset[Link]]:
    """Return the links between the words of each pair, parted by blanks, by eflomal over these pairs and others.

    Raises `InputError` where the extra `align` is not installed.
    """
    check_eflomal()
    from eflomal import Aligner  # type: ignore[import-not-found,import-untyped,unused-ignore]

    sides = [[_line(pair[side]) for pair in (*pairs, *besides)] for side in (0, 1)]
    with TemporaryDirectory() as folder:
        forward, backward = Path(folder) / "forward", Path(folder) / "backward"
        Aligner().align(*sides, links_filename_fwd=str(forward), links_filename_rev=str(backward))
        found = [path.read_text().split("\n")[: len(pairs)] for path in (forward, backward)]
    links = []
    for pair, one, other in zip(pairs, *found, strict=True):
        forward_links, backward_links = (parse_moses(line, "eflomal's answer").sure for line in (one, other))
        parts = symmetrize(forward_links, backward_links, "grow-diag-final")
        source, target = (_word_of_part(text) for text in pair)
        links.append(frozenset((source[i], target[j]) for i, j in parts if i < len(source) and j < len(target)))
    return links


def _line(text: str) -> str:
    """Return a text as eflomal is given it: with punctuation apart, for it would take `dog.` for another word
    than `dog`. A line of nothing would be none."""
    return " ".join(text[begin:end].lower() for begin, end in word_spans(text, "parts")) or "."


def _word_of_part(text: str) -> list[int]:
    """Return the word, between blanks, to which each part of a text belongs."""
    return word_ids(text, word_spans(text, "parts"))
