"""Spans of words and tokens in a text, and the word to which each token belongs."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

Span = tuple[int, int]
"""A span of a text: the position of its first character, and the position after its last character."""
Unit = Literal["words", "parts", "pieces"]
"""Words separated by whitespace, words with punctuation split off, or tokens of a vocabulary."""
UNITS = {"words": re.compile(r"\S+"), "parts": re.compile(r"\w+|[^\w\s]")}


class Tokenizer(Protocol):
    """Splits a text into tokens."""

    def encode(self, text: str) -> list[int]:
        """Return the index of each token of a text."""

    def offsets(self, text: str) -> list[Span]:
        """Return the span of each token of a text."""


class TokenizedText(NamedTuple):
    """A text with its words and tokens."""

    text: str
    indices: list[int]
    """The index of each token in the vocabulary."""
    word_ids: list[int]
    """The word to which each token belongs, counted from 0."""
    spans: list[Span]
    """The span of each word."""

    @property
    def words(self) -> list[str]:
        """The words."""
        return [self.text[begin:end].strip() for begin, end in self.spans]


def tokenize(text: str, tokenizer: Tokenizer, unit: Unit) -> TokenizedText:
    """Tokenize a text and assign each token to a word. A blank text has no words and no tokens."""
    indices, offsets = tokenizer.encode(text), tokenizer.offsets(text)
    if unit == "pieces":
        return TokenizedText(text, indices, list(range(len(indices))), offsets)
    spans = word_spans(text, unit)
    if not spans:
        return TokenizedText(text, [], [], [])
    return TokenizedText(text, indices, word_ids(text, offsets, unit), spans)


def word_spans(text: str, unit: Unit) -> list[Span]:
    """Return the span of each word of a text.

    >>> word_spans("Ja, gut", "parts")
    [(0, 2), (2, 3), (4, 7)]
    """
    return [match.span() for match in UNITS[unit].finditer(text)]


def word_ids(text: str, offsets: Sequence[Span], unit: Unit = "words") -> list[int]:
    """Return the word to which each token of a text belongs, counted from 0.

    A token belongs to the word in which it begins. A token that begins between two words, such as a space,
    belongs to the second word. A token at the end of the text belongs to the last word.

    >>> word_ids("ein Hund", [(0, 3), (3, 6), (6, 8)])
    [0, 1, 1]
    """
    ends = [end for _, end in word_spans(text, unit)]
    return [min(bisect_right(ends, begin), len(ends) - 1) for begin, _ in offsets]
