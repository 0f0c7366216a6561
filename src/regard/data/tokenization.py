"""Spans of words and tokens in a text, and the word to which each token belongs."""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple, Protocol

BLANK = "▁"  # The space before a word in a token
Span = tuple[int, int]
"""A span of a text: the position of its first character, and the position after its last character."""
Unit = Literal["words", "parts", "pieces"]
"""Words separated by whitespace, words with punctuation split off, or tokens of a vocabulary. In text without
spaces, such as Chinese or Thai, each token of the vocabulary is a word (see `word_spans`)."""


# Scripts without spaces between words, identified by the first word of the Unicode names of their letters.
WITHOUT_BLANKS = {
    *("cjk", "hiragana", "katakana", "katakana-hiragana", "halfwidth", "bopomofo", "thai", "lao", "khmer"),
    *("myanmar", "tibetan", "yi", "tai", "new", "javanese", "balinese"),
}
LETTERS_PER_BLANK = 12
"""Number of letters per space above which a script is written without spaces: 5 in English, 9 in Malayalam, and
above 20 in Thai, which has spaces between phrases."""
BETWEEN_LETTERS = re.compile(r"(\w)\W* \W*(?=(\w))")  # The letters before and after a space


@lru_cache(1 << 16)
def find_script(letter: str) -> str:
    """Return the script of a letter: the first word of its Unicode name, because Python has no table of scripts.

    >>> find_script("я")
    'cyrillic'
    """
    return unicodedata.name(letter, "").partition(" ")[0].lower()


def is_whole(text: str, begin: int, end: int) -> bool:
    """Return whether a part of a text is a whole term: not beside a letter, except in scripts without spaces.

    >>> [is_whole(text, 1, 2) for text in ("ab", " b", "我狗跑", "a狗", "a-")]
    [False, True, True, True, False]
    """
    for inside, outside in ((text[begin], text[:begin][-1:]), (text[end - 1], text[end : end + 1])):
        is_letter = "_" in outside or "L" <= unicodedata.category(outside or " ")[0] <= "N"
        if is_letter and not {find_script(inside), find_script(outside)} & WITHOUT_BLANKS:
            return False
    return True


class Tokenizer(Protocol):
    """Splits a text into tokens."""

    def encode(self, text: str) -> list[int]:
        """Return the index of each token of a text."""

    def offsets(self, text: str) -> list[Span]:
        """Return the span of each token of a text."""


class TokenizedText(NamedTuple):
    """A text with its words and tokens."""

    text: str
    indices: list[int]  # The index of each token in the vocabulary
    word_ids: list[int]  # The word to which each token belongs, counted from 0
    spans: list[Span]  # The span of each word

    @property
    def words(self) -> list[str]:
        return [self.text[begin:end].strip() or BLANK for begin, end in self.spans]


def tokenize(text: str, tokenizer: Tokenizer, unit: Unit) -> TokenizedText:
    """Tokenize a text and assign each token to a word. A blank text has no words and no tokens."""
    indices, offsets = tokenizer.encode(text), tokenizer.offsets(text)
    if unit == "pieces":
        return TokenizedText(text, indices, list(range(len(indices))), offsets)
    spans = word_spans(text, unit, offsets)
    if not spans:
        return TokenizedText(text, [], [], [])
    return TokenizedText(text, indices, word_ids(spans, offsets), spans)


@cache
def _unit_pattern(unit: Unit) -> re.Pattern[str]:
    if unit == "words":
        return re.compile(r"\S+")
    # In Python's `re`, the vowel signs and tone marks of Hindi, Thai and other scripts are not letters.
    codes = range(0x300, 0x20000)
    marks = "".join(chr(code) for code in codes if unicodedata.category(chr(code)).startswith("M"))
    return re.compile(rf"[\w{marks}]+|[^\w{marks}\s]")


def word_spans(text: str, unit: Unit, offsets: Sequence[Span] = ()) -> list[Span]:
    """Return the span of each word of a text.

    `offsets`: spans of the tokens of the text. In a text of a script without spaces between words, each of these
    tokens begins a word, unless spaces separate the words of this text.

    >>> word_spans("Ja, gut", "parts")
    [(0, 2), (2, 3), (4, 7)]
    >>> word_spans("我爱你 OK", "words", [(0, 1), (1, 3), (3, 5), (5, 6)])
    [(0, 1), (1, 3), (4, 6)]
    """
    spans = [match.span() for match in _unit_pattern(unit).finditer(text)]
    if not offsets or text.isascii():
        return spans
    dense = [find_script(character) in WITHOUT_BLANKS for character in text]
    borders = BETWEEN_LETTERS.findall(text)
    blanks = sum(all(find_script(letter) in WITHOUT_BLANKS for letter in border) for border in borders)
    if sum(dense) <= LETTERS_PER_BLANK * blanks:
        return spans
    # English words between Chinese characters stay whole.
    begins = sorted({begin for begin, _ in offsets if 0 < begin < len(text) and any(dense[begin - 1 : begin + 1])})
    parts: list[Span] = []
    for begin, end in spans:
        inner = begins[bisect_right(begins, begin) : bisect_left(begins, end)]
        parts += pairwise([begin, *inner, end])
    return parts


def word_ids(spans: Sequence[Span], offsets: Sequence[Span]) -> list[int]:
    """Return the word, one of `spans`, to which each token of a text belongs, counted from 0.

    A token belongs to the word in which it begins. A token that begins between two words, such as a space,
    belongs to the second word. A token at the end of the text belongs to the last word.

    >>> word_ids([(0, 3), (4, 8)], [(0, 3), (3, 6), (6, 8)])
    [0, 1, 1]
    """
    ends = [end for _, end in spans]
    return [min(bisect_right(ends, begin), len(ends) - 1) for begin, _ in offsets]
