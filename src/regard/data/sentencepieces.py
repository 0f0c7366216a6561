"""Vocabularies of SentencePiece (Kudo and Richardson 2018) that come with models from elsewhere.

A model of SentencePiece (`.spm`) cuts text into pieces, and a list beside it says which index each piece has, as
Marian's `vocab.json` does. The work is done by the `sentencepiece` library, so that a text is cut here as it is
there. The first four indices are those of `vocabulary`, and text can never spell them: `</s>` in a line is some
pieces of text.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from regard.data.tokenization import Span
from regard.data.vocabulary import BLANK, EOS, SPECIAL, UNKNOWN, replace_surrogates
from regard.errors import InputError, RegardError
from regard.io.reading import DamageError, convert_json, parse_json
from regard.libraries import import_library, library_errors

MARK = '{"sentencepiece":'
"""How the JSON of such a vocabulary begins."""
CODE = (">>", "<<")
"""Around the code of a language, at the begin of a text (Marian's models of several languages)."""


class _Cut(msgspec.Struct, forbid_unknown_fields=True):
    """What the JSON of such a vocabulary holds."""

    sentencepiece: str
    """The library's own model, in base64."""
    symbols: Annotated[list[str], msgspec.Meta(min_length=1)]
    """Of the indices from 4 on."""
    codes: bool
    lowercase: bool


CUT, AGAIN = "the vocabulary cannot cut this text", "give another text, or import the model anew"
"""What is said where the library fails."""


class SentencePieceVocabulary:
    """A vocabulary of pieces, cut by the model of SentencePiece whose file has the content `model`.

    `symbols`: the pieces of the indices from 4 on. `codes`: a text may begin with the code of a language,
    `>>fr<<`, which is one symbol. `lowercase`: text is put into lower case first. Raises `InputError` where
    sentencepiece is not installed, and `DamageError` for a model that it cannot read.
    """

    unit = "tokens"

    def __init__(
        self, model: bytes, symbols: Sequence[str], *, codes: bool = False, lowercase: bool = False
    ) -> None:
        sentencepiece = import_library("sentencepiece", "a vocabulary of SentencePiece", "hub")
        self.model, self.codes, self.lowercase = model, codes, lowercase
        self._processor: Any = sentencepiece.SentencePieceProcessor()
        try:
            with library_errors("sentencepiece", "its model cannot be loaded", "restore a copy"):
                self._processor.LoadFromSerializedProto(model)
        except RegardError as error:
            raise DamageError("sentencepiece cannot make use of its model") from error
        self.symbols = [*SPECIAL, *symbols]
        self._indices = {symbol: index for index, symbol in enumerate(self.symbols) if index > UNKNOWN}
        if len(self._indices) < len(symbols):
            raise DamageError("a piece stands in it twice")

    def __len__(self) -> int:
        return len(self.symbols)

    def encode(self, text: str) -> list[int]:
        """Return the indices of a text, `UNKNOWN` for what was never seen; no end of sequence."""
        return [self._indices.get(piece, UNKNOWN) for piece in self._pieces(text)]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the indices of many texts."""
        return [self.encode(text) for text in texts]

    def pieces(self, text: str) -> list[str]:
        """Return what each index of `encode(text)` stands for, unknown ones too."""
        return [piece if piece in self._indices else piece.strip(BLANK) for piece in self._pieces(text)]

    def offsets(self, text: str) -> list[Span]:
        """Return where each piece stands in a text; one that begins a word begins with the blank before it."""
        code, text = self._split(text)
        with library_errors("sentencepiece", CUT, AGAIN):
            if hasattr(self._processor, "EncodeAsOffsetMapping"):
                found = self._processor.EncodeAsOffsetMapping(text)["offsets"]
            else:  # before sentencepiece 0.2.2
                pieces = self._processor.Encode(text, out_type="immutable_proto").pieces
                found = [(each.begin, each.end) for each in pieces]
        begin = len(code)
        return [*([(0, begin)] if code else []), *((begin + first, begin + end) for first, end in found)]

    def unknown(self, text: str) -> list[str]:
        """Return what the vocabulary does not know of a text: each piece once, sorted."""
        return sorted({piece.strip(BLANK) for piece in self._pieces(text) if piece not in self._indices})

    def decode(self, indices: Sequence[int]) -> str:
        """Return the text of indices up to the first end of sequence; special ones but `UNKNOWN` are left
        out."""
        indices = indices[: indices.index(EOS)] if EOS in indices else indices
        pieces = [self.symbols[index] for index in indices if index >= UNKNOWN]
        with library_errors("sentencepiece", "the vocabulary cannot join its pieces", "import the model anew"):
            text: str = self._processor.DecodePieces(pieces)
        return text.replace(BLANK, " ").strip()

    def labels(self, indices: Sequence[int]) -> list[str]:
        """Name every index, special ones included, for plots; a word's first piece begins with `▁`."""
        return [self.symbols[index] for index in indices]

    def to_json(self) -> str:
        """Return all of it as JSON, with the model in base64."""
        stored = _Cut(
            sentencepiece=base64.b64encode(self.model).decode(),
            symbols=self.symbols[len(SPECIAL) :],
            codes=self.codes,
            lowercase=self.lowercase,
        )
        return json.dumps(msgspec.to_builtins(stored), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "SentencePieceVocabulary":
        """Return what `to_json` wrote; raises `InputError` where it is damaged, or sentencepiece not there."""
        try:
            stored = convert_json(parse_json(text), _Cut)
            try:
                model = base64.b64decode(stored.sentencepiece, validate=True)
            except (binascii.Error, ValueError):
                raise DamageError("its model is not base64") from None
            return cls(model, stored.symbols, codes=stored.codes, lowercase=stored.lowercase)
        except DamageError as error:
            raise InputError(f"tokenizer is damaged: {error}; restore a copy of it, or import it anew") from error

    def _pieces(self, text: str) -> list[str]:
        code, text = self._split(text)
        with library_errors("sentencepiece", CUT, AGAIN):
            return [*([code] if code else []), *self._processor.EncodeAsPieces(text)]

    def _split(self, text: str) -> tuple[str, str]:
        """Return the code of a language, or nothing, and the text behind it."""
        text = replace_surrogates(text).lower() if self.lowercase else replace_surrogates(text)
        if not self.codes or not text.startswith(CODE[0]) or CODE[1] not in text:
            return "", text
        end = text.index(CODE[1]) + len(CODE[1])
        return text[:end], text[end:]
