"""Label the queries and keys of every layer with the tokens that it reads or writes.

Which tokens a layer reads follows from the inputs of the model around it, not from its name.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.external.texts import PAD, TokenLabeler

NEXT = "<next>"
"""Label of a step at which a model without logits would write an unknown token."""
UNKNOWN = -1
Labels = list[list[str]]
"""Labels of each input of a batch."""


def is_inside(name: str, model: str) -> bool:
    """Return whether a module is a model, or inside it."""
    return not model or name == model or name.startswith(f"{model}.")


def _is_part(layer: str, model: str) -> bool:
    return not model or layer.startswith(f"{model}.")


def _padding_mask(mask: Any, count: int, start: int) -> Tensor | None:
    """Return which of `count` tokens are no padding, (B, T); None if the mask does not show it.

    `mask` may be one by query, or one for each kind of layers, as generation builds for a static cache. In later
    steps such masks show nothing, because their window moves.
    """
    if isinstance(mask, dict):
        mask = next((part for part in mask.values() if isinstance(part, Tensor)), None)
    if isinstance(mask, Tensor) and mask.dim() == 4 and not start:
        mask = (mask if mask.dtype == torch.bool else mask >= 0).any(1).any(1)[:, :count]
    return mask if isinstance(mask, Tensor) and mask.dim() == 2 else None


class TokenLabels:
    """The tokens that each inner model reads, by its name, and what it writes at each step.

    The decoder of an encoder-decoder reads one token at each step and writes the next one. Its rows are labelled
    with the written token: the next one of the sequence, or, at the last step, the label or the most likely
    token.
    """

    def __init__(self, labeler: TokenLabeler | None, prompt_steps: int = 0) -> None:
        self.labeler = labeler
        self.prompt = [f"<prompt {step}>" for step in range(prompt_steps)]
        """Labels of the learned steps before each input (prompt tuning)."""
        self.tokens: dict[str, Tensor] = {}
        """(B, T), by the name of the model that reads them."""
        self.present: dict[str, Tensor] = {}
        """(B, T), which of the tokens are no padding."""
        self.kinds: dict[str, str | None] = {}
        """The kind of each recorded layer."""
        self.writers: set[str] = set()
        """Models that write the token after each token that they read."""
        self.targets: Tensor | None = None
        """(B, T), the tokens to write; or -100."""
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
        present = _padding_mask(mask, tokens.shape[1], start)
        if present is not None and self.prompt:
            present = present[:, -tokens.shape[1] :]
        known = self.present.pop(name, None)
        if present is None and start and known is not None and len(known) == len(tokens):
            present = known
        if present is not None:
            self.present[name] = present

    def cut(self, model: str, count: int) -> None:
        """Drop the tokens of a model, and of those inside it, from step `count` on: they were rejected."""
        for name in self.continued:
            if is_inside(name, model):
                self.tokens[name] = self.tokens[name][:, :count]

    def begin_pass(self, targets: Tensor | None, padding: int | None) -> None:
        """Set the targets of a pass of the whole model, and its padding token."""
        self.targets, self.padding = targets, padding

    def add_logits(self, logits: Tensor, start: int) -> None:
        """Add the most likely tokens of a pass over the steps from `start` on: logits (B, T, V)."""
        likely = logits.detach().argmax(-1)
        before = self.likely if start else None
        if before is not None and len(before) == len(likely) and before.shape[1] >= start:
            likely = torch.cat([before[:, :start], likely], dim=1)
        self.likely = likely

    def add_result(self, sequences: Tensor, *, beams: bool) -> None:
        """Add generated sequences (B, T). With `beams` they replace the read tokens: hypotheses change places."""
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
        """Return the labels of a layer's queries and keys, and whether the queries' are written tokens.

        Labels are None if no tokens have this length.
        """
        around = [name for name in self.tokens if _is_part(layer, name)]
        around.sort(key=len, reverse=True)
        query_model, query_prompt = self._find_reader(around, queries)
        # A layer that attends to another sequence does not read its own.
        others = [name for name in self.tokens if name not in around]
        readers = [*others, *(name for name in around if name != query_model)] if kind == "cross" else around
        written = kind in ("cross", "decoder") and query_model is not None and self._writes(query_model)
        label = self._label_written if written else self._label_read
        rows = None if query_model is None else label(query_model, queries - query_prompt)
        key_model, key_prompt = self._find_reader(readers, keys)
        columns = None if key_model is None else self._label_read(key_model, keys - key_prompt)
        is_written = written and rows is not None
        return self._add_prompt(query_prompt, rows), self._add_prompt(key_prompt, columns), is_written

    def _writes(self, name: str) -> bool:
        """Return whether a model writes next tokens: it is causal, and also attends to another sequence."""
        kinds = {kind for layer, kind in self.kinds.items() if _is_part(layer, name)}
        return name in self.writers or {"cross", "decoder"} <= kinds

    def _find_reader(self, names: list[str], count: int) -> tuple[str | None, int]:
        """Return the innermost model that has read `count` steps, and how many prompt steps these begin with."""
        for prompt in sorted({0, len(self.prompt)}):
            for name in names:
                most = count - prompt + (name in self.continued)
                if 0 < count - prompt <= self.tokens[name].shape[1] <= most:
                    return name, prompt
        return None, 0

    def _add_prompt(self, count: int, labels: Labels | None) -> Labels | None:
        return labels and [[*self.prompt[:count], *row] for row in labels]

    def _label_read(self, name: str, count: int) -> Labels | None:
        """Return the labels of the first `count` tokens of each input."""
        labeler = self.labeler
        if labeler is None:
            return None
        present = self.present.get(name)
        rows = self.tokens[name].tolist()
        masks = [None] * len(rows) if present is None else (present != 0).tolist()
        return [labeler.labels(row[:count], mask) for row, mask in zip(rows, masks, strict=True)]

    def _label_written(self, name: str, count: int) -> Labels | None:
        """Return the labels of the tokens that are written at the first `count` steps of each input."""
        labeler = self.labeler
        if labeler is None:
            return None
        tokens = self.tokens[name]
        present = self.present.get(name)
        if present is not None:
            present = F.pad(
                present, (0, tokens.shape[1] - present.shape[1]), value=1
            )  # new tokens are no padding
        else:
            present = torch.ones_like(tokens)
            if self.padding is not None and name not in self.continued:
                present[:, 1:] = tokens[:, 1:] != self.padding
        present = present.to(tokens.device) != 0
        following = torch.where(present, tokens, UNKNOWN)[:, 1 : count + 1]
        following = F.pad(following, (0, count - following.shape[1]), value=UNKNOWN)
        # Targets replace the tokens that follow; likely tokens only fill what is unknown.
        for known, replaces in ((self.targets, True), (self.likely, False)):
            if known is not None and len(known) == len(following):
                missing = max(count - known.shape[1], 0)
                known = F.pad(known.to(tokens.device), (missing, 0), value=UNKNOWN)[:, -count:]
                following = torch.where((known >= 0) & (replaces | (following < 0)), known, following)
        rows, masks = following.tolist(), present[:, :count].tolist()
        labels = [
            labeler.labels([max(token, 0) for token in row], mask) for row, mask in zip(rows, masks, strict=True)
        ]
        return [
            [NEXT if token < 0 and label != PAD else label for token, label in zip(row, names, strict=True)]
            for row, names in zip(rows, labels, strict=True)
        ]
