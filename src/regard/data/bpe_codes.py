"""Byte-pair encoding (Sennrich et al. 2016) with the codes of imported models.

A file of codes, written by subword-nmt or fastBPE, lists pairs of pieces in the order of merging. A word is
split into characters, the last of which gets the suffix `</w>`, and pairs are merged until no code applies:

    s c h n e e</w>  ->  schn ee</w>  ->  written as schn@@ ee

Words are separated by spaces, because these models expect text that has been tokenized by a different program.
A second file maps each piece to an index. The suffix `@@` marks pieces that do not end a word. Without codes,
words are not split.
"""

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Annotated

import msgspec

from regard.data.tokenization import Span, word_spans
from regard.data.vocabulary import BLANK, SPECIAL, SymbolVocabulary, replace_surrogates
from regard.errors import InputError
from regard.io.reading import DamageError, convert_json, parse_json

MARK = '{"codes":'
"""The first characters of the JSON of a `BpeCodesVocabulary`."""
CONTINUATION = "@@"
"""The suffix of a piece that does not end a word."""
END_OF_WORD = "</w>"
"""The suffix of the last character of a word, in codes."""
VERSION = "0.2"
"""The version of subword-nmt's format. Files of earlier versions write `</w>` as a separate piece."""
WORDS = 100_000
"""The number of words whose pieces are cached."""
Codes = Sequence[tuple[str, str]]


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON of a `BpeCodesVocabulary`."""

    codes: list[tuple[str, str]]
    symbols: Annotated[list[str], msgspec.Meta(min_length=1)]
    """Symbols of the indices from 4 on."""


class BpeCodesVocabulary(SymbolVocabulary):
    """A vocabulary that splits words by codes.

    `codes`: pairs to merge, in order. `symbols`: pieces of the indices from 4 on; pieces that do not end a word
    have the suffix `@@`. Raises `DamageError` for a duplicate piece.

    >>> vocabulary = BpeCodesVocabulary([("H", "u"), ("n", "d</w>")], ["Hu@@", "nd"])
    >>> vocabulary.encode("Hund"), vocabulary.decode([4, 5])
    ([4, 5], 'Hund')
    """

    def __init__(self, codes: Codes, symbols: Sequence[str]) -> None:
        super().__init__(symbols)
        self.codes = list(codes)
        if len(self._indices) < len(symbols):
            raise DamageError("it lists a piece twice")
        # In reverse order, so that the first of two equal codes has priority, as in subword-nmt.
        self._ranks = {pair: rank for rank, pair in reversed(list(enumerate(self.codes)))}
        self._split = lru_cache(WORDS)(self._split_word)

    def __reduce__(self) -> tuple[type["BpeCodesVocabulary"], tuple[Codes, list[str]]]:
        # Worker processes receive the vocabulary without its cache.
        return BpeCodesVocabulary, (self.codes, self.symbols[len(SPECIAL) :])

    def _pieces(self, text: str) -> Iterator[str]:
        for word in replace_surrogates(text).split():
            yield from self._split(word)

    def pieces(self, text: str) -> list[str]:
        """Return the tokens of a text in the form of `labels`, including unknown tokens."""
        return _labels(list(self._pieces(text)))

    def offsets(self, text: str) -> list[Span]:
        """Return the span of each token of a text."""
        text, spans = replace_surrogates(text), list[Span]()
        for begin, end in word_spans(text, "words"):
            for piece in self._split(text[begin:end]):
                spans.append((begin, begin + len(piece.removesuffix(CONTINUATION))))
                begin = spans[-1][1]
            spans[-1] = (spans[-1][0], end)
        return spans

    def unknown(self, text: str) -> list[str]:
        """Return the distinct unknown tokens of a text, sorted."""
        pieces = (piece for piece in self._pieces(text) if piece not in self._indices)
        return sorted({piece.removesuffix(CONTINUATION) for piece in pieces})

    def decode(self, indices: Sequence[int]) -> str:
        """Return the text of indices up to the first end of sequence (see `Vocabulary.decode`)."""
        return " ".join(self._known(indices)).replace(f"{CONTINUATION} ", "").removesuffix(CONTINUATION)

    def labels(self, indices: Sequence[int]) -> list[str]:
        """Return a label for each index, including special tokens, for plots.

        In a sequence, the label of the first piece of a word begins with `▁`. The label of a single index is
        that of `symbols`, because its position in a word is unknown.
        """
        pieces = super().labels(indices)
        return _labels(pieces) if len(pieces) > 1 else pieces

    def to_json(self) -> str:
        """Return the vocabulary as JSON."""
        stored = _Stored(codes=self.codes, symbols=self.symbols[len(SPECIAL) :])
        return json.dumps(msgspec.to_builtins(stored), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "BpeCodesVocabulary":
        """Return the vocabulary that `to_json` wrote. Raises `InputError` if the JSON is damaged."""
        try:
            stored = convert_json(parse_json(text), _Stored)
            return cls(stored.codes, stored.symbols)
        except DamageError as error:
            raise InputError(
                f"tokenizer is damaged: {error}; restore the model from a copy, or import it again"
            ) from error

    def _split_word(self, word: str) -> tuple[str, ...]:
        """Return the pieces of a word. Each step applies the first matching code at all positions."""
        if not self.codes:
            return (word,)
        pieces = [*word[:-1], f"{word[-1]}{END_OF_WORD}"]
        while len(pieces) > 1:
            pair = min(pairwise(pieces), key=lambda pair: self._ranks.get(pair, len(self.codes)))
            if pair not in self._ranks:
                break
            pieces = _merge(pieces, pair)
        return (*(f"{piece}{CONTINUATION}" for piece in pieces[:-1]), pieces[-1].removesuffix(END_OF_WORD))


def _merge(pieces: Sequence[str], pair: tuple[str, str]) -> list[str]:
    """Merge each occurrence of `pair`, from left to right."""
    merged, index = [], 0
    while index < len(pieces):
        match = tuple(pieces[index : index + 2]) == pair
        merged.append("".join(pair) if match else pieces[index])
        index += 1 + match
    return merged


def _labels(pieces: Sequence[str]) -> list[str]:
    """Convert pieces with the suffix `@@` for an unfinished word to pieces with the prefix `▁` for the
    beginning of a word."""
    previous = ["", *pieces]
    return [
        piece
        if piece in SPECIAL
        else f"{'' if before.endswith(CONTINUATION) else BLANK}{piece.removesuffix(CONTINUATION)}"
        for before, piece in zip(previous, pieces, strict=False)
    ]


def parse_codes(text: str) -> list[tuple[str, str]]:
    """Return the codes in a file of subword-nmt (version 0.2) or fastBPE. Raises `DamageError` for other files.

    A file of subword-nmt begins with `#version: 0.2`. fastBPE writes a count after each pair.

    >>> parse_codes("#version: 0.2\\ns c\\nsc h\\n")
    [('s', 'c'), ('sc', 'h')]
    """
    lines = split_lines(text)
    first = lines[0] if lines else ""
    version = first.removeprefix("#version:").strip() if first.startswith("#version:") else None
    if version not in (None, VERSION):
        raise DamageError(f"its version is {version}, not {VERSION}")
    columns = 3 if version is None else 2
    codes = []
    for number, line in enumerate(lines[version is not None :], 1 + (version is not None)):
        parts = line.split(" ")
        if len(parts) != columns:
            expected = "a pair and its count, as in files of fastBPE" if columns == 3 else "a pair"
            raise DamageError(f"its line {number} is not {expected}")
        codes.append((parts[0], parts[1]))
    if not codes:
        raise DamageError("it has no codes")
    return codes


def split_lines(text: str) -> list[str]:
    """Return the lines of a file. Only a line feed ends a line, because pieces may contain other separators."""
    return [line.rstrip("\r") for line in text.rstrip("\n").split("\n")] if text else []


def format_codes(codes: Codes) -> str:
    """Return codes in the file format of subword-nmt.

    >>> format_codes([("s", "c")])
    '#version: 0.2\\ns c\\n'
    """
    return "".join([f"#version: {VERSION}\n", *(f"{left} {right}\n" for left, right in codes)])
