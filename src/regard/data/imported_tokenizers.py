"""Tokenizers of imported models: SentencePiece (Kudo and Richardson 2018), and `tokenizer.json` of Hugging Face.

A SentencePiece model (`.spm`) splits text into pieces. A second file, such as Marian's `vocab.json`, maps
pieces to indices. The `sentencepiece` library splits the text, so the tokens are equal to those of the original
program. The first four indices are the special tokens of `vocabulary`. Text is never converted to special
tokens: `</s>` in a line is split into ordinary pieces.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any

import msgspec
from tokenizers import Encoding, Tokenizer

from regard.data.subwords import FAILURE, REMEDY, Index, make_tokenizer
from regard.data.tokenization import Span
from regard.data.vocabulary import BLANK, SPECIAL, SymbolVocabulary, replace_surrogates
from regard.errors import InputError, RegardError
from regard.io import DamageError, convert_json, damage_errors, parse_json
from regard.libraries import import_library, library_errors

MARK = '{"sentencepiece":'  # The first characters of the JSON of a SentencePiece vocabulary
CODE = (">>", "<<")  # The delimiters of a language code at the beginning of a text, as in multilingual Marian models


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """The content of the JSON of a SentencePiece vocabulary."""

    sentencepiece: str  # The SentencePiece model in base64
    symbols: Annotated[list[str], msgspec.Meta(min_length=1)]  # Symbols of the indices from 4 on
    codes: bool
    lowercase: bool


def model_pieces(model: bytes) -> list[str]:
    """Return the pieces of a SentencePiece model in the order of its indices, without its special tokens."""
    processor = _load_model(model)
    special = processor.IsControl, processor.IsUnknown, processor.IsUnused
    return [
        processor.IdToPiece(index)
        for index in range(processor.GetPieceSize())
        if not any(is_special(index) for is_special in special)
    ]


def _load_model(model: bytes) -> Any:
    sentencepiece = import_library("sentencepiece", "a vocabulary of SentencePiece", "hub")
    processor = sentencepiece.SentencePieceProcessor()
    try:
        with library_errors("sentencepiece", "its model cannot be loaded", "restore a copy"):
            processor.LoadFromSerializedProto(model)
    except RegardError as error:
        raise DamageError("sentencepiece cannot read its model") from error
    return processor


class SentencePieceVocabulary(SymbolVocabulary):
    """A vocabulary of SentencePiece. `model`: content of the model file. `symbols`: pieces of the indices from 4 on.
    `codes`: whether a text may begin with a language code such as `>>fr<<`, which is one token. `lowercase`: convert
    text to lower case first. Raises `InputError` if sentencepiece is not installed, and `DamageError` for a model that
    sentencepiece cannot read."""

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
        """Return the span of each token of a text. That of the first token of a word includes the space before."""
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
        model, symbols = base64.b64encode(self.model).decode(), self.symbols[len(SPECIAL) :]
        stored = _Stored(model, symbols, self.codes, self.lowercase)
        return json.dumps(msgspec.to_builtins(stored), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "SentencePieceVocabulary":
        with damage_errors("tokenizer", "restore the model from a copy, or import it again"):
            stored = convert_json(parse_json(text), _Stored)
            try:
                model = base64.b64decode(stored.sentencepiece, validate=True)
            except (binascii.Error, ValueError):
                raise DamageError("its model is not base64") from None
            return cls(model, stored.symbols, codes=stored.codes, lowercase=stored.lowercase)


# The tokenizer of an imported language model: `tokenizer.json` of Hugging Face, with its special tokens.
#
# Unlike the vocabularies that are learned here, it keeps all indices of the model, encodes line feeds as a part of
# the text, and may begin each sequence with special tokens (`prefix`). Text is never converted to special tokens.

SPECIAL_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")
"""Names of the special tokens in Hugging Face's configs."""


class _StoredTokenizer(msgspec.Struct):
    """The JSON of an imported tokenizer."""

    size: Annotated[int, msgspec.Meta(ge=1, le=2**31)]
    special: dict[str, Index]
    tokenizer: dict[str, Any]


class ImportedTokenizer:
    """A `tokenizers.Tokenizer` for a model with `size` outputs. `special`: index of each special token, by the
    names in `SPECIAL_TOKENS`. Indices without a token, which some models have because their vocabulary was
    padded, are named `<unused INDEX>`."""

    line_feed: int | None = None  # Token of a line feed that separates lines; None: the whole text is encoded at once

    def __init__(self, tokenizer: Tokenizer, size: int, special: dict[str, int] | None = None) -> None:
        self._tokenizer, self._size, self.special = tokenizer, size, special or {}
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        self._names: dict[int, str] = {index: name for name, index in tokenizer.get_vocab().items()}
        largest = max([*self._names, *self.special.values()], default=-1)
        if largest >= size:
            raise DamageError(f"its token {largest} is not among the {size} outputs of the model")
        if not self._names:
            raise DamageError("it has no tokens")
        stored = json.loads(tokenizer.to_str())
        self._by_bytes = "ByteLevel" in json.dumps(stored.get("decoder"))
        unknown = stored["model"].get("unk_token")
        self.unknown_index: int | None = (
            stored["model"].get("unk_id") if unknown is None else tokenizer.token_to_id(unknown)
        )
        """Token of text that the vocabulary lacks; None for a vocabulary without such a token."""

    def __len__(self) -> int:
        return self._size

    @cached_property
    def symbols(self) -> list[str]:
        """Text of each token, with `▁` for a space; its name in the file if it is a part of a character."""
        symbols = [self._names.get(index, f"<unused {index}>") for index in range(self._size)]
        if self._by_bytes:
            texts = self._tokenizer.decode_batch([[index] for index in self._names], skip_special_tokens=False)
            for index, text in zip(self._names, texts, strict=True):
                if text and "\ufffd" not in text:
                    symbols[index] = text.replace(" ", BLANK)
        return [symbol.replace("\n", "\\n") for symbol in symbols]

    @cached_property
    def prefix(self) -> list[int]:
        text = "a"
        try:
            plain = self.encode(text)
        except InputError:  # a tokenizer without an unknown token refuses text that it lacks
            text = self._names[min(self._names)]
            plain = self.encode(text)
        tokens = self._tokenizer.encode(text).ids
        begins = range(len(tokens) - len(plain) + 1)
        return tokens[: next((begin for begin in begins if tokens[begin : begin + len(plain)] == plain), 0)]

    def encode(self, text: str) -> list[int]:
        return self._encode(text).ids

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def _encode(self, text: str) -> Encoding:
        with library_errors("tokenizers", FAILURE, REMEDY):
            return self._tokenizer.encode(replace_surrogates(text), add_special_tokens=False)

    def decode(self, indices: Sequence[int]) -> str:
        with library_errors("tokenizers", "these tokens cannot be decoded", REMEDY):
            return self._tokenizer.decode(list(indices))

    def unknown(self, text: str) -> list[str]:
        encoding = self._encode(text)
        spans = zip(encoding.ids, encoding.offsets, strict=True)
        return sorted({text[begin:end] for index, (begin, end) in spans if index == self.unknown_index})

    @property
    def tokenizer_json(self) -> str:
        return self._tokenizer.to_str(pretty=True)

    def to_json(self) -> str:
        stored = {"size": self._size, "special": self.special, "tokenizer": json.loads(self._tokenizer.to_str())}
        return json.dumps(stored)

    @classmethod
    def from_json(cls, text: str) -> "ImportedTokenizer":
        with damage_errors("tokenizer", "restore the model from a copy, or import it again"):
            stored = convert_json(parse_json(text), _StoredTokenizer)
            return cls(make_tokenizer(json.dumps(stored.tokenizer)), stored.size, stored.special)
