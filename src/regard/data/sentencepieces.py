"""SentencePiece vocabularies (Kudo and Richardson 2018) of imported models.

A SentencePiece model (`.spm`) splits text into pieces. A second file, such as Marian's `vocab.json`, maps
pieces to indices. The `sentencepiece` library splits the text, so the tokens are equal to those of the original
program. The first four indices are the special tokens of `vocabulary`. Text is never converted to special
tokens: `</s>` in a line is split into ordinary pieces.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from regard.data.subwords import FAILURE, REMEDY
from regard.data.tokenization import Span
from regard.data.vocabulary import BLANK, SPECIAL, SymbolVocabulary, replace_surrogates
from regard.errors import InputError, RegardError
from regard.io import DamageError, convert_json, parse_json
from regard.libraries import import_library, library_errors

MARK = '{"sentencepiece":'  # The first characters of the JSON of a SentencePiece vocabulary
CODE = (">>", "<<")
"""The delimiters of a language code at the beginning of a text, as in multilingual Marian models."""


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """The content of the JSON of a SentencePiece vocabulary."""

    sentencepiece: str  # The SentencePiece model in base64
    symbols: Annotated[list[str], msgspec.Meta(min_length=1)]  # Symbols of the indices from 4 on
    codes: bool
    lowercase: bool


def model_pieces(model: bytes) -> list[str]:
    """Return the pieces of a SentencePiece model in the order of its indices, without its special tokens.
    Raises `InputError` if sentencepiece is not installed, and `DamageError` for a model that it cannot read."""
    processor = _load_model(model)
    special = processor.IsControl, processor.IsUnknown, processor.IsUnused
    return [
        processor.IdToPiece(index)
        for index in range(processor.GetPieceSize())
        if not any(is_special(index) for is_special in special)
    ]


def _load_model(model: bytes) -> Any:
    """Return the processor of a model."""
    sentencepiece = import_library("sentencepiece", "a vocabulary of SentencePiece", "hub")
    processor = sentencepiece.SentencePieceProcessor()
    try:
        with library_errors("sentencepiece", "its model cannot be loaded", "restore a copy"):
            processor.LoadFromSerializedProto(model)
    except RegardError as error:
        raise DamageError("sentencepiece cannot read its model") from error
    return processor


class SentencePieceVocabulary(SymbolVocabulary):
    """A vocabulary of SentencePiece.

    `model`: content of the model file. `symbols`: pieces of the indices from 4 on. `codes`: whether a text may
    begin with a language code such as `>>fr<<`, which is one token. `lowercase`: convert text to lower case
    first. Raises `InputError` if sentencepiece is not installed, and `DamageError` for a model that
    sentencepiece cannot read.
    """

    def __init__(self, model: bytes, symbols: Sequence[str], *, codes: bool = False, lowercase: bool = False) -> None:
        super().__init__(symbols)
        self.model, self.codes, self.lowercase = model, codes, lowercase
        self._processor = _load_model(model)
        if len(self._indices) < len(symbols):
            raise DamageError("it lists a piece twice")

    def _pieces(self, text: str) -> list[str]:
        code, text = self._split_code(text)
        with library_errors("sentencepiece", FAILURE, REMEDY):
            return [*([code] if code else []), *self._processor.EncodeAsPieces(text)]

    def _split_code(self, text: str) -> tuple[str, str]:
        """Return the language code of a text, which may be empty, and the remaining text."""
        text = replace_surrogates(text).lower() if self.lowercase else replace_surrogates(text)
        if not self.codes or not text.startswith(CODE[0]) or CODE[1] not in text:
            return "", text
        end = text.index(CODE[1]) + len(CODE[1])
        return text[:end], text[end:]

    def pieces(self, text: str) -> list[str]:
        return [piece if piece in self._indices else piece.strip(BLANK) for piece in self._pieces(text)]

    def offsets(self, text: str) -> list[Span]:
        """Return the span of each token of a text. The span of the first token of a word includes the preceding
        space."""
        code, text = self._split_code(text)
        with library_errors("sentencepiece", FAILURE, REMEDY):
            if hasattr(self._processor, "EncodeAsOffsetMapping"):
                spans = self._processor.EncodeAsOffsetMapping(text)["offsets"]
            else:  # sentencepiece before 0.2.2
                pieces = self._processor.Encode(text, out_type="immutable_proto").pieces
                spans = [(piece.begin, piece.end) for piece in pieces]
        # Offsets are relative to the text after the language code.
        start = len(code)
        return [*([(0, start)] if code else []), *((start + begin, start + end) for begin, end in spans)]

    def unknown(self, text: str) -> list[str]:
        return sorted({piece.strip(BLANK) for piece in self._pieces(text) if piece not in self._indices})

    def decode(self, indices: Sequence[int]) -> str:
        pieces = self._known(indices)
        with library_errors("sentencepiece", "the vocabulary cannot join its pieces", "import the model again"):
            text: str = self._processor.DecodePieces(pieces)
        return text.replace(BLANK, " ").strip()

    def to_json(self) -> str:
        """Return the vocabulary as JSON, with the model in base64."""
        stored = _Stored(
            sentencepiece=base64.b64encode(self.model).decode(),
            symbols=self.symbols[len(SPECIAL) :],
            codes=self.codes,
            lowercase=self.lowercase,
        )
        return json.dumps(msgspec.to_builtins(stored), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "SentencePieceVocabulary":
        """Return the vocabulary that `to_json` wrote. Raises `InputError` if the JSON is damaged or
        sentencepiece is not installed."""
        try:
            stored = convert_json(parse_json(text), _Stored)
            try:
                model = base64.b64decode(stored.sentencepiece, validate=True)
            except (binascii.Error, ValueError):
                raise DamageError("its model is not base64") from None
            return cls(model, stored.symbols, codes=stored.codes, lowercase=stored.lowercase)
        except DamageError as error:
            raise InputError(
                f"tokenizer is damaged: {error}; restore the model from a copy, or import it again"
            ) from error
