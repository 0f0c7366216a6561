"""The tokenizer of an imported language model: `tokenizer.json` of Hugging Face, with its special tokens.

Unlike the vocabularies that are learned here, it keeps all indices of the model, encodes line feeds as a part of
the text, and may begin each sequence with special tokens (`prefix`). Text is never converted to special tokens.
"""

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any

import msgspec
from tokenizers import Encoding, Tokenizer

from regard.data.subwords import FAILURE, REMEDY, Index, make_tokenizer
from regard.data.vocabulary import BLANK, replace_surrogates
from regard.errors import InputError
from regard.io import DamageError, convert_json, parse_json
from regard.libraries import library_errors

SPECIAL_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")
"""Names of the special tokens in Hugging Face's configs."""


class _Stored(msgspec.Struct):
    """The JSON of an imported tokenizer."""

    size: Annotated[int, msgspec.Meta(ge=1, le=2**31)]
    special: dict[str, Index]
    tokenizer: dict[str, Any]


class ImportedTokenizer:
    """A `tokenizers.Tokenizer` for a model with `size` outputs. `special`: index of each special token, by the
    names in `SPECIAL_TOKENS`. Indices without a token, which some models have because their vocabulary was
    padded, are named `<unused INDEX>`."""

    line_feed: int | None = None
    """Token of a line feed that separates lines; None: the whole text is encoded at once."""

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
        """Token of text that the vocabulary lacks; None if there is none."""

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
        """Return the indices of a text, without `prefix`."""
        return self._encode(text).ids

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def _encode(self, text: str) -> Encoding:
        with library_errors("tokenizers", FAILURE, REMEDY):
            return self._tokenizer.encode(replace_surrogates(text), add_special_tokens=False)

    def decode(self, indices: Sequence[int]) -> str:
        """Return the text of indices, without special tokens."""
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
        """Return the tokenizer that `to_json` wrote. Raises `InputError` if the JSON is damaged."""
        try:
            stored = convert_json(parse_json(text), _Stored)
            return cls(make_tokenizer(json.dumps(stored.tokenizer)), stored.size, stored.special)
        except DamageError as error:
            raise InputError(
                f"tokenizer is damaged: {error}; restore the model from a copy, or import it again"
            ) from error
