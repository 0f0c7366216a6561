"""The record of one attention layer, and the parts that it is made of where steps come one by one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attention.trace import AttentionTrace, joined

Kind = Literal["encoder", "decoder", "cross"]
"""Who attends to whom: inputs to inputs, outputs to outputs, or outputs to inputs."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Record:
    """What one attention layer did for one batch: in its last forward pass, or in all steps that it took one by
    one."""

    name: str
    """The layer's dotted name in the model."""
    weights: Tensor
    """(B, H, Tq, Tk), detached; every row sums to 1 over the keys it may see, or to 0 where it sees none
    (and not quite to 1 where dropout was active). Only the heads and rows that were asked for. Keys that came
    after a step have no weight in it."""
    mask: Tensor | None
    """What might be attended, True = yes, broadcastable to all heads and rows; None where everything might."""
    query_labels: Sequence[str] | None = None
    """Names of the queries, of the rows that are here; None where there are none, or too few."""
    key_labels: Sequence[str] | None = None
    """Names of the keys."""
    kind: Kind | None = None
    """Who attends to whom, as the model has it; None where only the name tells."""
    query_tokens: Sequence[Sequence[str]] | None = None
    """Names of the queries of each input, where every input has its own."""
    key_tokens: Sequence[Sequence[str]] | None = None
    """Names of the keys of each input."""
    written: bool = False
    """Whether the queries' names are what is written at each step, and not what is read there."""
    interventions: Sequence[str] = ()
    """What had been done to the model when the layer ran, in words."""
    inside: AttentionTrace | None = None
    """What the weights came of and what they led to, where `record` was asked for it and the layer is Regard's:
    detached, of all steps together. A key that came after a step has the score -inf there."""

    def labels_of(self, input: int) -> tuple[Sequence[str] | None, Sequence[str] | None]:
        """Return the names of the queries and of the keys of one input of the batch."""
        return (
            _of_input(self.query_tokens, input, len(self.weights)) or self.query_labels,
            _of_input(self.key_tokens, input, len(self.weights)) or self.key_labels,
        )

    def __repr__(self) -> str:
        return f"<Record: {self.name}, weights {tuple(self.weights.shape)}>"


def _of_input(tokens: Sequence[Sequence[str]] | None, input: int, batch: int) -> Sequence[str] | None:
    """Return one input's; there may be several hypotheses for each source."""
    return None if not tokens or batch % len(tokens) else tokens[input * len(tokens) // batch]


class Part(NamedTuple):
    """What a layer did in one call, of the heads and rows asked for."""

    weights: Tensor
    """(B, H, Tq, Tk)."""
    mask: Tensor | None
    steps: Sequence[int]
    """(Tq), at which its queries stand."""
    first_key: int = 0
    """The step of its first key: of a window's, those before are gone."""
    inside: AttentionTrace | None = None


@dataclass
class Parts:
    """The calls of one layer that make one record: of the steps from `first` to before `end`."""

    found: list[Part]
    first: int
    end: int
    whole: bool
    """Whether all steps from 0 are here, of one query each, so that the next one can be added."""
    kind: Kind | None = None
    record: Record | None = None
    """Made of the parts when it was asked for."""
    interventions: Sequence[str] = ()
    """Those in force when the record began."""

    def may_add(self, part: Part, step: int) -> bool:
        """Whether a part, of one query of each sequence at `step`, comes next, for as many sequences."""
        return self.whole and self.end == step and self.found[-1].weights.shape[:2] == part.weights.shape[:2]

    def add(self, part: Part, queries: int = 1) -> None:
        """Go on with one more step, or with several at once."""
        self.found.append(part)
        self.end, self.record = self.end + queries, None

    def forget(self, step: int) -> None:
        """Forget what happened from a step on: it is taken back, and taken again."""
        if step < self.end:
            self.found = [_before(part, step) for part in self.found]
            self.end, self.record = step, None

    def join(self) -> Part:
        """Make one part of all; of keys that came later, the earlier queries saw nothing."""
        if self.kind == "decoder":  # a static cache, or one with rejected drafts, holds keys that are no steps
            self.found = [_without_empty(part, self.end) for part in self.found]
        if len(self.found) > 1:
            keys = max(part.first_key + part.weights.shape[-1] for part in self.found)
            free = all(part.mask is None and part.weights.shape[-1] == keys for part in self.found)
            weights = torch.cat([_widened(part.weights, part, keys) for part in self.found], dim=2)
            mask = None if free else torch.cat([_widened(_mask(part), part, keys) for part in self.found], dim=2)
            steps = [step for part in self.found for step in part.steps]
            insides = [part.inside for part in self.found if part.inside is not None]
            inside = joined(insides, weights, mask) if len(insides) == len(self.found) else None
            self.found = [Part(weights, mask, steps, inside=inside)]
        return self.found[0]


def _without_empty(part: Part, end: int) -> Part:
    """Return a part without the keys from `end` on, where none of them has any weight."""
    count = max(end - part.first_key, 0)
    weights = part.weights if part.mask is None else part.weights * part.mask
    if count >= weights.shape[-1] or weights[..., count:].any():
        return part
    mask = part.mask if part.mask is None or part.mask.shape[-1] == 1 else part.mask[..., :count]
    return part._replace(weights=part.weights[..., :count], mask=mask)


def _mask(part: Part) -> Tensor:
    if part.mask is None:
        return torch.ones_like(part.weights, dtype=torch.bool)
    return part.mask.expand_as(part.weights)


def _widened(rows: Tensor, part: Part, keys: int) -> Tensor:
    return F.pad(rows, (part.first_key, keys - rows.shape[-1] - part.first_key))


def _before(part: Part, end: int) -> Part:
    """Return the rows of a part that stand before a step."""
    rows = [row for row, step in enumerate(part.steps) if step < end]
    mask = part.mask if part.mask is None or part.mask.shape[-2] == 1 else part.mask[..., rows, :]
    return part._replace(weights=part.weights[:, :, rows], mask=mask, steps=[part.steps[row] for row in rows])
