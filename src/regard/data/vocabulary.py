"""Vocabularies map text to indices and back. The first four indices are reserved."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Literal, Protocol

from regard.data.tokenization import BLANK as BLANK, Span, Tokenizer, word_spans

PAD, BOS, EOS, UNKNOWN = range(4)
"""Indices of padding, the beginning of a sequence, the end of a sequence, and tokens that are not in the vocabulary."""
SPECIAL = ("", "<s>", "</s>", "�")  # The labels of these four indices
SURROGATES = re.compile("[\ud800-\udfff]")  # Unpaired surrogates of UTF-16
FILLERS = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
"""Invisible characters that Unicode classifies as letters, marks or symbols."""
TokenizerKind = Literal["bpe", "unigram", "words", "characters", "sentencepiece"]
"""Kinds of tokenizers. The first four are learned from text (see `subwords`). SentencePiece belongs to imported
models (see `imported_tokenizers`)."""


def replace_surrogates(text: str) -> str:
    """Replace each unpaired surrogate, which UTF-8 cannot encode, by U+FFFD.

    >>> replace_surrogates("a\\ud800")
    'a�'
    """
    return SURROGATES.sub("\ufffd", text)


def is_blank(text: str) -> bool:
    """Return whether a text consists only of whitespace, control characters and invisible characters.

    Zero-width spaces and byte order marks are invisible characters.

    >>> is_blank(" \\t\\u200b")
    True
    """
    return (text[:1] in FILLERS or not text[:1].isalnum()) and all(
        unicodedata.category(character) in ("Zs", "Zl", "Zp", "Cc", "Cf")
        or character in FILLERS
        or "\ufe00" <= character <= "\ufe0f"
        for character in text
    )


def empty_if_blank(text: str) -> str:
    return "" if is_blank(text) else text


class Vocabulary(Tokenizer, Protocol):
    """Maps text to indices and back."""

    unit: str  # The unit of an index in the plural: characters, words, tokens
    symbols: list[str]  # The symbol of each index

    def __len__(self) -> int: ...

    def encode(self, text: str) -> list[int]:
        """Return the indices of a text without an end of sequence. Unknown tokens get `UNKNOWN`."""

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the indices of many texts."""

    def pieces(self, text: str) -> list[str]:
        """Return the tokens of a text, including unknown tokens, in the order of `encode(text)`."""

    def unknown(self, text: str) -> list[str]:
        """Return the distinct unknown tokens of a text, sorted."""

    def decode(self, indices: Sequence[int]) -> str:
        """Return the text of indices up to the first end of sequence. Special indices are skipped, except `UNKNOWN`."""

    def labels(self, indices: Sequence[int]) -> list[str]:
        """Return a label for each index of a sequence, including special tokens, for plots."""


class LearnedVocabulary(Vocabulary, Protocol):
    """A vocabulary that was learned from text and is stored with the model."""

    def to_json(self) -> str:
        """Return the vocabulary as JSON. The first characters of the JSON identify the class."""


class SymbolVocabulary:
    """Base class of vocabularies with a list of symbols. A subclass defines `pieces` and `offsets`. `symbols`:
    symbols of the indices from 4 on."""

    unit = "tokens"

    def __init__(self, symbols: Sequence[str]) -> None:
        self.symbols = [*SPECIAL, *symbols]

    @cached_property
    def _indices(self) -> dict[str, int]:
        return {symbol: index for index, symbol in enumerate(self.symbols) if index > UNKNOWN}

    def __len__(self) -> int:
        return len(self.symbols)

    def pieces(self, text: str) -> list[str]:
        raise NotImplementedError

    def _pieces(self, text: str) -> list[str]:
        return self.pieces(text)

    def encode(self, text: str) -> list[int]:
        return [self._indices.get(piece, UNKNOWN) for piece in self._pieces(text)]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def labels(self, indices: Sequence[int]) -> list[str]:
        return [self.symbols[index] for index in indices]

    def _known(self, indices: Sequence[int]) -> list[str]:
        """Return the symbols of indices up to the first end of sequence, without special symbols except `UNKNOWN`."""
        indices = indices[: indices.index(EOS)] if EOS in indices else indices
        return [self.symbols[index] for index in indices if index >= UNKNOWN]


class CharacterVocabulary(SymbolVocabulary):
    """A vocabulary of single characters with a fixed list of symbols.

    >>> CharacterVocabulary("ab").encode("ba?")
    [5, 4, 3]
    """

    unit = "characters"
    separator = ""  # The string between two symbols of a text

    def __init__(self, symbols: str | Iterable[str]) -> None:
        super().__init__(sorted(set(symbols)))

    def pieces(self, text: str) -> list[str]:
        return list(text)

    def offsets(self, text: str) -> list[Span]:
        return [(index, index + 1) for index in range(len(text))]

    def unknown(self, text: str) -> list[str]:
        return sorted(set(self.pieces(text)) - self._indices.keys())

    def decode(self, indices: Sequence[int]) -> str:
        return self.separator.join(self._known(indices))


class WordVocabulary(CharacterVocabulary):
    """A vocabulary of words separated by spaces, with a fixed list of words.

    >>> WordVocabulary(["Hund", "ein"]).decode([5, 4, 2])
    'ein Hund'
    """

    unit = "words"
    separator = " "

    def pieces(self, text: str) -> list[str]:
        return text.split()

    def offsets(self, text: str) -> list[Span]:
        return word_spans(text, "words")
