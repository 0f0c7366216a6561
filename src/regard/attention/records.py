"""Records: the weights of attention layers as they were kept, by the layer's name."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError


@dataclass(frozen=True, kw_only=True, repr=False)
class Record:
    """What one attention layer did for one batch, in its last forward pass, or over all steps of a generation."""

    name: str
    """The layer's dotted name in the model."""
    weights: Tensor
    """(B, H, Tq, Tk), detached; every row sums to 1 over the keys it may see, or to 0 where it sees none
    (and not quite to 1 where dropout was active). Only the heads and rows that were asked for."""
    mask: Tensor | None
    """What might be attended, True = yes, broadcastable to all heads and rows; None where everything might."""
    query_labels: Sequence[str] | None = None
    """Names of the queries, of the rows that were asked for."""
    key_labels: Sequence[str] | None = None
    """Names of the keys."""

    def __repr__(self) -> str:
        return f"<Record: {self.name}, weights {tuple(self.weights.shape)}>"


class Part(NamedTuple):
    """What a layer did in one call."""

    weights: Tensor
    """(B, H, Tq, Tk), of the heads and rows asked for."""
    mask: Tensor | None


@dataclass
class Parts:
    """The calls of one layer that make one record."""

    batch: int
    found: list[Part]
    next_step: int | None
    """The step with which it would go on; None where it holds all steps already."""

    def joined(self) -> Part:
        """Return all steps as one; of keys that came later, the earlier queries saw nothing."""
        if len(self.found) == 1:
            return self.found[0]
        keys = max(part.weights.shape[-1] for part in self.found)
        weights = torch.cat([_widened(part.weights, keys) for part in self.found], dim=2)
        if all(part.mask is None and part.weights.shape[-1] == keys for part in self.found):
            return Part(weights, None)
        masks = [torch.ones_like(w, dtype=torch.bool) if m is None else m.expand_as(w) for w, m in self.found]
        return Part(weights, torch.cat([_widened(mask, keys) for mask in masks], dim=2))


def _widened(rows: Tensor, keys: int) -> Tensor:
    return F.pad(rows, (0, keys - rows.shape[-1]))


@dataclass(kw_only=True)
class Recorder:
    """Collects what layers do, of all heads and query rows or of some."""

    heads: Sequence[int] | None = None
    rows: Sequence[int] | None = None
    query_labels: Sequence[str] | None = None
    key_labels: Sequence[str] | None = None
    parts: dict[str, Parts] = field(default_factory=dict)

    @property
    def partial(self) -> bool:
        """Whether only some heads or rows are asked for."""
        return self.heads is not None or self.rows is not None

    def rows_of(self, count: int, step: int | None) -> Sequence[int]:
        """Return which of `count` queries are asked for; `step`: that of all of them, None where they are all
        steps from the first on."""
        if self.rows is None:
            return range(count)
        if step is not None:
            return range(count) if step in self.rows else range(0)
        check_indices("rows", self.rows, count)
        return self.rows

    def select(self, per_query: Tensor, step: int | None = None) -> Tensor:
        """Take the heads and rows asked for of (B, H, Tq, any)."""
        per_query = self.select_heads(per_query)
        if self.rows is None:
            return per_query
        return per_query[:, :, list(self.rows_of(per_query.shape[2], step))]

    def select_heads(self, per_head: Tensor) -> Tensor:
        """Take the heads asked for of (B, H, any, any)."""
        if self.heads is None:
            return per_head
        check_indices("heads", self.heads, per_head.shape[1])
        return per_head[:, list(self.heads)]

    def keep(self, name: str, weights: Tensor, mask: Tensor | None, step: int | None = None) -> None:
        """Store weights (B, H, Tq, Tk), of which the heads and rows asked for have been selected.

        A layer that is called with the step after the last one goes on with its record, if it has the same batch
        and one query in each; otherwise its record begins anew.
        """
        part, before = Part(weights.detach(), mask), self.parts.get(name)
        if step and before is not None and before.next_step == step and before.batch == len(weights):
            before.found.append(part)
            before.next_step = step + 1
            return
        goes_on = step is not None and weights.shape[2] <= 1
        self.parts[name] = Parts(len(weights), [part], step + 1 if goes_on and step is not None else None)

    def record_of(self, name: str) -> Record:
        """Return the record of a layer that has run."""
        weights, mask = self.parts[name].joined()
        queries = self.query_labels
        if queries is not None and self.rows is not None:
            queries = [queries[row] for row in self.rows]
        return Record(name=name, weights=weights, mask=mask, query_labels=queries, key_labels=self.key_labels)


class Records(Mapping[str, Record]):
    """What the attention layers of a model did, by the layer's name; `.layers` may be left out of a name.

    It fills as the model runs. `regard.maps_of(records)` shows it.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __getitem__(self, name: str) -> Record:
        for each in self._recorder.parts:
            if name in (each, short_name(each)):
                return self._recorder.record_of(each)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._recorder.parts)

    def __len__(self) -> int:
        return len(self._recorder.parts)

    def __repr__(self) -> str:
        return f"<Records: {', '.join(self) or 'nothing yet'}>"


def short_name(name: str) -> str:
    """Return a layer's name without what every stack calls its layers: `decoder.layers.0.cross` becomes
    `decoder.0.cross`."""
    return name.replace(".layers.", ".")


def check_indices(what: str, indices: Sequence[int], size: int) -> None:
    """Raise `InputError` unless all indices are from 0 to below `size`."""
    for index in indices:
        if not 0 <= index < size:
            raise InputError(f"{what} {index} is out of range: choose from 0 to {size - 1}")
