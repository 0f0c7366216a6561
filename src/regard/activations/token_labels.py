"""Label the queries and keys of every layer with the tokens that it reads or writes.

The tokens that a layer reads follow from the inputs of the enclosing model, not from the layer's name.

Tokenizers mark the pieces of words in different ways (`▁`, `Ġ` of byte-level BPE, `##`, `</w>`). Labels use a
single mark: the label of a piece that begins a word begins with `▁`.
"""

from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError

WORD_START = "▁"
BYTE_LEVEL, CONTINUATION, WORD_END = "Ġ", "##", "</w>"
PAD = "<pad>"
NEXT = "<next>"
"""Label of a step at which a model without logits would write an unknown token."""
UNKNOWN = -1
Labels = list[list[str]]
"""Labels for each input of a batch."""


class TokenLabeler:
    """Labels for token ids, from a tokenizer of transformers or of the tokenizers package."""

    def __init__(self, tokenizer: Any) -> None:
        if not any(hasattr(tokenizer, name) for name in ("get_vocab", "convert_ids_to_tokens", "id_to_token")):
            raise InputError(f"tokenizer is of type {type(tokenizer).__name__}: give a tokenizer of transformers")
        self.tokenizer = tokenizer

    @cached_property
    def mark(self) -> str:
        """The most frequent word mark in the vocabulary; empty if no piece has a mark."""
        counts = dict.fromkeys((WORD_START, BYTE_LEVEL, CONTINUATION, WORD_END), 0)
        for token in self.tokenizer.get_vocab():
            for mark in (WORD_START, BYTE_LEVEL, CONTINUATION):
                counts[mark] += token.startswith(mark)
            counts[WORD_END] += token.endswith(WORD_END)
        best = max(counts, key=lambda mark: counts[mark])
        return best if counts[best] else ""

    @cached_property
    def special(self) -> set[str]:
        """Special tokens, which are not text."""
        return set(getattr(self.tokenizer, "all_special_tokens", None) or ())

    def labels(self, ids: list[int], present: list[bool] | None = None, *, begins: bool = True) -> list[str]:
        """Return a label for each token; `present`: False for padding. `begins`: whether a text begins with them."""
        labels: list[str] = []
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
        """Return the label of a piece; `begins`: whether a piece without a mark begins a word."""
        if self.mark == CONTINUATION:
            return token.removeprefix(CONTINUATION) if token.startswith(CONTINUATION) else WORD_START + token
        if self.mark == WORD_END:
            return (WORD_START if begins else "") + token.removesuffix(WORD_END)
        if self.mark == BYTE_LEVEL:
            from tokenizers.decoders import ByteLevel  # slow to import, and few models need it

            text = ByteLevel().decode([token]).replace("\n", "\\n")
            return WORD_START + text.lstrip(" ") if begins or text.startswith(" ") else text
        return WORD_START + token if self.mark and begins and not token.startswith(WORD_START) else token


def is_inside(name: str, model: str) -> bool:
    """Return whether a module is a given model, or inside this model.

    >>> is_inside("encoder.layer.0", "encoder"), is_inside("encoder_norm", "encoder")
    (True, False)
    """
    return not model or name == model or name.startswith(f"{model}.")


class TokenLabels:
    """The tokens that each inner model reads and writes at each step, by model name.

    The decoder of an encoder-decoder reads one token at each step and writes the next token. Rows of the
    decoder are labeled with the written token: the next token of the sequence, or, at the last step, the label
    or the most likely token.
    """

    def __init__(self, labeler: TokenLabeler | None, prompt_steps: int = 0) -> None:
        self.labeler = labeler
        self.prompt = [f"<prompt {step}>" for step in range(prompt_steps)]
        """Labels of the learned steps before each input (prompt tuning)."""
        self.tokens: dict[str, Tensor] = {}
        """Tokens (B, T), by the name of the model that reads them."""
        self.present: dict[str, Tensor] = {}
        """(B, T) bool, True for tokens that are not padding."""
        self.kinds: dict[str, str | None] = {}
        """The kind of each recorded layer."""
        self.writers: set[str] = set()
        """Models that write the next token after each token that they read."""
        self.targets: Tensor | None = None
        """(B, T), the target tokens, or -100 where there is no target."""
        self.likely: Tensor | None = None
        """(B, T), the most likely token at each step."""
        self.padding: int | None = None
        self.continued: set[str] = set()
        """Models that receive the tokens of their sequences step by step."""

    def add_tokens(self, name: str, tokens: Tensor, mask: Any, start: int) -> None:
        """Add the tokens that a model reads from step `start` on."""
        before = self.tokens.get(name)
        if start and before is not None and len(before) == len(tokens):
            tokens = torch.cat([before[:, :start], tokens], dim=1)
            self.continued.add(name)
        elif not start:
            self.continued.discard(name)
        self.tokens[name] = tokens.detach()
        # A mask may have a row for each query, or be a dict by kind of layer, as generation builds for a static cache.
        # In later steps such masks do not show the padding, because their window moves.
        if isinstance(mask, dict):
            mask = next((part for part in mask.values() if isinstance(part, Tensor)), None)
        if isinstance(mask, Tensor) and mask.dim() == 4 and not start:
            mask = (mask if mask.dtype == torch.bool else mask >= 0).any(1).any(1)[:, : tokens.shape[1]]
        present = mask if isinstance(mask, Tensor) and mask.dim() == 2 else None
        if present is not None and self.prompt:
            present = present[:, -tokens.shape[1] :]
        known = self.present.pop(name, None)
        if present is None and start and known is not None and len(known) == len(tokens):
            present = known
        if present is not None:
            self.present[name] = present

    def cut(self, model: str, count: int) -> None:
        for name in self.continued:
            if is_inside(name, model):
                self.tokens[name] = self.tokens[name][:, :count]

    def add_logits(self, logits: Tensor, start: int) -> None:
        """Add the most likely tokens of a pass over the steps from `start` on: logits (B, T, V)."""
        likely = logits.detach().argmax(-1)
        before = self.likely if start else None
        if before is not None and len(before) == len(likely) and before.shape[1] >= start:
            likely = torch.cat([before[:, :start], likely], dim=1)
        self.likely = likely

    def add_result(self, sequences: Tensor, *, beams: bool) -> None:
        """Store generated sequences (B, T).

        If `beams` is given, its results replace the read tokens, because a beam search reorders its hypotheses.
        """
        for name in self.continued | self.writers:
            tokens = self.tokens[name]
            extends = sequences.shape[0] == len(tokens) and sequences.shape[1] == tokens.shape[1] + 1
            if beams or (extends and torch.equal(sequences[:, :-1], tokens)):
                self.tokens[name] = sequences
                if beams:
                    self.present.pop(name, None)
                self.continued.add(name)
        if beams:
            self.likely = None

    def label_layer(
        self, layer: str, kind: str | None, queries: int, keys: int
    ) -> tuple[Labels | None, Labels | None, bool]:
        """Return the labels of a layer's queries and keys, and whether the labels of queries are written tokens.

        Labels are None if no sequence of tokens has this length.
        """
        around = [name for name in self.tokens if is_inside(layer, name)]
        around.sort(key=len, reverse=True)
        query_model, query_prompt = self._find_reader(around, queries)
        # A layer that attends to another sequence does not read the tokens of its own sequence as keys.
        others = [name for name in self.tokens if name not in around]
        readers = [*others, *(name for name in around if name != query_model)] if kind == "cross" else around
        written = kind in ("cross", "decoder") and query_model is not None and self._writes(query_model)
        label = self._label_written if written else self._label_read
        rows = None if query_model is None else label(query_model, queries - query_prompt)
        key_model, key_prompt = self._find_reader(readers, keys)
        columns = None if key_model is None else self._label_read(key_model, keys - key_prompt)
        return self._add_prompt(query_prompt, rows), self._add_prompt(key_prompt, columns), written

    def _writes(self, name: str) -> bool:
        """Return whether a model is a decoder of next tokens, a causal model that also attends to another sequence."""
        kinds = {kind for layer, kind in self.kinds.items() if is_inside(layer, name)}
        return name in self.writers or {"cross", "decoder"} <= kinds

    def _find_reader(self, names: list[str], count: int) -> tuple[str | None, int]:
        """Return the innermost model that has read `count` steps, and the number of prompt steps among them."""
        for prompt in sorted({0, len(self.prompt)}):
            for name in names:
                most = count - prompt + (name in self.continued)
                if 0 < count - prompt <= self.tokens[name].shape[1] <= most:
                    return name, prompt
        return None, 0

    def _add_prompt(self, count: int, labels: Labels | None) -> Labels | None:
        return labels and [[*self.prompt[:count], *row] for row in labels]

    def _label_read(self, name: str, count: int) -> Labels:
        """Return the labels of the first `count` tokens of each input."""
        present = self.present.get(name)
        rows = [row[:count] for row in self.tokens[name].tolist()]
        return self._labels(rows, [None] * len(rows) if present is None else (present != 0).tolist())

    def _labels(self, rows: list[list[int]], masks: list[Any]) -> Labels:
        assert self.labeler is not None  # only a session with a tokenizer asks for labels
        return [self.labeler.labels(row, mask) for row, mask in zip(rows, masks, strict=True)]

    def _label_written(self, name: str, count: int) -> Labels:
        """Return the labels of the tokens that are written at the first `count` steps of each input."""
        tokens = self.tokens[name]
        present = self.present.get(name)
        if present is not None:
            present = F.pad(present, (0, tokens.shape[1] - present.shape[1]), value=1)  # new tokens are no padding
        else:
            present = torch.ones_like(tokens)
            if self.padding is not None and name not in self.continued:
                present[:, 1:] = tokens[:, 1:] != self.padding
        present = present.to(tokens.device) != 0
        following = torch.where(present, tokens, UNKNOWN)[:, 1 : count + 1]
        following = F.pad(following, (0, count - following.shape[1]), value=UNKNOWN)
        # Targets replace the next tokens; the most likely tokens are used only where the next token is unknown.
        for known, replaces in ((self.targets, True), (self.likely, False)):
            if known is not None and len(known) == len(following):
                missing = max(count - known.shape[1], 0)
                known = F.pad(known.to(tokens.device), (missing, 0), value=UNKNOWN)[:, -count:]
                following = torch.where((known >= 0) & (replaces | (following < 0)), known, following)
        rows, masks = following.tolist(), present[:, :count].tolist()
        labels = self._labels([[max(token, 0) for token in row] for row in rows], masks)
        return [
            [NEXT if token < 0 and label != PAD else label for token, label in zip(row, names, strict=True)]
            for row, names in zip(rows, labels, strict=True)
        ]
