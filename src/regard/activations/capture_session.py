"""Sessions that select attention calls of one model, and store or change their weights.

Every capture mechanism in the table of `weights` calls the same three methods of a session. `next_call_name` returns
the name of the call, `change_weights` applies interventions, and `record_call` stores an `AttentionCall`.
"""

import dataclasses
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from regard.activations.attention_axes import Axes, AxesFinder, active_probe
from regard.activations.forward_tracker import ForwardTracker
from regard.activations.token_labels import TokenLabels, is_inside
from regard.attention.interventions import Intervention
from regard.attention.names import find_name
from regard.attention.records import CallRecord, Kind, Recorder, check_indices, is_transformed, merge_levels
from regard.errors import plural

RowFunction = Callable[[Sequence[int] | slice], tuple[Tensor, Tensor | None]]


def select_rows(mask: Tensor, rows: Sequence[int] | slice) -> Tensor:
    """Return query rows of a tensor that broadcasts to weights (B, H, Tq, Tk)."""
    return mask if mask.dim() < 2 or mask.shape[-2] == 1 else mask[..., rows, :]


def row_function(weights: Tensor, mask: Tensor | None) -> RowFunction:
    """Return the function of an `AttentionCall` whose weights (B, H, Tq, Tk) are known."""
    return lambda rows: (weights[:, :, rows], None if mask is None else select_rows(mask, rows))


class AttentionInputs(NamedTuple):
    """The tensors from which a call computes its scores and contexts, connected to the autograd graph."""

    query: Tensor
    """(B, H, Tq, D)."""
    key: Tensor
    """(B, G, Tk, D)."""
    value: Tensor
    """(B, G, Tk, Dv)."""
    scale: float
    """Factor of the products of query and key."""
    biases: tuple[Tensor, ...] = ()
    """Added to the scores, broadcastable to (B, H, Tq, Tk)."""
    cap: float | None = None
    """Scores are `cap tanh(score / cap)` before biases are added; None if they are not capped."""


@dataclass(frozen=True, kw_only=True)
class AttentionCall:
    """One call of attention, whose weights can be computed row by row."""

    queries: int
    rows: RowFunction
    """Returns weights (B, H, Tq, Tk) of some queries, and a mask that broadcasts to them, True = may attend."""
    kind: Kind | None = None
    first_key: int = 0
    flat: bool = False
    """Whether the model returned weights of shape (N, Tk).

    If the layer runs more than once in a forward pass, N is the number of samples of one step.
    """
    inputs: Callable[[], AttentionInputs] | None = None
    """Returns the inputs of the call while it is recorded; None if they are unknown."""

    @classmethod
    def from_weights(cls, weights: Tensor, mask: Tensor | None, kind: Kind | None = None) -> "AttentionCall":
        """Return a call whose weights (B, H, Tq, Tk) are known."""

        return cls(queries=weights.shape[2], rows=row_function(weights, mask), kind=kind)


ROW_SUM_TOLERANCE = 1e-2
"""Largest accepted difference between 1 and the sum of a row; half precision needs this tolerance."""
BLOCK = 64
"""Rows per block if only some weights are stored. More rows would need more memory and save no time."""
HALF = (torch.bfloat16, torch.float16)
# Float64 has the tolerance of a softmax in float32, which Llama and others compute in a model of float64, too.
ROUNDING = {torch.float64: 1e-6, torch.float32: 1e-3}
"""Largest accepted difference between two computations of the same tensor, relative to its largest number.
Half precision: 3e-2."""


def holds(condition: Tensor) -> bool:
    return not is_transformed(condition) and bool(condition.all())


def zero_masked_rows(weights: Tensor, mask: Tensor | None) -> Tensor:
    """Return weights (B, H, Tq, Tk) with zeros in rows that may attend to no key."""
    # A softmax over scores that are all masked gives equal weights or NaN, depending on the kernel. A row of
    # zeros means that the query attends to no key.
    if mask is None or holds(attends := mask.any(-1, keepdim=True)):
        return weights
    return weights.masked_fill(~attends, 0.0)


def nonzero_keys(weights: Tensor) -> Tensor | None:
    """Return a mask (B, 1, Tq, Tk) of keys with nonzero weight in any head; None if all are nonzero."""
    nonzero = (weights != 0).any(1, keepdim=True)
    return None if holds(nonzero) else nonzero


def replace_rows(output: Tensor, changed: Tensor, rows: Tensor) -> Tensor:
    """Return an output (..., D) with `rows` (...) taken from `changed`; other rows stay bit for bit the same."""
    return torch.where(rows[..., None], changed, output.reshape(changed.shape)).reshape(output.shape)


def relative_difference(actual: Tensor, expected: Tensor, attends: Tensor | None = None) -> float | None:
    """Return the largest difference, relative to the largest expected number; None for a rounding error.

    `attends` broadcasts to both tensors. Masked rows, infinite values and NaN are ignored.

    >>> relative_difference(torch.tensor([1.0, 2.5]), torch.tensor([1.0, 2.0]))
    0.25
    """
    if not expected.numel():
        return None
    actual, expected, attends = merge_levels(actual, expected, attends)
    tolerance = ROUNDING.get(expected.dtype, 3e-2)
    # Check the usual case without a mask first: two reductions decide most calls.
    (low, largest), (least, difference) = expected.aminmax(), (actual - expected).aminmax()
    largest, difference = torch.maximum(-low, largest), torch.maximum(-least, difference)
    if bool(difference <= tolerance * largest):
        return None
    counts = expected.isfinite() if attends is None else expected.isfinite() & attends
    largest = expected.abs().where(counts, 0.0).max()
    difference = (actual - expected).abs().where(counts, 0.0).max()
    return None if bool(difference <= tolerance * largest) else float(difference / largest)


def are_attention_weights(value: Any) -> bool:
    """Return whether a value is a tensor whose rows sum to one, or to zero.

    >>> are_attention_weights(torch.full((2, 4), 0.25)), are_attention_weights(torch.ones(2, 4))
    (True, False)
    """
    if not isinstance(value, Tensor) or value.dim() < 2 or not value.is_floating_point() or not value.numel():
        return False
    (value,) = merge_levels(value.detach())
    sums = value.float().sum(-1)
    valid = ((sums - 1).abs() < ROW_SUM_TOLERANCE) | (sums == 0)
    return bool(valid.all() and (value >= 0).all() and (sums != 0).any())


def is_wanted(layers: Collection[str] | None, name: str) -> bool:
    """Return whether a call's name, or the name of its layer, is among the names of requested layers.

    >>> is_wanted(["encoder.0"], "encoder.layers.0#1"), is_wanted(["encoder.0#2"], "encoder.layers.0#1")
    (True, False)
    """
    return layers is None or any(find_name(alias, layers) is not None for alias in (name, name.split("#")[0]))


class CaptureSession:
    """A recording of one model: selects the calls to record, and stores their weights."""

    intervenes: ClassVar[bool] = False
    """Whether the session changes weights instead of recording them."""

    def __init__(
        self,
        recorder: Recorder,
        tracker: ForwardTracker,
        layers: Collection[str] | None,
        token_labels: TokenLabels | None = None,
        modules: str | None = None,
    ) -> None:
        self.recorder, self.tracker, self.layers = recorder, tracker, layers
        self.axes = AxesFinder(tracker)
        self.token_labels = token_labels or TokenLabels(None)
        self.modules = modules
        """Name pattern of the modules through which weights pass, if the user set a pattern."""
        self.kernel_callers: set[str] = set()
        """Modules whose calls of PyTorch's attention functions were captured."""
        self.warned: set[str] = set()
        """Layers and kinds of messages about which there was a warning."""
        self.non_step_keys: set[str] = set()
        """Records whose keys are not steps, such as compressed keys. The columns of several passes do not match."""
        self.refusals: dict[str, str] = {}
        """By layer: the reason why its weights are not recorded."""
        self.unconfirmed: dict[str, list[AttentionCall]] | None = None
        """By layer: calls that are recorded only if the model does not return their weights; None if the model
        returns no weights."""
        self.named_modules: set[str] = set()
        """Modules that match `modules`; interventions change only the weights of these modules."""
        self.with_cache: set[str] = set()
        """Records made with a cache, to which later steps may be added."""
        self.sides: dict[str, Kind] = {}
        """By name of an encoder or a decoder: the kind of its self-attention. The two may share layers, so that
        the layers themselves do not show it."""
        self._single_query: dict[str, int] = {}
        """By layer: the value of `_many_query_calls` at the layer's last call with a single query."""
        self._many_query_calls = 0

    @property
    def by_rows(self) -> bool:
        """Whether only some rows or heads of a call are needed."""
        return self.recorder.partial

    def change_weights(self, weights: Tensor, mask: Tensor | None, first_key: int = 0) -> Tensor:
        """Return the weights (B, H, Tq, Tk) that a layer uses: here, the unchanged weights."""
        return weights

    def changed_layers(self) -> Sequence[str]:
        """Return the names of the layers whose weights the session may change."""
        return list(self.layers or ())

    receives: ClassVar[bool] = False
    """Whether the session receives activations other than weights."""
    inputs: Any = None
    softmax_input: Tensor | None = None
    """Scores (B, H, Tq, Tk) with the mask, in a layer that computes attention in its own code."""

    def receive(self, kind: str, value: Tensor) -> Tensor:
        """Return the value that the current call uses for an activation: here, the unchanged value."""
        return value

    def warn_once(self, key: str, message: str) -> None:
        """Warn, unless there was a warning with the same key: a layer, or a kind of message."""
        if key not in self.warned:
            self.warned.add(key)
            warnings.warn(message, stacklevel=3)

    def wants(self, name: str) -> bool:
        return is_wanted(self.layers, name)

    def concerns(self, layer: str) -> bool:
        return self.layers is None or is_wanted([name.split("#")[0] for name in self.layers], layer)

    def next_call_name(self, name: str) -> str | None:
        """Count a call of a layer, and return the name of the call; None if it is not to be recorded."""
        if self.tracker.paused or active_probe() is not None:
            return None
        numbered = self.tracker.number(name)
        return numbered if self.wants(numbered) else None

    def record_call(self, name: str, call: AttentionCall) -> None:
        """Record the requested heads and rows of a call, either in blocks of rows or all at once."""
        layer, _, number = name.partition("#")
        # If a layer with many queries ran in between, the whole model runs again, so this call is not the next step.
        is_next_step = self._single_query.get(layer) == self._many_query_calls
        if call.queries > 1 and not call.flat:
            self._many_query_calls += 1
        else:
            self._single_query[layer] = self._many_query_calls
        if number and is_next_step and self._record_step(layer, int(number), call):
            return
        sides = [kind for side, kind in self.sides.items() if is_inside(layer, side)]
        if sides and call.kind != "cross":
            call = dataclasses.replace(call, kind=sides[-1])
        start = self.tracker.start or self._cached_steps(name, call)
        end, rows = start + call.queries, self.recorder.rows
        if not (start or number):  # a new pass
            self.recorder.drop_repeated(name)
        if rows is None:
            positions: Sequence[int] = range(call.queries)
        else:
            if (
                self.tracker.cache is None and not start and call.queries > 1
            ):  # otherwise later passes may bring the rows
                check_indices("rows", rows, end)
            positions = [row - start for row in rows if start <= row < end]
        weights, mask = self._compute(call, positions)
        weights, mask = merge_levels(weights, mask)
        if self.tracker.cache is not None:
            self.with_cache.add(name)
            self._check_keys(name, weights if mask is None else weights * mask, call)
            if start and name in self.non_step_keys:
                self.recorder.parts.pop(name, None)
        self.token_labels.kinds[layer] = call.kind
        part = CallRecord(weights, mask, [start + position for position in positions], call.first_key)
        self._check_continuation(name, weights, start)
        self.recorder.go_on(name, part, queries=call.queries, start=start, kind=call.kind)

    def _cached_steps(self, name: str, call: AttentionCall) -> int:
        """Return the number of steps that a model's own cache holds before a call; 0 for a new sequence.

        Transformers models pass their cache as an argument (see `generation`). A cache of another model shows
        only in the number of keys: those of the recorded steps, and those of the queries.
        """
        before = self.recorder.parts.get(name)
        if before is None or before.first or self.tracker.cache is not None or call.flat or call.kind == "cross":
            return 0
        keys, keys_before = call.rows(slice(0, 0))[0].shape[-1], before.calls[-1].weights.shape[-1]
        attends_to_itself = before.kind == "decoder" or before.end == before.calls[-1].first_key + keys_before
        if keys <= call.queries or not attends_to_itself:
            return 0
        if keys == before.end + call.queries:
            return before.end
        if before.end > 1:
            self._warn_of_unknown_cache(name, call.queries, keys)
        return 0

    def _warn_of_unknown_cache(self, name: str, queries: int, keys: int) -> None:
        sizes = f"{plural(queries, 'step')} and {plural(keys, 'key')}"
        reason = "and only this pass is recorded, because the model's cache is not known"
        self.warn_once("cache", f"the last pass of layer {name!r} has {sizes}, {reason}")

    def warn_of_lost_rows(self, model: str) -> None:
        """Warn after a generation of a model if a layer attends to keys of steps that have no row."""
        for name, parts in self.recorder.parts.items():
            last, known = parts.calls[-1].weights, max(parts.end - parts.calls[-1].first_key, 0)
            counts = parts.kind != "cross" and is_inside(name, model) and name not in self.non_step_keys
            if counts and last.numel() and last[..., known:].any():
                self._warn_of_unknown_cache(name, parts.end - parts.first, last.shape[-1])

    def _check_continuation(self, name: str, weights: Tensor, start: int) -> None:
        """Warn if no rows are recorded for some steps before a pass, and if a pass cannot extend the previous pass,
        because the number of samples or heads changed."""
        before = self.recorder.parts.get(name)
        first = 0 if before is None else before.end
        if first < start and name not in self.warned | self.non_step_keys:
            self.warn_once(
                "steps",
                f"layer {name!r} and those after it have no rows for steps {first} to {start - 1}: these steps"
                " were in the cache before their pass (a learned prefix, or a pass that was not recorded)",
            )
        if not self.tracker.start or before is None:
            return
        earlier, now = (tuple(tensor.shape[:2]) for tensor in (before.calls[-1].weights, weights))
        if earlier != now:
            self.warn_once(
                name,
                f"{name} had (samples, heads) {earlier} in earlier passes and has {now} now: only passes from"
                f" step {self.tracker.start} on are recorded",
            )

    def _check_keys(self, name: str, weights: Tensor, call: AttentionCall) -> None:
        """Warn if keys are not steps, because columns of later passes belong to other keys.

        Examples: keys beyond the queries of a first pass, and keys of another sequence whose number changes, as
        in a layer that attends to both sequences at once.
        """
        if name in self.non_step_keys:
            return
        before = self.recorder.parts.get(name)
        if self.tracker.start:
            changed = before is not None and before.calls[-1].weights.shape[-1] != weights.shape[-1]
            no_steps = call.kind == "cross" and changed
        else:
            no_steps = call.kind == "decoder" and bool(weights[..., call.queries :].any())
        if no_steps:
            self.non_step_keys.add(name)
            warnings.warn(
                f"{name} has keys that are not steps: only the last pass of a generation is recorded", stacklevel=2
            )

    def _record_step(self, layer: str, number: int, call: AttentionCall) -> bool:
        """Record call `number` of a layer as its next step; returns whether the call is a next step.

        Only a layer whose calls each had a single query, as in a decoder that attends once per word, has next steps.
        """
        before, rows = self.recorder.parts.get(layer), self.recorder.rows
        if before is None or self.tracker.cache is not None or not (call.queries == 1 or call.flat):
            return False
        if call.flat and number == 1 and not self.recorder.partial:
            before.calls, before.end = [_as_step(before.calls[0])], 1
        if before.end != number:
            return False
        positions = [0] if rows is None or number in rows else []
        part = CallRecord(*self._compute(call, positions), [number] * len(positions))
        part = _as_step(part) if call.flat else part
        last = before.calls[-1].weights
        keys, last_keys = part.weights.shape[-1], last.shape[-1]
        same_layout = last.shape[:2] == part.weights.shape[:2]
        # The keys are those of a fixed memory, or of all steps so far.
        if not same_layout or not (keys == last_keys > 1 or keys == last_keys + 1 == number + 1):
            return False
        self.recorder.go_on(layer, part, queries=1, start=number, kind=before.kind)
        return True

    def _compute(self, call: AttentionCall, positions: Sequence[int]) -> tuple[Tensor, Tensor | None]:
        if not self.recorder.partial:
            return call.rows(slice(None))
        blocks = [positions[start : start + BLOCK] for start in range(0, len(positions), BLOCK)] or [[]]
        parts, masks = list[Tensor](), list[Tensor]()
        for block in blocks:
            weights, mask = call.rows(list(block))
            parts.append(self.recorder.select_heads(weights))
            masks += [] if mask is None else [self.recorder.select_heads(mask.expand_as(weights))]
        return torch.cat(parts, dim=2), torch.cat(masks, dim=2) if masks else None


def _as_step(part: CallRecord) -> CallRecord:
    mask = None if part.mask is None else part.mask.transpose(0, 2)
    return part._replace(weights=part.weights.transpose(0, 2), mask=mask, steps=part.steps[:1])


class InterventionSession(CaptureSession):
    """A session that changes the weights of one layer before other sessions record them."""

    intervenes = True

    def __init__(self, tracker: ForwardTracker, layer: str, change: Intervention, modules: str | None = None) -> None:
        super().__init__(Recorder(), tracker, [layer], modules=modules)
        self.change = change
        self.applied = False
        """Whether any weights were changed."""

    def change_weights(self, weights: Tensor, mask: Tensor | None, first_key: int = 0) -> Tensor:
        """Return changed weights; if a generation runs step by step, a single weight is set at the step of its query.

        Raises `InputError` for a head, query or key out of range.
        """
        self.applied = True
        if self.change.query is None or self.change.key is None:
            return self.change.apply(weights, mask, None)
        row, key = self.change.query - self.tracker.start, self.change.key - first_key
        if self.tracker.cache is not None and not (0 <= row < weights.shape[2] and 0 <= key < weights.shape[3]):
            return weights  # the query belongs to another step
        return dataclasses.replace(self.change, query=row, key=key).apply(weights, mask, None)

    def record_call(self, name: str, call: AttentionCall) -> None:
        """Record nothing."""


class OneHead:
    """A session for calls that compute one head each, in a loop over the heads of a layer."""

    receives = False
    inputs: Any = None
    softmax_input: Tensor | None = None

    def __init__(self, session: CaptureSession, axes: Axes, calls: list[AttentionCall]) -> None:
        self.session, self.heads, self.head, self.calls = session, axes.heads, axes.head or 0, calls
        self.intervenes = session.intervenes

    def receive(self, kind: str, value: Tensor) -> Tensor:
        return self.session.receive(kind, value)

    def change_weights(self, weights: Tensor, mask: Tensor | None) -> Tensor:
        """Return the changed weights (B, 1, Tq, Tk) of the head."""
        changed = self.session.change_weights(weights.expand(-1, self.heads, -1, -1), mask)
        return changed[:, self.head : self.head + 1]

    def record_call(self, name: str, call: AttentionCall) -> None:
        """Keep the call; the call of the last head records all heads."""
        self.calls[self.head :] = [call]
        if len(self.calls) == self.heads:
            calls = tuple(self.calls)

            def rows(rows: Sequence[int] | slice) -> tuple[Tensor, Tensor | None]:
                weights = torch.cat([head_call.rows(rows)[0] for head_call in calls], dim=1)
                return weights, nonzero_keys(weights)

            self.session.record_call(name, dataclasses.replace(call, rows=rows))


MASKED = -9000.0
"""A bias up to this value masks a score. Models add -inf, the smallest number of the dtype, or -10000."""


MASKED_PER_HEAD = -50.0
"""The largest masking value of a bias that differs by head: Swin adds -100 to a learned bias, and exp(-50) is
below rounding."""


def mask_from_bias(bias: Tensor) -> Tensor:
    """Return a mask, True = may attend, from a mask or from an additive bias.

    >>> mask_from_bias(torch.tensor([[0.0, -10000.0], [-1.5, 0.0]])).tolist()
    [[True, False], [True, True]]
    """
    if bias.dtype == torch.bool:
        return bias
    return bias > (MASKED if bias.dim() < 4 or bias.shape[1] == 1 else MASKED_PER_HEAD)


def self_attention_kind(mask: Tensor | None, queries: int) -> Kind:
    """Return "decoder" for a mask (..., Tq, Tk) that hides the future of every query, else "encoder".

    >>> self_attention_kind(torch.ones(3, 3, dtype=torch.bool).tril(), 3)
    'decoder'
    """
    if mask is None or queries < 2 or mask.shape[-2] < 2:
        return "encoder"
    (mask,) = merge_levels(mask[None])
    return "encoder" if mask.triu(mask.shape[-1] - mask.shape[-2] + 1).any() else "decoder"


def attention_call(weights: Tensor, *, flat: bool) -> AttentionCall:
    """Return the call of a module that computes weights (B, H, Tq, Tk) in its own code, without a mask."""
    mask, square = nonzero_keys(weights), weights.shape[2] == weights.shape[3]
    kind = self_attention_kind(mask, weights.shape[2]) if square else None
    return dataclasses.replace(AttentionCall.from_weights(weights, mask, kind), flat=flat)
