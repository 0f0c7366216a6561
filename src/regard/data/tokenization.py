"""Where the pieces of a text stand in it, and to which of its words each belongs."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal

Span = tuple[int, int]
"""From which character of a text, and to before which."""
Unit = Literal["words", "parts", "pieces"]
"""Words between blanks; these with punctuation apart; or the vocabulary's own pieces."""
UNITS = {"words": re.compile(r"\S+"), "parts": re.compile(r"\w+|[^\w\s]")}


def word_spans(text: str, unit: Unit) -> list[Span]:
    """Return where the words of a text stand: between blanks, or with punctuation apart (parts)."""
    return [match.span() for match in UNITS[unit].finditer(text)]


def word_ids(text: str, pieces: Sequence[Span], unit: Unit = "words") -> list[int]:
    """Return for each piece of a text the number of its word, from 0.

    A piece belongs to the word in which it begins, and one that begins between two words, as a blank does, to the
    word after it; at the end to the last one.
    """
    ends = [end for _, end in word_spans(text, unit)]
    return [min(bisect_right(ends, begin), len(ends) - 1) for begin, _ in pieces]
