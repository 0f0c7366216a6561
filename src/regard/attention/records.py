"""Records: the weights of attention layers as they were kept, by the layer's name.

A layer that takes step after step goes on with its record: the parts are kept as they come, and joined when the
record is asked for, so that a long generation costs no more than its weights.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from regard.attention.inside import Inside
from regard.attention.layer_record import Kind, Part, Parts, Record
from regard.errors import InputError

Tokens = Callable[[str, Kind | None, int, int], tuple[list[list[str]] | None, list[list[str]] | None, bool]]
"""What returns the names of queries and keys of a layer, of each input: by its name, its kind, and their numbers;
None where there are none. The last one says whether queries are named by what is written there."""


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

    It fills as the model runs. `regard.make_maps(records)` shows it.
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
