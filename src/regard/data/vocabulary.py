"""Vocabularies: from text to indices and back. The first four indices have a meaning of their own."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

from regard.data.tokenization import Span, word_spans

PAD, BOS, EOS, UNKNOWN = range(4)
"""Past the end; begin of sequence; end of sequence; a symbol that is not in the vocabulary."""
SPECIAL = ("", "<s>", "</s>", "�")
"""How these four are shown as labels."""


BLANK = "▁"
"""Stands for the blank before a word, in vocabularies that are learned."""
HALF = re.compile("[\ud800-\udfff]")
"""Half a pair of UTF-16."""
FILLERS = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
"""Characters without a shape that Unicode counts among letters, marks or symbols."""
TokenizerKind = Literal["bpe", "unigram", "words", "characters", "sentencepiece", "codes"]
"""How text is cut into tokens, by a vocabulary that is learned (see `subwords`), or by one that an imported model
came with: of SentencePiece (see `sentencepieces`), or by the codes of subword-nmt and fastBPE (see `codes`)."""


def replace_surrogates(text: str) -> str:
    """Return a text in which half a pair of UTF-16, which no file of UTF-8 can hold, is an unknown character."""
    return HALF.sub("\ufffd", text)


def is_blank(text: str) -> bool:
    """Return whether a text has nothing to read: no characters, or only blanks, controls, and characters without
    a shape, such as zero-width spaces and byte order marks.

        is_blank(" \\t\\u200b")    # True
    """
    return (text[:1] in FILLERS or not text[:1].isalnum()) and all(
        unicodedata.category(each) in ("Zs", "Zl", "Zp", "Cc", "Cf")
        or each in FILLERS
        or "\ufe00" <= each <= "\ufe0f"
        for each in text
    )


def empty_if_blank(text: str) -> str:
    """Return a text, and the empty one for a blank text."""
    return "" if is_blank(text) else text


class Vocabulary(Protocol):
    """What reads and writes text as indices."""

    unit: str
    """What an index stands for, in the plural: characters, tokens."""
    symbols: list[str]
    """How each index is shown."""

    def __len__(self) -> int: ...

    def encode(self, text: str) -> list[int]:
        """Return the indices of a text, `UNKNOWN` for what was never seen; no end of sequence."""

    def pieces(self, text: str) -> list[str]:
        """Return what each index of `encode(text)` stands for, unknown ones too."""

    def offsets(self, text: str) -> list[Span]:
        """Return where each piece of `pieces(text)` stands in the text."""

    def unknown(self, text: str) -> list[str]:
        """Return what the vocabulary does not know of a text: each piece once, sorted."""

    def decode(self, indices: Sequence[int]) -> str:
        """Return the text of indices up to the first end of sequence; special ones but `UNKNOWN` are left
        out."""

    def labels(self, indices: Sequence[int]) -> list[str]:
        """Name every index of a sequence, special ones included, for plots."""


class LearnedVocabulary(Vocabulary, Protocol):
    """A vocabulary that was learned from text, and is kept with what was trained with it."""

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the indices of many texts."""

    def to_json(self) -> str:
        """Return all of it as JSON, by whose begin it is known which kind it is."""


class CharacterVocabulary:
    """A vocabulary of single characters, known from the start."""

    unit = "characters"
    between = ""
    """What stands between two symbols of a text."""

    def __init__(self, symbols: Iterable[str]) -> None:
        self.symbols = [*SPECIAL, *sorted(set(symbols))]
        self._indices = {symbol: index for index, symbol in enumerate(self.symbols) if index > UNKNOWN}

    def __len__(self) -> int:
        return len(self.symbols)

    def encode(self, text: str) -> list[int]:
        """Return the index of every symbol, `UNKNOWN` for one never seen; no end of sequence."""
        return [self._indices.get(piece, UNKNOWN) for piece in self.pieces(text)]

    def pieces(self, text: str) -> list[str]:
        """Return the symbols of a text."""
        return list(text)

    def offsets(self, text: str) -> list[Span]:
        """Return where each symbol stands in a text."""
        return [(index, index + 1) for index in range(len(text))]

    def unknown(self, text: str) -> list[str]:
        """Return the symbols of a text that the vocabulary does not know: each once, sorted."""
        return sorted(set(self.pieces(text)) - self._indices.keys())

    def decode(self, indices: Sequence[int]) -> str:
        """Return the text of indices up to the first end of sequence; special ones but `UNKNOWN` are left
        out."""
        indices = indices[: indices.index(EOS)] if EOS in indices else indices
        return self.between.join(self.symbols[index] for index in indices if index >= UNKNOWN)

    def labels(self, indices: Sequence[int]) -> list[str]:
        """Name every index, special ones included, for plots."""
        return [self.symbols[index] for index in indices]


class WordVocabulary(CharacterVocabulary):
    """A vocabulary of words with spaces between them, known from the start."""

    unit = "words"
    between = " "

    def pieces(self, text: str) -> list[str]:
        """Return the words of a text."""
        return text.split()

    def offsets(self, text: str) -> list[Span]:
        """Return where each word stands in a text."""
        return word_spans(text, "words")
