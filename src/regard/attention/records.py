"""Records: the weights of attention layers as they were kept, by the layer's name.

A layer that takes step after step goes on with its record: the parts are kept as they come, and joined when the
record is asked for, so that a long generation costs no more than its weights.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attention.inside import Inside, joined
from regard.errors import InputError

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
    inside: Inside | None = None
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


Tokens = Callable[[str, Kind | None, int, int], tuple[list[list[str]] | None, list[list[str]] | None, bool]]
"""What returns the names of queries and keys of a layer, of each input: by its name, its kind, and their numbers;
None where there are none. The last one says whether queries are named by what is written there."""


class Part(NamedTuple):
    """What a layer did in one call, of the heads and rows asked for."""

    weights: Tensor
    """(B, H, Tq, Tk)."""
    mask: Tensor | None
    steps: Sequence[int]
    """(Tq), at which its queries stand."""
    first_key: int = 0
    """The step of its first key: of a window's, those before are gone."""
    inside: Inside | None = None


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


@dataclass(kw_only=True)
class Recorder:
    """Collects what layers do, of all heads and query rows or of some."""

    heads: Sequence[int] | None = None
    rows: Sequence[int] | None = None
    query_labels: Sequence[str] | None = None
    key_labels: Sequence[str] | None = None
    tokens: Tokens | None = None
    inside: bool = False
    """Whether more than the weights is kept, of Regard's own layers."""
    parts: dict[str, Parts] = field(default_factory=dict)
    interventions: Callable[[], Sequence[str]] = tuple
    """What returns the interventions in force."""
    left_out: Callable[[], dict[str, str]] = dict
    """Returns the layers that ran and are not recorded, with the reason."""

    @property
    def partial(self) -> bool:
        """Whether only some heads or rows are asked for."""
        return self.heads is not None or self.rows is not None

    def rows_of(self, queries: int, step: int | None) -> Sequence[int]:
        """Return which of so many queries are asked for; `step`: that of all of them, None where they are all
        steps from the first on."""
        if self.rows is None:
            return range(queries)
        if step is not None:
            return range(queries) if step in self.rows else range(0)
        check_indices("rows", self.rows, queries)
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

    def keep(
        self,
        name: str,
        weights: Tensor,
        mask: Tensor | None,
        *,
        queries: int,
        step: int | None = None,
        inside: Inside | None = None,
    ) -> None:
        """Store weights (B, H, Tq, Tk), of which the heads and rows asked for have been selected.

        `queries`: how many there were before that. A step goes on with a record that holds all steps before it,
        of the same batch; otherwise the layer's record begins anew. So it does for several queries at one step:
        they are the hypotheses of a beam, which change places.
        """
        rows, before = self.rows_of(queries, step), self.parts.get(name)
        part = Part(weights.detach(), mask, rows if step is None else [step] * len(rows))
        if self.inside and inside is not None:
            part = part._replace(inside=inside.detach())
        if step and queries == 1 and before is not None and before.may_add(part, step):
            before.add(part)
            return
        first, count = step or 0, queries if step is None else 1
        self.parts[name] = Parts(
            [part], first, first + count, whole=not first and count == queries, interventions=self.interventions()
        )

    def go_on(self, name: str, part: Part, *, queries: int, start: int, kind: Kind | None = None) -> None:
        """Store what a layer did in a pass over `queries` steps from `start` on, after those before them.

        A pass that starts at 0, or after steps that nobody saw, begins the layer's record anew.
        """
        part, before = part._replace(weights=part.weights.detach()), self.parts.get(name)
        known = start and before is not None and before.first <= start <= before.end
        if known and before and before.found[-1].weights.shape[:2] == part.weights.shape[:2]:
            before.forget(start)
            before.add(part, queries)
            return
        self.parts[name] = Parts(
            [part], start, start + queries, whole=not start, kind=kind, interventions=self.interventions()
        )

    def record_of(self, name: str) -> Record:
        """Return the record of a layer that has run.

        Raises `InputError` for a row that is not among the steps taken.
        """
        parts = self.parts[name]
        if parts.record is None:
            part = self._in_order(parts)
            labels = self.query_labels
            if labels is not None and not (parts.whole and self.rows is None):
                labels = (
                    [labels[step] for step in part.steps] if max(part.steps, default=-1) < len(labels) else None
                )
            queries, keys, written = None, None, False
            if self.tokens is not None:
                queries, keys, written = self.tokens(name, parts.kind, parts.end, part.weights.shape[-1])
            if queries is not None:
                queries = [[each[step] for step in part.steps] for each in queries]
            parts.record = Record(
                name=name,
                weights=part.weights,
                mask=part.mask,
                query_labels=labels,
                key_labels=self.key_labels,
                kind=parts.kind,
                query_tokens=queries,
                key_tokens=keys,
                written=written,
                interventions=parts.interventions,
                inside=part.inside,
            )
        return parts.record

    def _in_order(self, parts: Parts) -> Part:
        """Return all parts as one, with its rows in the order in which they were asked for."""
        joined = parts.join()
        weights, mask, steps = joined.weights, joined.mask, joined.steps
        if self.rows is None or list(steps) == list(self.rows):
            return joined
        check_indices("rows", self.rows, parts.end, first=parts.first)
        if not parts.whole:
            return joined
        place = {step: index for index, step in enumerate(steps)}
        order = [place[row] for row in self.rows]
        return Part(weights[:, :, order], None if mask is None else mask[:, :, order], self.rows)


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

    @property
    def left_out(self) -> dict[str, str]:
        """Return the layers that ran and have no record, with class and reason: of a hybrid model, those without
        softmax attention; otherwise attention by hand that is not seen.

            records.left_out["model.layers.0.mixer"]  # 'Mamba2Mixer without softmax attention'
        """
        return self._recorder.left_out()

    def __repr__(self) -> str:
        out = sentence_of(self.left_out)
        return f"<Records: {', '.join(self) or 'nothing yet'}{out and f'; {out}'}>"


def sentence_of(left_out: Mapping[str, str]) -> str:
    """Return one line that names the layers without a record, by reason; empty where there are none."""
    reasons = dict.fromkeys(left_out.values())
    names = {why: [short_name(name) for name, each in left_out.items() if each == why] for why in reasons}
    told = [f"{', '.join(some)} ({why})" for why, some in names.items()]
    return f"not recorded: {'; '.join(told)}" if told else ""


def short_name(name: str) -> str:
    """Return a layer's name without what every stack calls its layers: `decoder.layers.0.cross` becomes
    `decoder.0.cross`."""
    return name.replace(".layers.", ".")


def plain_name(name: str) -> str:
    """Return a module's name without what `torch.compile` calls the module that it wraps."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def check_indices(what: str, indices: Sequence[int], end: int, *, first: int = 0) -> None:
    """Raise `InputError` unless all indices are from `first` to below `end`."""
    for index in indices:
        if not first <= index < end:
            raise InputError(f"{what} {index} is out of range: choose from {first} to {end - 1}")
