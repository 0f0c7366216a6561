"""Recording: keep the weights of every attention layer while a model runs.

    with record(model) as records:
        model(inputs)
    records["decoder.0.cross"].weights        # (B, H, Tq, Tk)

Attention layers derive from `Recordable`. Outside of `record` they hold no recorder and take the fused
kernel. Inside, they compute their weights explicitly and hand them over; asked for some heads or rows only,
they take the fused kernel for the output and compute just those rows beside it. The model's signature never
changes. Layers of PyTorch's own are recorded too: see `foreign`.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from torch import Tensor, nn

from regard.attention.foreign import recording_foreign
from regard.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Record:
    """What one attention layer did for one batch, in its last forward pass."""

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


@dataclass(kw_only=True)
class Recorder:
    """Collects records, of all heads and rows or of some."""

    records: dict[str, Record] = field(default_factory=dict)
    heads: Sequence[int] | None = None
    rows: Sequence[int] | None = None
    query_labels: Sequence[str] | None = None
    key_labels: Sequence[str] | None = None

    @property
    def partial(self) -> bool:
        """Whether only some heads or rows are asked for."""
        return self.heads is not None or self.rows is not None

    def select(self, per_query: Tensor) -> Tensor:
        """Take the heads and rows asked for of (B, H, Tq, any)."""
        per_query = self.select_heads(per_query)
        if self.rows is not None:
            check_indices("rows", self.rows, per_query.shape[2])
            per_query = per_query[:, :, list(self.rows)]
        return per_query

    def select_heads(self, per_head: Tensor) -> Tensor:
        """Take the heads asked for of (B, H, any, any)."""
        if self.heads is None:
            return per_head
        check_indices("heads", self.heads, per_head.shape[1])
        return per_head[:, list(self.heads)]

    def keep(self, name: str, weights: Tensor, mask: Tensor | None) -> None:
        """Store weights (B, H, Tq, Tk), of which the heads and rows asked for have been selected."""
        queries = self.query_labels
        if queries is not None and self.rows is not None:
            queries = [queries[row] for row in self.rows]
        self.records[name] = Record(
            name=name, weights=weights.detach(), mask=mask, query_labels=queries, key_labels=self.key_labels
        )


def check_indices(what: str, indices: Sequence[int], size: int) -> None:
    """Raise `InputError` unless all indices are from 0 to below `size`."""
    for index in indices:
        if not 0 <= index < size:
            raise InputError(f"{what} {index} is out of range: choose from 0 to {size - 1}")


Change = Callable[[Tensor, Tensor | None, int | None], Tensor]
"""What makes other weights (B, H, Tq, Tk) of weights, their mask and `Recordable.step`."""


class Recordable(nn.Module):
    """An attention layer whose weights can be recorded and changed: `record` and `intervene` set these for their
    duration."""

    recorder: Recorder | None = None
    record_name: str = ""
    interventions: tuple[Change, ...] = ()
    fused: bool = True
    """Whether the fused kernel may be taken; `explicit` says not to."""
    step: int | None = None
    """Step at which all queries of a call stand, where a model takes steps one by one; None where they are all
    steps from the first on."""


@contextmanager
def explicit(model: nn.Module) -> Iterator[None]:
    """Compute all weights explicitly: for what knows no fused kernel, such as `torch.func.vmap`."""
    layers = [layer for layer in model.modules() if isinstance(layer, Recordable)]
    before = [layer.fused for layer in layers]
    for layer in layers:
        layer.fused = False
    try:
        yield
    finally:
        for layer, value in zip(layers, before, strict=True):
            layer.fused = value


def find_layer(model: nn.Module, name: str) -> Recordable:
    """Return an attention layer of Regard's by its dotted name, in which `.layers` may be left out.

    Raises `InputError` where the model has no such layer.
    """
    found = {each: layer for each, layer in model.named_modules() if isinstance(layer, Recordable)}
    for each, layer in found.items():
        if name in (each, short_name(each)):
            return layer
    known = ", ".join(map(short_name, found))
    raise InputError(f"layer {name!r} is not in the model: choose {known or 'none, for it has no attention'}")


def short_name(name: str) -> str:
    """Return a layer's name without what every stack calls its layers: `decoder.layers.0.cross` becomes
    `decoder.0.cross`."""
    return name.replace(".layers.", ".")


@contextmanager
def record(
    model: nn.Module,
    *,
    layers: Collection[str] | None = None,
    heads: Sequence[int] | None = None,
    rows: Sequence[int] | None = None,
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
) -> Iterator[dict[str, Record]]:
    """Record the attention layers of `model`: yields a mapping from layer name to `Record`.

    It fills as the model runs; a layer that runs again replaces its record. `layers`, `heads` and `rows` (query
    steps) limit what is recorded, and nothing else is computed: a few rows of a long input cost a few rows.
    Labels travel with every record. Gradients flow as usual, and the outputs differ from the unrecorded ones
    by no more than the fused kernel's rounding (1e-5 in float32); with `heads` or `rows` they are identical.
    Raises `InputError` for a layer that the model has not, and, as it runs, for a head or row out of range.
    """
    recorder = Recorder(heads=heads, rows=rows, query_labels=query_labels, key_labels=key_labels)
    found = {name: layer for name, layer in model.named_modules() if isinstance(layer, Recordable)}
    with ExitStack() as stack:
        foreign = stack.enter_context(recording_foreign(model, recorder, layers, mixed=bool(found)))
        known = [*found, *foreign]
        for name in layers or ():
            if name.split("#")[0] not in (*known, *map(short_name, found)):
                raise InputError(f"layer {name!r} is not in the model: choose {', '.join(known) or 'none'}")
        for name, layer in found.items():
            if layers is None or name in layers or short_name(name) in layers:
                stack.callback(_set, layer, layer.recorder, layer.record_name)
                _set(layer, recorder, name)
        yield recorder.records


def _set(layer: Recordable, recorder: Recorder | None, name: str) -> None:
    layer.recorder, layer.record_name = recorder, name
