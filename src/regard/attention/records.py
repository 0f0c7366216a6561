"""Records of a model's attention layers by name, and the recorder that collects the records.

The calls of a layer in stepwise decoding are stored separately. They are joined only when the record is
requested, so that the cost of recording a long generation is linear in the number of its weights.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.arguments import public
from regard.attention.names import find_name
from regard.errors import InputError

Kind = Literal["encoder", "decoder", "cross"]
"""Kind of attention: inputs attend to inputs (encoder), outputs to outputs (decoder), or outputs to inputs (cross)."""


class _Levels(torch.autograd.Function):
    """Passes the tensors inside transforms of `torch.func` to a function; PyTorch calls `vmap` at each level."""

    @staticmethod
    def forward(receive: Callable[[Sequence[Tensor]], None], *tensors: Tensor) -> Tensor:
        receive(tensors)
        return torch.zeros(())

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Store nothing, because no gradient flows through the result."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, receive: Any, *tensors: Tensor) -> tuple[Tensor, None]:
        stacked = [
            tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip(tensors, in_dims[1:], strict=True)
        ]
        _levels.apply(receive, *(tensor.flatten(0, 1) for tensor in stacked))
        return torch.zeros(()), None


_levels: Any = _Levels


def is_transformed(tensor: Tensor) -> bool:
    return torch.func.debug_unwrap(tensor) is not tensor


def merge_levels(*tensors: Any) -> Sequence[Any]:
    """Return tensors (B, ...) of one call, or None, without the transforms of `torch.func` around the call.

    Each level of vmap, of size N, becomes part of the batch: (N B, ...). Without a transform the tensors are
    returned unchanged. All tensors broadcast to the number of dimensions of the first one, and to its batch.

    >>> batches = []
    >>> _ = torch.func.vmap(lambda states: batches.extend(merge_levels(states)) or states)(torch.zeros(3, 2, 5))
    >>> batches[0].shape
    torch.Size([6, 5])
    """
    present = [tensor for tensor in tensors if tensor is not None]
    if not any(map(is_transformed, present)):
        return tensors
    dims, batch, plain = present[0].dim(), len(present[0]), list[Tensor]()
    present = [tensor.detach()[(None,) * (dims - tensor.dim())] for tensor in present]
    _levels.apply(plain.extend, *(tensor.expand(batch, *tensor.shape[1:]) for tensor in present))
    return [None if tensor is None else plain.pop(0) for tensor in tensors]


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class Record:
    """Weights of an attention layer for one batch, from its last forward pass or all steps of decoding."""

    name: str
    """Dotted name of the layer in the model."""
    weights: Tensor
    """(B, H, Tq, Tk), detached, for the selected heads and rows. A row sums to 1 (only on average if there is
    dropout), or to 0 if the row is fully masked, unless `remark` says otherwise. Keys that come after a query
    have zero weight."""
    mask: Tensor | None
    """Broadcastable to the weights, True = may be attended; None if there is no mask."""
    query_labels: Sequence[str] | None = None
    """Names of the recorded queries; None if there are no names, or fewer names than queries."""
    key_labels: Sequence[str] | None = None
    """Names of the keys."""
    kind: Kind | None = None
    """Kind of attention: encoder, decoder or cross; None if unknown."""
    query_tokens: Sequence[Sequence[str]] | None = None
    """Names of the queries of each input, if the inputs have different names."""
    key_tokens: Sequence[Sequence[str]] | None = None
    """Names of the keys of each input."""
    written: bool = False
    """Whether the name of a query is the token that the decoder writes at this step, not the one that it reads."""
    interventions: Sequence[str] = ()
    """Descriptions of the interventions that were active during the call."""
    remark: str = ""
    """How the weights differ from those of a softmax, such as "rows need not sum to 1 (sink)"; empty for a softmax."""

    def labels_of(self, input: int) -> tuple[Sequence[str] | None, Sequence[str] | None]:
        """Return the names of the queries and of the keys for one input of the batch."""
        return (
            _of_input(self.query_tokens, input, len(self.weights)) or self.query_labels,
            _of_input(self.key_tokens, input, len(self.weights)) or self.key_labels,
        )

    def __repr__(self) -> str:
        remark = self.remark and f"; {self.remark}"
        return f"<Record: {self.name}, weights {tuple(self.weights.shape)}{remark}>"


def _of_input(tokens: Sequence[Sequence[str]] | None, input: int, batch: int) -> Sequence[str] | None:
    return None if not tokens or batch % len(tokens) else tokens[input * len(tokens) // batch]


class CallRecord(NamedTuple):
    """Selected heads and rows of one call of a layer."""

    weights: Tensor
    """(B, H, Tq, Tk)."""
    mask: Tensor | None
    steps: Sequence[int]
    """(Tq), steps of the queries."""
    first_key: int = 0
    """Step of the first key; above 0 if earlier keys have left the attention window."""


@dataclass
class CallRecords:
    """Calls of a layer that form one record, from step `first` up to, but not including, step `end`."""

    calls: list[CallRecord]
    first: int
    end: int
    whole: bool
    """Whether the parts cover all steps from step 0 on with one query each, so that the next can be appended."""
    kind: Kind | None = None
    record: Record | None = None
    """Cached record of the joined parts; None until requested."""
    interventions: Sequence[str] = ()
    """Interventions that are active when the record begins."""

    def accepts(self, part: CallRecord, step: int) -> bool:
        """Return whether `part` continues the parts: one query per sequence, the same batch, and the next `step`."""
        return self.whole and self.end == step and self.calls[-1].weights.shape[:2] == part.weights.shape[:2]

    def add(self, part: CallRecord, queries: int = 1) -> None:
        self.calls.append(part)
        self.end, self.record = self.end + queries, None

    def truncate(self, step: int) -> None:
        """Drop all steps from `step` on, because the model runs these steps again."""
        if step < self.end:
            for index, part in enumerate(self.calls):
                rows = [row for row, known in enumerate(part.steps) if known < step]
                mask = part.mask if part.mask is None or part.mask.shape[-2] == 1 else part.mask[..., rows, :]
                steps = [part.steps[row] for row in rows]
                self.calls[index] = part._replace(weights=part.weights[:, :, rows], mask=mask, steps=steps)
            self.end, self.record = step, None

    def join(self) -> CallRecord:
        """Join all calls into one part, with zero weight on the keys that come after a query."""
        if self.kind == "decoder":  # a static cache, or a cache with rejected drafts, has unused keys
            self.calls = [_without_unused_keys(part, self.end) for part in self.calls]
        if len(self.calls) > 1:
            keys = max(part.first_key + part.weights.shape[-1] for part in self.calls)
            unmasked = all(part.mask is None and part.weights.shape[-1] == keys for part in self.calls)
            weights = torch.cat([_pad_keys(part.weights, part, keys) for part in self.calls], dim=2)
            masks = [] if unmasked else [_pad_keys(part.mask, part, keys) for part in self.calls]
            mask = torch.cat(masks, dim=2) if masks else None
            steps = [step for part in self.calls for step in part.steps]
            self.calls = [CallRecord(weights, mask, steps)]
        return self.calls[0]


def _without_unused_keys(part: CallRecord, end: int) -> CallRecord:
    """Return a part without the keys from `end` on if the weights of these keys are all zero."""
    count = max(end - part.first_key, 0)
    weights = part.weights if part.mask is None else part.weights * part.mask
    if count >= weights.shape[-1] or weights[..., count:].any():
        return part
    mask = part.mask if part.mask is None or part.mask.shape[-1] == 1 else part.mask[..., :count]
    return part._replace(weights=part.weights[..., :count], mask=mask)


def _pad_keys(rows: Tensor | None, part: CallRecord, keys: int) -> Tensor:
    """Return the weights or the mask of a call for all keys; a call without a mask may attend to all its keys."""
    rows = torch.ones_like(part.weights, dtype=torch.bool) if rows is None else rows.expand_as(part.weights)
    return F.pad(rows, (part.first_key, keys - rows.shape[-1] - part.first_key))


Tokens = Callable[[str, Kind | None, int, int], tuple[list[list[str]] | None, list[list[str]] | None, bool]]
"""Function of a layer's name, its kind, its number of queries and its number of keys. Returns the names of
queries and keys for each input, or None, and whether the name of a query is the token written at this step."""


@dataclass(kw_only=True)
class Recorder:
    """Stores the weights of layers, for all or for selected heads and query rows."""

    heads: Sequence[int] | None = None
    rows: Sequence[int] | None = None
    query_labels: Sequence[str] | None = None
    key_labels: Sequence[str] | None = None
    tokens: Tokens | None = None
    parts: dict[str, CallRecords] = field(default_factory=dict)
    name_call: Callable[[str, int | None], str | None] = lambda name, step: name
    """Function of a layer's name and the decoding step; returns the name of the call, such as `name#1` for its
    second call in a pass, or None if the call is not recorded."""
    interventions: Callable[[], Sequence[str]] = tuple
    """Function that returns the active interventions."""
    remarks: dict[str, str] = field(default_factory=dict)
    """By layer name: `Record.remark`."""

    @property
    def partial(self) -> bool:
        """Whether only some heads or rows are selected."""
        return self.heads is not None or self.rows is not None

    def rows_of(self, queries: int, step: int | None) -> Sequence[int]:
        """Return the indices of the selected rows of a call with `queries` rows.

        `step`: decoding step of the query, or None if the queries cover the whole sequence.
        """
        if self.rows is None:
            return range(queries)
        if step is not None:
            return range(queries) if step in self.rows else range(0)
        check_indices("rows", self.rows, queries)
        return self.rows

    def select(self, per_query: Tensor, step: int | None = None) -> Tensor:
        """Return the selected heads and rows of a tensor (B, H, Tq, any)."""
        per_query = self.select_heads(per_query)
        if self.rows is None:
            return per_query
        return per_query[:, :, list(self.rows_of(per_query.shape[2], step))]

    def select_heads(self, per_head: Tensor) -> Tensor:
        """Return the selected heads of a tensor (B, H, any, any)."""
        if self.heads is None:
            return per_head
        check_indices("heads", self.heads, per_head.shape[1])
        return per_head[:, list(self.heads)]

    def keep(self, name: str, weights: Tensor, mask: Tensor | None, *, queries: int, step: int | None = None) -> None:
        """Store weights (B, H, Tq, Tk) of the selected heads and rows of a layer's call.

        `queries`: number of queries before selection. A step extends the record of all earlier steps of the
        same batch. In all other cases, a new record begins. Several queries at one step also begin a new
        record, because they are hypotheses of a beam, whose order changes from step to step.
        """
        call_name = self.name_call(name, step)
        if call_name is None:
            return
        name, rows = call_name, self.rows_of(queries, step)
        if not step:
            self.drop_repeated(name)
        parts = self.parts.get(name)
        weights, mask = merge_levels(weights, mask)
        # Detached, so that a record does not keep the graph of the pass in memory.
        part = CallRecord(weights.detach(), mask, rows if step is None else [step] * len(rows))
        if step and queries == 1 and parts is not None and parts.accepts(part, step):
            parts.add(part)
            return
        first, count = step or 0, queries if step is None else 1
        self.parts[name] = CallRecords(
            [part], first, first + count, whole=not first and count == queries, interventions=self.interventions()
        )

    def drop_repeated(self, name: str) -> None:
        """Drop the numbered calls of a layer in the last pass, because a new pass begins."""
        for repeated in [key for key in self.parts if key.startswith(f"{name}#")]:
            del self.parts[repeated]

    def go_on(self, name: str, part: CallRecord, *, queries: int, start: int, kind: Kind | None = None) -> None:
        """Append a forward pass over `queries` steps from `start` on to the record of the earlier steps.

        A pass that starts at 0, or after steps that were not recorded, begins a new record.
        """
        part, parts = part._replace(weights=part.weights.detach()), self.parts.get(name)
        follows = start and parts is not None and parts.first <= start <= parts.end
        if follows and parts and parts.calls[-1].weights.shape[:2] == part.weights.shape[:2]:
            parts.truncate(start)
            parts.add(part, queries)
            return
        self.parts[name] = CallRecords(
            [part], start, start + queries, whole=not start, kind=kind, interventions=self.interventions()
        )

    def record_of(self, name: str) -> Record:
        """Return the record of a layer that has run.

        Raises `InputError` for a row that is not among the recorded steps.
        """
        parts = self.parts[name]
        if parts.record is None:
            part = self._in_order(parts)
            labels = self.query_labels
            if labels is not None and not (parts.whole and self.rows is None):
                enough = max(part.steps, default=-1) < len(labels)
                labels = [labels[step] for step in part.steps] if enough else None
            queries, keys, written = None, None, False
            if self.tokens is not None:
                queries, keys, written = self.tokens(name, parts.kind, parts.end, part.weights.shape[-1])
            if queries is not None:
                queries = [[tokens[step] for step in part.steps] for tokens in queries]
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
                remark=self.remarks.get(name, ""),
            )
        return parts.record

    def _in_order(self, parts: CallRecords) -> CallRecord:
        """Join all parts, with the rows in the order of `rows`."""
        part = parts.join()
        weights, mask, steps = part.weights, part.mask, part.steps
        if self.rows is None or list(steps) == list(self.rows):
            return part
        check_indices("rows", self.rows, parts.end, first=parts.first)
        if not parts.whole:
            return part
        row_of_step = {step: row for row, step in enumerate(steps)}
        order = [row_of_step[step] for step in self.rows]
        return CallRecord(weights[:, :, order], None if mask is None else mask[:, :, order], self.rows)


@public
class Records(Mapping[str, Record]):
    """Records of a model's attention layers by layer name; `.layers` may be omitted from a name.

    Records are added as the model runs. `regard.make_maps(records)` shows the records.
    """

    # Nothing that the recorder refers to refers back to it, so that dropped records are freed at once, without
    # the garbage collector.
    def __init__(self, recorder: Recorder, left_out: Callable[[], dict[str, str]] = dict) -> None:
        self._recorder, self._left_out = recorder, left_out

    def __getitem__(self, name: str) -> Record:
        known = find_name(name, self._recorder.parts)
        if known is None:
            raise KeyError(name)
        return self._recorder.record_of(known)

    def __iter__(self) -> Iterator[str]:
        return iter(self._recorder.parts)

    def __len__(self) -> int:
        return len(self._recorder.parts)

    @property
    def left_out(self) -> dict[str, str]:
        """Layers that ran without a record, and the reason for each layer.

        Such layers have no softmax attention (in hybrid models), or their attention code cannot be captured.

            records.left_out["model.layers.0.mixer"]  # 'Mamba2Mixer without softmax attention'
        """
        return self._left_out()

    def __repr__(self) -> str:
        left_out = describe_left_out(self.left_out)
        return f"<Records: {', '.join(self) or 'nothing yet'}{left_out and f'; {left_out}'}>"


def _names_by(texts: Mapping[str, str]) -> dict[str, list[str]]:
    return {text: [name for name, other in texts.items() if other == text] for text in dict.fromkeys(texts.values())}


def describe_left_out(left_out: Mapping[str, str]) -> str:
    """Return one line that lists the layers without a record by reason, or an empty string.

    >>> describe_left_out({"encoder.layers.0": "a linear layer"})
    'not recorded: encoder.layers.0 (a linear layer)'
    """
    groups = [f"{', '.join(layers)} ({reason})" for reason, layers in _names_by(left_out).items()]
    return f"not recorded: {'; '.join(groups)}" if groups else ""


def describe_remarks(remarks: Mapping[str, str]) -> str:
    """Return one line with the remarks on all layers, or an empty string."""
    layers = _names_by(remarks)
    if len(layers) == 1:
        return next(iter(layers))
    return "; ".join(f"{', '.join(names)}: {remark}" for remark, names in layers.items() if remark)


def check_indices(what: str, indices: Sequence[int], end: int, *, first: int = 0) -> None:
    """Raise `InputError` unless all indices are at least `first` and less than `end`."""
    for index in indices:
        if not first <= index < end:
            raise InputError(f"{what} {index} is out of range: choose from {first} to {end - 1}")
