"""The record of an attention layer, which joins the parts recorded at the steps of a decoder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.arguments import public

Kind = Literal["encoder", "decoder", "cross"]
"""Kind of attention: inputs attend to inputs (encoder), outputs to outputs (decoder), or outputs to inputs
(cross)."""


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
    """Weights of an attention layer for one batch, from its last forward pass or from all steps of stepwise
    decoding."""

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
    """Whether the name of a query is the token that the decoder writes at this step, instead of the token that
    it reads."""
    interventions: Sequence[str] = ()
    """Descriptions of the interventions that were active during the call."""
    remark: str = ""
    """What distinguishes the weights from those of a softmax, such as "rows need not sum to 1 (sink)"; empty for
    a softmax."""

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
    """Whether the parts cover all steps from step 0 on with one query per step, so that the next step can be
    appended."""
    kind: Kind | None = None
    record: Record | None = None
    """Cached record of the joined parts; None until requested."""
    interventions: Sequence[str] = ()
    """Interventions that are active when the record begins."""

    def accepts(self, part: CallRecord, step: int) -> bool:
        """Return whether `part` has one query per sequence, the same batch size, and a `step` that continues
        the parts."""
        return self.whole and self.end == step and self.calls[-1].weights.shape[:2] == part.weights.shape[:2]

    def add(self, part: CallRecord, queries: int = 1) -> None:
        self.calls.append(part)
        self.end, self.record = self.end + queries, None

    def truncate(self, step: int) -> None:
        """Drop all steps from `step` on, because the model runs these steps again."""
        if step < self.end:
            self.calls = [_before(part, step) for part in self.calls]
            self.end, self.record = step, None

    def join(self) -> CallRecord:
        """Join all calls into one part, with zero weight on the keys that come after a query."""
        if self.kind == "decoder":  # a static cache, or a cache with rejected drafts, has unused keys
            self.calls = [_without_unused_keys(part, self.end) for part in self.calls]
        if len(self.calls) > 1:
            keys = max(part.first_key + part.weights.shape[-1] for part in self.calls)
            unmasked = all(part.mask is None and part.weights.shape[-1] == keys for part in self.calls)
            weights = torch.cat([_pad_keys(part.weights, part, keys) for part in self.calls], dim=2)
            masks = [] if unmasked else [_pad_keys(_full_mask(part), part, keys) for part in self.calls]
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


def _full_mask(part: CallRecord) -> Tensor:
    if part.mask is None:
        return torch.ones_like(part.weights, dtype=torch.bool)
    return part.mask.expand_as(part.weights)


def _pad_keys(rows: Tensor, part: CallRecord, keys: int) -> Tensor:
    return F.pad(rows, (part.first_key, keys - rows.shape[-1] - part.first_key))


def _before(part: CallRecord, end: int) -> CallRecord:
    rows = [row for row, step in enumerate(part.steps) if step < end]
    mask = part.mask if part.mask is None or part.mask.shape[-2] == 1 else part.mask[..., rows, :]
    return part._replace(weights=part.weights[:, :, rows], mask=mask, steps=[part.steps[row] for row in rows])
