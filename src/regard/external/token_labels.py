"""Labels: the tokens of what a model was given, of every layer and input its own.

Which tokens a layer reads is seen from what the model around it was given, not from its name. Whatever marks the
pieces of words in a tokenizer's vocabulary (`▁`, `Ġ` of bytes, `##`, `</w>`), a label that begins a word begins
with `▁`.
"""

from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

BLANK = "▁"
BYTES, CONTINUED, ENDED = "Ġ", "##", "</w>"
PAD = "<pad>"
NEXT = "<next>"
"""Label of a step at which a model without logits would write a token that nobody knows."""
UNKNOWN = -1


class TokenLabeler:
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
    """The tokens that each model inside reads, by the model's name, and what it writes at each step.

    A decoder of an encoder-decoder reads one token at each step and writes the next one. Its rows are named by
    what it writes: the next token of the sequence, or at the last step the label or the most likely token.
    """

    def __init__(self, pieces: TokenLabeler | None, virtual: int = 0) -> None:
        self.pieces = pieces
        self.virtual = [f"<prompt {step}>" for step in range(virtual)]
        """Names of the learned steps before each input."""
        self.tokens: dict[str, Tensor] = {}
        """(B, T) by the name of the model that reads them."""
        self.there: dict[str, Tensor] = {}
        """(B, T), which of the tokens are no padding."""
        self.kinds: dict[str, str | None] = {}
        """What each layer attends to."""
        self.writers: set[str] = set()
        """Models that write what follows the tokens that they read."""
        self.labels: Tensor | None = None
        """(B, T), the tokens to write; -100 where there is none."""
        self.likely: Tensor | None = None
        """(B, T), the most likely token at each step."""
        self.padding: int | None = None
        self.going_on: set[str] = set()
        """Models that get the tokens of their sequences step by step."""

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

    def began(self, labels: Tensor | None, padding: int | None) -> None:
        """Note the labels of a pass of the whole model, and its padding token."""
        self.labels, self.padding = labels, padding

    def answered(self, logits: Tensor, start: int) -> None:
        """Note what a pass over the steps from `start` on holds for most likely: logits (B, T, V)."""
        likely = logits.detach().argmax(-1)
        before = self.likely if start else None
        if before is not None and len(before) == len(likely) and before.shape[1] >= start:
            likely = torch.cat([before[:, :start], likely], dim=1)
        self.likely = likely

    def result(self, sequences: Tensor, *, beams: bool) -> None:
        """Note what was generated, (B, T); with `beams` it replaces what was read: hypotheses change places."""
        for name in self.going_on | self.writers:
            read = self.tokens[name]
            count = read.shape[1]
            goes_on = sequences.shape[0] == len(read) and sequences.shape[1] == count + 1
            if beams or (goes_on and torch.equal(sequences[:, :-1], read)):
                self.tokens[name] = sequences
                if beams:
                    self.there.pop(name, None)
                self.going_on.add(name)
        if beams:
            self.likely = None

    def of(
        self, layer: str, kind: str | None, queries: int, keys: int
    ) -> tuple[list[list[str]] | None, list[list[str]] | None, bool]:
        """Return the labels of a layer's queries and keys, of each input, and whether the queries' say what is
        written there. Labels are None where lengths differ."""
        around = [name for name in self.tokens if _inside(layer, name)]
        around.sort(key=len, reverse=True)
        asking, learned = self._reader(around, queries)
        # A layer that reads another sequence does not read its own.
        others = [name for name in self.tokens if name not in around]
        readers = [*others, *(name for name in around if name != asking)] if kind == "cross" else around
        written = kind in ("cross", "decoder") and asking is not None and self._writes(asking)
        label = self._written if written else self._read
        rows = None if asking is None else label(asking, queries - learned)
        reading, before = self._reader(readers, keys)
        columns = None if reading is None else self._read(reading, keys - before)
        return self._after(learned, rows), self._after(before, columns), written and rows is not None

    def _writes(self, name: str) -> bool:
        """Say whether a model writes what follows: it is causal, and also reads another sequence."""
        kinds = {kind for layer, kind in self.kinds.items() if _inside(layer, name)}
        return name in self.writers or {"cross", "decoder"} <= kinds

    def _reader(self, names: list[str], count: int) -> tuple[str | None, int]:
        """Return the innermost model that has read so many steps, and how many learned steps these begin with."""
        for learned in sorted({0, len(self.virtual)}):
            for name in names:
                most = count - learned + (name in self.going_on)
                if 0 < count - learned <= self.tokens[name].shape[1] <= most:
                    return name, learned
        return None, 0

    def _after(self, learned: int, labels: list[list[str]] | None) -> list[list[str]] | None:
        """Return the labels of each input, after the names of the first learned steps."""
        return labels and [[*self.virtual[:learned], *row] for row in labels]

    def _read(self, name: str, count: int) -> list[list[str]] | None:
        """Return the labels of the first `count` tokens of each input."""
        pieces = self.pieces
        if pieces is None:
            return None
        there = self.there.get(name)
        rows = self.tokens[name].tolist()
        masks = [None] * len(rows) if there is None else (there != 0).tolist()
        return [pieces.labels(row[:count], mask) for row, mask in zip(rows, masks, strict=True)]

    def _written(self, name: str, count: int) -> list[list[str]] | None:
        """Return the labels of the tokens that are written at the first `count` steps of each input."""
        pieces = self.pieces
        if pieces is None:
            return None
        tokens = self.tokens[name]
        there = self.there.get(name)
        if there is not None:
            there = F.pad(there, (0, tokens.shape[1] - there.shape[1]), value=1)  # what came later is no padding
        else:
            there = torch.ones_like(tokens)
            if self.padding is not None and name not in self.going_on:
                there[:, 1:] = tokens[:, 1:] != self.padding
        there = there.to(tokens.device) != 0
        following = torch.where(there, tokens, UNKNOWN)[:, 1 : count + 1]
        following = F.pad(following, (0, count - following.shape[1]), value=UNKNOWN)
        for known, first in ((self.labels, True), (self.likely, False)):
            if known is not None and len(known) == len(following):
                known = F.pad(known.to(tokens.device), (max(count - known.shape[1], 0), 0), value=UNKNOWN)[
                    :, -count:
                ]
                following = torch.where((known >= 0) & (first | (following < 0)), known, following)
        rows, masks = following.tolist(), there[:, :count].tolist()
        found = [
            pieces.labels([max(each, 0) for each in row], mask) for row, mask in zip(rows, masks, strict=True)
        ]
        return [
            [NEXT if token < 0 and label != PAD else label for token, label in zip(row, labels, strict=True)]
            for row, labels in zip(rows, found, strict=True)
        ]


def _inside(layer: str, name: str) -> bool:
    return not name or layer.startswith(f"{name}.")
