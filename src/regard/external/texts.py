"""Texts as inputs of a transformers model: token tensors, and labels of the tokens.

Tokenizers mark the pieces of words in different ways (`▁`, `Ġ` of byte-level BPE, `##`, `</w>`). Labels use one:
a label that begins a word begins with `▁`.
"""

import inspect
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import InputError, shorten
from regard.external.modules import find_device
from regard.libraries import library_errors

WORD_START = "▁"
BYTE_LEVEL, CONTINUATION, WORD_END = "Ġ", "##", "</w>"
PAD = "<pad>"
LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len")
"""Config attributes with the largest number of tokens."""
DEFAULT_NEW_TOKENS = 40
"""Largest number of generated tokens if neither the model nor the user sets one."""


def forward_parameters(model: nn.Module) -> set[str]:
    """Return the names of the parameters of a model's `forward`."""
    return set(inspect.signature(model.forward).parameters)


class TokenLabeler:
    """Labels for token ids, from a tokenizer of transformers or of tokenizers."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    @cached_property
    def mark(self) -> str:
        """The mark of pieces that most entries of the vocabulary have; empty if none has one."""
        counts = dict.fromkeys((WORD_START, BYTE_LEVEL, CONTINUATION, WORD_END), 0)
        for token in self.tokenizer.get_vocab():
            for mark in (WORD_START, BYTE_LEVEL, CONTINUATION):
                counts[mark] += token.startswith(mark)
            counts[WORD_END] += token.endswith(WORD_END)
        best = max(counts, key=lambda mark: counts[mark])
        return best if counts[best] else ""

    @cached_property
    def special(self) -> set[str]:
        """Special tokens, which are no text."""
        return set(getattr(self.tokenizer, "all_special_tokens", None) or ())

    def labels(self, ids: list[int], present: list[bool] | None = None) -> list[str]:
        """Return a label for each token; `present`: False for padding."""
        labels: list[str] = []
        begins = True
        for index, token in enumerate(self._tokens(ids)):
            if present is not None and index < len(present) and not present[index]:
                labels.append(PAD)
            elif token in self.special:
                labels.append(token if token[0] + token[-1] in ("<>", "[]") else f"<{token}>")
                begins = True
            else:
                labels.append(self._label(token, begins))
                begins = token.endswith(WORD_END) if self.mark == WORD_END else False
        return labels

    def _tokens(self, ids: list[int]) -> list[str]:
        """Return the token of each id; the vocabulary of a model may be larger than that of its tokenizer."""
        if hasattr(self.tokenizer, "convert_ids_to_tokens"):
            tokens = self.tokenizer.convert_ids_to_tokens(ids)
        else:
            tokens = [self.tokenizer.id_to_token(number) for number in ids]
        pairs = zip(ids, tokens, strict=True)
        return [f"[{number}]" if token is None else str(token) for number, token in pairs]

    def _label(self, token: str, begins: bool) -> str:
        """Return the label of a piece; `begins`: whether it begins a word unless its mark says otherwise."""
        if self.mark == CONTINUATION:
            return token.removeprefix(CONTINUATION) if token.startswith(CONTINUATION) else WORD_START + token
        if self.mark == WORD_END:
            return (WORD_START if begins else "") + token.removesuffix(WORD_END)
        if self.mark == BYTE_LEVEL:
            text = _decode_bytes(token)
            return WORD_START + text.lstrip(" ") if begins or text.startswith(" ") else text
        return WORD_START + token if self.mark and begins and not token.startswith(WORD_START) else token


def _decode_bytes(token: str) -> str:
    """Return the text of a byte-level token, whose vocabulary writes each byte as a printable character."""
    text = bytes(_BYTES[character] for character in token if character in _BYTES)
    return text.decode("utf-8", errors="replace").replace("\n", "\\n")


def _byte_by_character() -> dict[str, int]:
    """Return the byte of each printable character, as GPT-2 maps them (Radford et al. 2019)."""
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + index): byte for index, byte in enumerate(others)}


_BYTES = _byte_by_character()


class TextEncoder:
    """Makes model inputs of texts, with a tokenizer of transformers or of tokenizers."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    @cached_property
    def labeler(self) -> TokenLabeler:
        """Labels of the tokens."""
        return TokenLabeler(self.tokenizer)

    def tensors(self, model: Any, text: Any) -> dict[str, Any]:
        """Return the inputs of a model for a text, (1, T); raises `InputError` for a text that it cannot take."""
        if not isinstance(text, str):
            raise InputError(f"input is of type {type(text).__name__}: give a text")
        with self._one_line_errors("tokenize this text"):
            if callable(self.tokenizer):
                encoded = dict(self.tokenizer(text, return_tensors="pt"))
            else:
                ids = torch.tensor([self.tokenizer.encode(text).ids])
                encoded = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        count = encoded["input_ids"].shape[-1]
        if not count:
            raise InputError("input is empty: type a text")
        config = getattr(model, "config", None)
        most = next((getattr(config, name) for name in LENGTHS if getattr(config, name, None)), None)
        if most is not None and count > most:
            raise InputError(f"input has {count:,} tokens, more than the {most:,} of the model: shorten it")
        self._check_vocabulary(model, encoded["input_ids"])
        device, parameters = find_device(model), forward_parameters(model)
        return {name: ids.long().to(device) for name, ids in encoded.items() if name in parameters}

    def _check_vocabulary(self, model: Any, tokens: Tensor) -> None:
        """Raise `InputError` for tokens without an embedding: the tokenizer belongs to another model."""
        size, largest = getattr(getattr(model, "config", None), "vocab_size", None), int(tokens.max())
        if isinstance(size, int) and largest >= size:
            token = self.labels([largest])[0]
            raise InputError(
                f"token {largest} ({token}) is beyond the model's vocabulary of {size:,}: give its own tokenizer"
            )

    def target(self, model: nn.Module, text: str) -> Tensor:
        """Return the tokens (1, T) of a target, with its end token."""
        with self._one_line_errors("tokenize this target"):
            if callable(self.tokenizer):
                ids = self.tokenizer(text_target=text)["input_ids"]
            else:
                ids = self.tokenizer.encode(text).ids
        if not ids:
            raise InputError("target is empty: type one, or leave it out")
        tokens = torch.tensor([ids], device=find_device(model))
        self._check_vocabulary(model, tokens)
        return tokens

    def target_ids(self, text: str) -> list[int]:
        """Return the tokens of a target or a continuation, without special tokens."""
        with self._one_line_errors("tokenize this target"):
            if not callable(self.tokenizer):
                return list(self.tokenizer.encode(text, add_special_tokens=False).ids)
            return list(self.tokenizer(text_target=text, add_special_tokens=False)["input_ids"])

    def labels(self, ids: list[int]) -> list[str]:
        """Return a label for each token."""
        with self._one_line_errors("label its tokens"):
            return self.labeler.labels(ids)

    def decode(self, ids: list[int]) -> str:
        """Return the text of some tokens, without special tokens."""
        with self._one_line_errors("decode tokens"):
            text: str = self.tokenizer.decode(ids, skip_special_tokens=True)
            return text.strip()

    def _one_line_errors(self, action: str) -> AbstractContextManager[None]:
        """Turn exceptions of the tokenizer into one line; `action`: what it cannot do."""
        is_fast = not callable(self.tokenizer) or getattr(self.tokenizer, "backend_tokenizer", None) is not None
        name = getattr(self.tokenizer, "name_or_path", "") or "given"
        return library_errors(
            "tokenizers" if is_fast else "transformers",
            f"tokenizer {name!r} cannot {action}",
            "give another text, or repair its files",
        )

    def is_special(self, tokens: Tensor) -> Tensor:
        """Return which tokens are special, (1, T) bool."""
        special = torch.tensor(sorted(getattr(self.tokenizer, "all_special_ids", ())), device=tokens.device)
        return torch.isin(tokens, special)

    def max_new_tokens(self, model: Any) -> int:
        """Return the largest number of tokens of a model's answer."""
        config = model.generation_config
        most = config.max_new_tokens or config.max_length or DEFAULT_NEW_TOKENS
        if not isinstance(most, int) or most < 1:
            raise InputError(f"generation_config has length {shorten(str(most))}: set a whole number above 0")
        return most if config.max_new_tokens else min(most, DEFAULT_NEW_TOKENS)
