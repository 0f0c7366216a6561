"""Vocabularies of byte-pair encoding by given codes (Sennrich et al. 2016), which imported models come with.

A file of codes, of subword-nmt or fastBPE, says which two pieces of a word are joined, first ones first. A word
is cut into its characters, the last of which ends in `</w>`, and they are joined until no code is left:

    s c h n e e</w>  ->  schn ee</w>  ->  shown as schn@@ ee

Words stand between blanks: such models are fed text that another program has split, with punctuation apart. A
list beside the codes says which index each piece has; `@@` marks those that a word goes on behind. Without codes,
words are pieces as they are.
"""

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Annotated

import msgspec

from regard.data.tokenization import Span, word_spans
from regard.data.vocabulary import BLANK, EOS, SPECIAL, UNKNOWN, replace_surrogates
from regard.errors import InputError
from regard.io.reading import DamageError, convert_json, parse_json

MARK = '{"codes":'
"""How the JSON of such a vocabulary begins."""
CONTINUATION = "@@"
"""Behind a piece that does not end a word."""
END_OF_WORD = "</w>"
"""Behind the last character of a word, in codes."""
VERSION = "0.2"
"""Of subword-nmt's codes; in those before, `</w>` was a piece of its own."""
WORDS = 100_000
"""Words whose pieces are kept in memory: the latest."""
Codes = Sequence[tuple[str, str]]


class _Cut(msgspec.Struct, forbid_unknown_fields=True):
    """What the JSON of such a vocabulary holds."""

    codes: list[tuple[str, str]]
    symbols: Annotated[list[str], msgspec.Meta(min_length=1)]
    """Of the indices from 4 on."""


class BpeCodesVocabulary:
    """A vocabulary of pieces, cut by codes.

    `codes`: what is joined, first ones first. `symbols`: the pieces of the indices from 4 on, with `@@` behind
    those that do not end a word. Raises `DamageError` where one stands in it twice.
    """

    unit = "tokens"

    def __init__(self, codes: Codes, symbols: Sequence[str]) -> None:
        self.codes = list(codes)
        self.symbols = [*SPECIAL, *symbols]
        self._indices = {symbol: index for index, symbol in enumerate(self.symbols) if index > UNKNOWN}
        if len(self._indices) < len(symbols):
            raise DamageError("a piece stands in it twice")
        self._ranks = {pair: rank for rank, pair in reversed(list(enumerate(self.codes)))}  # the first one counts
        self._cut = lru_cache(WORDS)(self._cut_word)

    def __len__(self) -> int:
        return len(self.symbols)

    def __reduce__(self) -> tuple[type["BpeCodesVocabulary"], tuple[Codes, list[str]]]:
        # Other processes prepare text too; what is kept of words is not sent along.
        return BpeCodesVocabulary, (self.codes, self.symbols[len(SPECIAL) :])

    def encode(self, text: str) -> list[int]:
        """Return the indices of a text, `UNKNOWN` for what was never seen; no end of sequence."""
        return [self._indices.get(piece, UNKNOWN) for piece in self._pieces(text)]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the indices of many texts."""
        return [self.encode(text) for text in texts]

    def pieces(self, text: str) -> list[str]:
        """Return what each index of `encode(text)` stands for, unknown ones too, as `labels` names it."""
        return _labels(list(self._pieces(text)))

    def offsets(self, text: str) -> list[Span]:
        """Return where each piece stands in a text."""
        text, found = replace_surrogates(text), []
        for begin, end in word_spans(text, "words"):
            for piece in self._cut(text[begin:end]):
                found.append((begin, begin + len(piece.removesuffix(CONTINUATION))))
                begin = found[-1][1]
            found[-1] = (found[-1][0], end)
        return found

    def unknown(self, text: str) -> list[str]:
        """Return what the vocabulary does not know of a text: each piece once, sorted."""
        pieces = (piece for piece in self._pieces(text) if piece not in self._indices)
        return sorted({piece.removesuffix(CONTINUATION) for piece in pieces})

    def decode(self, indices: Sequence[int]) -> str:
        """Return the text of indices up to the first end of sequence; special ones but `UNKNOWN` are left
        out."""
        indices = indices[: indices.index(EOS)] if EOS in indices else indices
        text = " ".join(self.symbols[index] for index in indices if index >= UNKNOWN)
        return text.replace(f"{CONTINUATION} ", "").removesuffix(CONTINUATION)

    def labels(self, indices: Sequence[int]) -> list[str]:
        """Name every index, special ones included, for plots; in a sequence, a word's first piece begins with
        `▁`, while one alone is spelled as in the list: it may begin a word or end one."""
        pieces = [self.symbols[index] for index in indices]
        return _labels(pieces) if len(pieces) > 1 else pieces

    def to_json(self) -> str:
        """Return all of it as JSON."""
        stored = _Cut(codes=self.codes, symbols=self.symbols[len(SPECIAL) :])
        return json.dumps(msgspec.to_builtins(stored), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "BpeCodesVocabulary":
        """Return what `to_json` wrote; raises `InputError` where it is damaged."""
        try:
            stored = convert_json(parse_json(text), _Cut)
            return cls(stored.codes, stored.symbols)
        except DamageError as error:
            raise InputError(f"tokenizer is damaged: {error}; restore a copy of it, or import it anew") from error

    def _pieces(self, text: str) -> Iterator[str]:
        for word in replace_surrogates(text).split():
            yield from self._cut(word)

    def _cut_word(self, word: str) -> tuple[str, ...]:
        """Return the pieces of a word: in each step the first code that can be used is, wherever it can."""
        if not self.codes:
            return (word,)
        pieces = [*word[:-1], f"{word[-1]}{END_OF_WORD}"]
        while len(pieces) > 1:
            pair = min(pairwise(pieces), key=lambda pair: self._ranks.get(pair, len(self.codes)))
            if pair not in self._ranks:
                break
            pieces = _join(pieces, pair)
        return (*(f"{piece}{CONTINUATION}" for piece in pieces[:-1]), pieces[-1].removesuffix(END_OF_WORD))


def _join(pieces: Sequence[str], pair: tuple[str, str]) -> list[str]:
    """Return pieces with every `pair` of neighbours joined, from left to right."""
    found, place = [], 0
    while place < len(pieces):
        both = tuple(pieces[place : place + 2]) == pair
        found.append("".join(pair) if both else pieces[place])
        place += 1 + both
    return found


def _labels(pieces: Sequence[str]) -> list[str]:
    """Return pieces as they are shown: `▁` before those that begin a word, instead of `@@` behind the others."""
    before = ["", *pieces]
    return [
        piece
        if piece in SPECIAL
        else f"{'' if last.endswith(CONTINUATION) else BLANK}{piece.removesuffix(CONTINUATION)}"
        for last, piece in zip(before, pieces, strict=False)
    ]


def parse_codes(text: str) -> list[tuple[str, str]]:
    """Return the codes in a file of subword-nmt (version 0.2) or fastBPE; raises `DamageError` for another file.

    subword-nmt begins with `#version: 0.2`, fastBPE has a count behind each pair.
    """
    lines = split_lines(text)
    first = lines[0] if lines else ""
    version = first.removeprefix("#version:").strip() if first.startswith("#version:") else None
    if version not in (None, VERSION):
        raise DamageError(f"its version is {version}, not {VERSION}")
    columns = 3 if version is None else 2
    found = []
    for number, line in enumerate(lines[version is not None :], 1 + (version is not None)):
        parts = line.split(" ")
        if len(parts) != columns:
            wanted = "a pair and its count, as fastBPE's" if columns == 3 else "a pair"
            raise DamageError(f"its line {number} is not {wanted}")
        found.append((parts[0], parts[1]))
    if not found:
        raise DamageError("it has no codes")
    return found


def split_lines(text: str) -> list[str]:
    """Return the lines of a file, which end at a line feed alone: pieces may have other breaks in them."""
    return [line.rstrip("\r") for line in text.rstrip("\n").split("\n")] if text else []


def format_codes(codes: Codes) -> str:
    """Return codes as a file of subword-nmt."""
    return "".join([f"#version: {VERSION}\n", *(f"{one} {other}\n" for one, other in codes)])
