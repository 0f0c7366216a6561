"""Labels: the tokens of what a model was given, of every layer and input its own.

Which tokens a layer reads is seen from what the model around it was given, not from its name. Whatever marks the
pieces of words in a tokenizer's vocabulary (`▁`, `Ġ` of bytes, `##`, `</w>`), a label that begins a word begins
with `▁`.
"""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

BLANK = "▁"
BYTES, CONTINUED, ENDED = "Ġ", "##", "</w>"
PAD = "<pad>"


class Pieces:
    """The vocabulary of a tokenizer: of transformers (`convert_ids_to_tokens`) or tokenizers (`id_to_token`)."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    @cached_property
    def mark(self) -> str:
        """What marks pieces, by how many entries have it; empty where none does."""
        counts = dict.fromkeys((BLANK, BYTES, CONTINUED, ENDED), 0)
        for token in self.tokenizer.get_vocab():
            for mark in (BLANK, BYTES, CONTINUED):
                counts[mark] += token.startswith(mark)
            counts[ENDED] += token.endswith(ENDED)
        best = max(counts, key=lambda mark: counts[mark])
        return best if counts[best] else ""

    @cached_property
    def special(self) -> set[str]:
        """The tokens that are no text."""
        found = getattr(self.tokenizer, "all_special_tokens", None)
        return set(found or ())

    def labels(self, ids: list[int], there: list[bool] | None = None) -> list[str]:
        """Return a label for each token; `there`: False for padding."""
        labels: list[str] = []
        begins = True
        for index, token in enumerate(self._tokens(ids)):
            if there is not None and index < len(there) and not there[index]:
                labels.append(PAD)
            elif token in self.special:
                labels.append(token if token[0] + token[-1] in ("<>", "[]") else f"<{token}>")
                begins = True
            else:
                labels.append(self._label(token, begins))
                begins = token.endswith(ENDED) if self.mark == ENDED else False
        return labels

    def _tokens(self, ids: list[int]) -> list[str]:
        """Return the token of each number, which a model with a larger vocabulary may have made up."""
        if hasattr(self.tokenizer, "convert_ids_to_tokens"):
            tokens = self.tokenizer.convert_ids_to_tokens(ids)
        else:
            tokens = [self.tokenizer.id_to_token(each) for each in ids]
        return [f"[{each}]" if token is None else str(token) for each, token in zip(ids, tokens, strict=True)]

    def _label(self, token: str, begins: bool) -> str:
        """Return a piece's label; `begins`: whether it begins a word unless its mark says otherwise."""
        if self.mark == CONTINUED:
            return token.removeprefix(CONTINUED) if token.startswith(CONTINUED) else BLANK + token
        if self.mark == ENDED:
            return (BLANK if begins else "") + token.removesuffix(ENDED)
        if self.mark == BYTES:
            text = _text_of_bytes(token)
            return BLANK + text.lstrip(" ") if begins or text.startswith(" ") else text
        return BLANK + token if self.mark and begins and not token.startswith(BLANK) else token


def _text_of_bytes(token: str) -> str:
    """Return the text of a token of bytes, each of which the vocabulary writes as a printable character."""
    found = bytes(_BYTE[each] for each in token if each in _BYTE)
    return found.decode("utf-8", errors="replace").replace("\n", "\\n")


def _printable() -> dict[str, int]:
    """Return the byte behind each character, as GPT-2 (Radford et al. 2019) maps them."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTE = _printable()


def is_inside(name: str, model: str) -> bool:
    """Say whether a module is a model, or inside it."""
    return not model or name == model or name.startswith(f"{model}.")


def _present(mask: Any, count: int, start: int) -> Tensor | None:
    """Return which of `count` tokens a mask calls present, (B, T): also a mask by query, or one for each kind of
    layers, as generation makes for a static cache; None where it does not say, as in later steps, whose window
    moves."""
    if isinstance(mask, dict):
        mask = next((each for each in mask.values() if isinstance(each, Tensor)), None)
    if isinstance(mask, Tensor) and mask.dim() == 4 and not start:
        mask = (mask if mask.dtype == torch.bool else mask >= 0).any(1).any(1)[:, :count]
    return mask if isinstance(mask, Tensor) and mask.dim() == 2 else None


class Read:
    """What each model inside was given, by its name: tokens (B, T), and which of them are there."""

    def __init__(self, pieces: Pieces | None, virtual: int = 0) -> None:
        self.pieces = pieces
        self.virtual = [f"<prompt {step}>" for step in range(virtual)]
        """Names of the learned steps before each input."""
        self.tokens: dict[str, Tensor] = {}
        self.there: dict[str, Tensor] = {}
        self.going_on: set[str] = set()
        """Those that were given the tokens of some sequences one after the other."""

    def given(self, name: str, tokens: Tensor, there: Tensor | None, start: int) -> None:
        """Note what a model is given: from step `start` on, after what it was given before."""
        before = self.tokens.get(name)
        if start and before is not None and len(before) == len(tokens):
            tokens = torch.cat([before[:, :start], tokens], dim=1)
            self.going_on.add(name)
        elif not start:
            self.going_on.discard(name)
        self.tokens[name] = tokens.detach()
        here = _present(there, tokens.shape[1], start)
        if here is not None and self.virtual:
            here = here[:, -tokens.shape[1] :]
        known = self.there.pop(name, None)
        if here is None and start and known is not None and len(known) == len(tokens):
            here = known
        if here is not None:
            self.there[name] = here

    def cut(self, model: str, count: int) -> None:
        """Forget all tokens of a model, and of those inside, from `count` on: they were taken back."""
        for name in self.going_on:
            if is_inside(name, model):
                self.tokens[name] = self.tokens[name][:, :count]

    def result(self, sequences: Tensor) -> None:
        """Note what came out of a beam, in the place of its hypotheses."""
        for name in self.going_on:
            self.tokens[name] = sequences
            self.there.pop(name, None)

    def of(
        self, layer: str, kind: str | None, queries: int, keys: int
    ) -> tuple[list[list[str]] | None, list[list[str]] | None]:
        """Return the labels of a layer's queries and keys, of each input; None where lengths differ."""
        around = [name for name in self.tokens if not name or layer.startswith(f"{name}.")]
        around.sort(key=len, reverse=True)
        others = [name for name in self.tokens if name not in around]
        readers = [*others, *around] if kind == "cross" else around
        return self._labels(around, queries), self._labels(readers, keys)

    def _fits(self, name: str, count: int) -> bool:
        return count <= self.tokens[name].shape[1] <= count + (name in self.going_on)

    def _labels(self, names: list[str], count: int) -> list[list[str]] | None:
        pieces = self.pieces
        name = next((name for name in names if self._fits(name, count)), None)
        if pieces is None:
            return None
        if name is None:
            found = self._labels(names, count - len(self.virtual)) if 0 < len(self.virtual) < count else None
            return found and [[*self.virtual, *labels] for labels in found]
        there = self.there.get(name)
        rows = self.tokens[name].tolist()
        masks = [None] * len(rows) if there is None else (there != 0).tolist()
        return [pieces.labels(row[:count], mask) for row, mask in zip(rows, masks, strict=True)]
