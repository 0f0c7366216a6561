"""The keeper decides which calls of attention are recorded, and hands over what was asked for of each."""

import dataclasses
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.attention import Intervention
from regard.attention.layer_record import Kind, Part
from regard.attention.records import Recorder, check_indices, short_name
from regard.external.labels import Read
from regard.external.passes import Passes

CLOSE = 1e-2
"""How far from one the sum of a row of weights may be, in half precision."""
BLOCK = 64
"""Rows that are worked out at once, where not all weights are wanted: what it costs is their memory."""


HALF = (torch.bfloat16, torch.float16)
ROUNDING = {torch.float64: 1e-8, torch.float32: 1e-3}
"""How far apart, as a share of the largest number, two ways to compute the same are at most; half precision:
3e-2."""

Rows = Callable[[Sequence[int] | slice], tuple[Tensor, Tensor | None]]


def rows_of(mask: Tensor, chosen: Sequence[int] | slice) -> Tensor:
    """Take rows of what can be broadcast to weights (B, H, Tq, Tk)."""
    return mask if mask.dim() < 2 or mask.shape[-2] == 1 else mask[..., chosen, :]


def without_blind(weights: Tensor, mask: Tensor | None) -> Tensor:
    """Return weights (B, H, Tq, Tk) whose rows are zero where nothing may be attended."""
    if mask is None or bool((seeing := mask.any(-1, keepdim=True)).all()):
        return weights
    return weights.masked_fill(~seeing, 0.0)


def with_changed_rows(output: Tensor, changed: Tensor, rows: Tensor) -> Tensor:
    """Return an output (..., D) with those `rows` (...) taken from `changed`: the others stay exactly as they
    were."""
    return torch.where(rows[..., None], changed, output.reshape(changed.shape)).reshape(output.shape)


def share_off(found: Tensor, expected: Tensor, seeing: Tensor | None = None) -> float | None:
    """Return the largest difference as a share of the largest number that is expected; None within rounding.

    `seeing` broadcasts to both: rows that see nothing do not count, and what is not finite is not expected.
    """
    if not expected.numel():
        return None
    most = ROUNDING.get(expected.dtype, 3e-2)
    largest, off = expected.abs().max(), (found - expected).abs().max()
    if bool(off <= most * largest):
        return None
    counts = expected.isfinite() if seeing is None else expected.isfinite() & seeing
    largest = expected.abs().where(counts, 0.0).max()
    off = (found - expected).abs().where(counts, 0.0).max()
    return None if bool(off <= most * largest) else float(off / largest)


def are_weights(each: Any) -> bool:
    """Say whether something is a tensor of rows that sum to one, or to nothing."""
    if not isinstance(each, Tensor) or each.dim() < 2 or not each.is_floating_point() or not each.numel():
        return False
    sums = each.detach().float().sum(-1)
    good = ((sums - 1).abs() < CLOSE) | (sums == 0)
    return bool(good.all() and (each >= 0).all() and (sums != 0).any())


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of attention, whose weights can be worked out row by row."""

    queries: int
    rows: Rows
    """Returns the weights (B, H, Tq, Tk) of some queries, and their mask, True = may attend, which can be
    broadcast to them."""
    kind: Kind | None = None
    first_key: int = 0
    flat: bool = False
    """Whether its weights came as (N, Tk): if the layer is called again, N are the samples of one step."""


class Keeper:
    """What is to be recorded of one model, and where it goes."""

    def __init__(self, recorder: Recorder, passes: Passes, layers: Collection[str] | None, read: Read) -> None:
        self.recorder, self.passes, self.layers, self.read = recorder, passes, layers, read
        self.elsewhere: set[str] = set()
        """The modules whose calls of the kernel were seen."""
        self.doubted: set[str] = set()
        """The layers of which was said that their weights are not those that the model used."""
        self.more_keys: set[str] = set()
        """The records with keys that are no steps, as compressed ones, so that columns of passes do not match."""
        self.cached: set[str] = set()
        """The records made while a cache was there, so that more steps may come."""
        self.single: dict[str, int] = {}
        """By layer, how many calls of many queries there were before its last call of one."""
        self.many = 0
        """Calls of many queries so far."""

    @property
    def by_rows(self) -> bool:
        """Whether not all weights of a call are wanted at once."""
        return self.recorder.partial

    @property
    def touches(self) -> bool:
        """Whether it changes weights, instead of keeping them."""
        return False

    @property
    def touched_key(self) -> int | None:
        """The key whose weight is set; None where no single one is."""
        return None

    def concerns(self, layer: str) -> bool:
        """Say whether it changes weights of a layer: of none."""
        del layer
        return False

    def changed(self, weights: Tensor, mask: Tensor | None, first_key: int = 0) -> Tensor:
        """Return the weights (B, H, Tq, Tk) with which a layer goes on: the same."""
        del mask, first_key
        return weights

    def doubt(self, name: str, cause: str) -> None:
        """Warn, once for each layer, that its weights are not those that the model used."""
        layer = name.split("#")[0]
        if layer not in self.doubted:
            self.doubted.add(layer)
            warnings.warn(f"weights of {layer!r} are not those that the model used: {cause}", stacklevel=2)

    def wants(self, name: str) -> bool:
        """Say whether a call was asked for: by its own name, or by its layer's."""
        layer = name.split("#")[0]
        names = (name, layer, short_name(name), short_name(layer))
        return self.layers is None or any(each in self.layers for each in names)

    def next(self, name: str) -> str | None:
        """Count a call of a layer, and return its name; None where nobody wants it."""
        if self.passes.paused:
            return None
        numbered = self.passes.number(name)
        if numbered == name:  # repetitions of an earlier pass are gone
            for each in [each for each in self.recorder.parts if each.startswith(f"{name}#")]:
                if not self.passes.start:
                    del self.recorder.parts[each]
        return numbered if self.wants(numbered) else None

    def keep(self, name: str, call: Call) -> None:
        """Record a call: of the heads and rows asked for, block by block, or of all at once."""
        layer, _, number = name.partition("#")
        # Where a layer of many queries ran in between, the whole model runs again, and this is no next step.
        next_step = self.single.get(layer) == self.many
        if call.queries > 1 and not call.flat:
            self.many += 1
        else:
            self.single[layer] = self.many
        if number and next_step and self._keep_step(layer, int(number), call):
            return
        start, end = self.passes.start, self.passes.start + call.queries
        rows = self.recorder.rows
        if rows is None:
            places: Sequence[int] = range(call.queries)
        else:
            if self.passes.cache is None and call.queries > 1:  # otherwise more rows may come
                check_indices("rows", rows, end)
            places = [row - start for row in rows if start <= row < end]
        weights, mask = self._worked_out(call, places)
        if self.passes.cache is not None:
            self.cached.add(name)
            self._check_keys(name, weights if mask is None else weights * mask, call)
            if start and name in self.more_keys:
                self.recorder.parts.pop(name, None)
        self.read.kinds[name.split("#")[0]] = call.kind
        part = Part(weights, mask, [start + place for place in places], call.first_key)
        self._check_shape(name, weights)
        self.recorder.go_on(name, part, queries=call.queries, start=start, kind=call.kind)

    def _check_keys(self, name: str, weights: Tensor, call: Call) -> None:
        """Warn of keys that are no steps: columns of later passes stand for other keys.

        Such are keys beyond the queries of a first pass, and keys of another sequence whose number changes, as
        where a layer attends to both sequences at once.
        """
        if name in self.more_keys:
            return
        before = self.recorder.parts.get(name)
        if self.passes.start:
            changed = before is not None and before.calls[-1].weights.shape[-1] != weights.shape[-1]
            no_steps = call.kind == "cross" and changed
        else:
            no_steps = call.kind == "decoder" and bool(weights[..., call.queries :].any())
        if no_steps:
            self.more_keys.add(name)
            warnings.warn(
                f"{name} has keys that are no steps: of what is generated, only its last pass is kept",
                stacklevel=2,
            )

    def _check_shape(self, name: str, weights: Tensor) -> None:
        """Warn where a pass cannot follow the one before, since its samples or heads are of another number."""
        before = self.recorder.parts.get(name)
        if not self.passes.start or before is None or name in self.doubted:
            return
        was, now = (tuple(each.shape[:2]) for each in (before.calls[-1].weights, weights))
        if was != now:
            self.doubted.add(name)
            warnings.warn(
                f"{name} had (samples, heads) {was} in the passes before and {now} now: only its passes from step"
                f" {self.passes.start} on are kept",
                stacklevel=2,
            )

    def _keep_step(self, layer: str, number: int, call: Call) -> bool:
        """Record call `number` of a layer as its next step, if each call so far was one: a decoder that attends
        once for each word. Returns whether it was."""
        before, rows = self.recorder.parts.get(layer), self.recorder.rows
        if before is None or self.passes.cache is not None or not (call.queries == 1 or call.flat):
            return False
        if call.flat and number == 1 and not self.recorder.partial:
            before.calls, before.end = [_as_step(before.calls[0])], 1
        if before.end != number:
            return False
        places = [0] if rows is None or number in rows else []
        part = Part(*self._worked_out(call, places), [number] * len(places))
        part = _as_step(part) if call.flat else part
        last = before.calls[-1].weights
        keys, known = part.weights.shape[-1], last.shape[-1]
        same_layout = last.shape[:2] == part.weights.shape[:2]
        if not same_layout or not (keys == known > 1 or keys == known + 1 == number + 1):
            return False
        self.recorder.go_on(layer, part, queries=1, start=number, kind=before.kind)
        return True

    def _worked_out(self, call: Call, places: Sequence[int]) -> tuple[Tensor, Tensor | None]:
        if not self.recorder.partial:
            return call.rows(slice(None))
        blocks = [places[at : at + BLOCK] for at in range(0, len(places), BLOCK)] or [[]]
        found = [self._selected(*call.rows(list(block))) for block in blocks]
        weights = torch.cat([weights for weights, _ in found], dim=2)
        masks = [mask for _, mask in found if mask is not None]
        return weights, torch.cat(masks, dim=2) if masks else None

    def _selected(self, weights: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        mask = mask if mask is None else self.recorder.select_heads(mask.expand_as(weights))
        return self.recorder.select_heads(weights), mask


def _as_step(part: Part) -> Part:
    """Return weights (1, 1, N, Tk) as those of one step of N samples, (N, 1, 1, Tk)."""
    weights, mask = (None if each is None else each.transpose(0, 2) for each in (part.weights, part.mask))
    assert weights is not None
    return part._replace(weights=weights, mask=mask, steps=part.steps[:1])


class Toucher(Keeper):
    """Changes weights before anybody keeps them. A copy of it changes nothing."""

    def __init__(self, passes: Passes, layer: str, change: Intervention) -> None:
        super().__init__(Recorder(), passes, [layer], Read(None))
        self.change = change
        self.done = False
        """Whether anything was changed."""
        self.after: dict[int, Tensor] = {}
        """By the id of a layer that works by hand: what it changed last, as the layer has it."""

    @property
    def by_rows(self) -> bool:
        """Whether not all weights are wanted at once: they are."""
        return False

    @property
    def touches(self) -> bool:
        """Whether it changes weights: it does."""
        return True

    @property
    def touched_key(self) -> int | None:
        """The key whose weight is set; None where no single one is."""
        return self.change.key

    def concerns(self, layer: str) -> bool:
        """Say whether some call of a layer is meant."""
        return any(name.split("#")[0] in (layer, short_name(layer)) for name in self.layers or ())

    def changed(self, weights: Tensor, mask: Tensor | None, first_key: int = 0) -> Tensor:
        """Return changed weights; where steps come one by one, a weight is set in its own step.

        Raises `InputError` for a head, query or key that is not there.
        """
        self.done = True
        if self.change.query is None or self.change.key is None:
            return self.change.apply(weights, mask, None)
        row, key = self.change.query - self.passes.start, self.change.key - first_key
        goes_on = self.passes.cache is not None
        if goes_on and not (0 <= row < weights.shape[2] and 0 <= key < weights.shape[3]):
            return weights  # another step's turn
        return dataclasses.replace(self.change, query=row, key=key).apply(weights, mask, None)

    def keep(self, name: str, call: Call) -> None:
        """Keep nothing."""
