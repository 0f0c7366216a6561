"""Replace the contexts of heads with those of other inputs, and measure what the replacement changed.

The contexts of all inputs are recorded beforehand, one input at a time. What replaces a context therefore does
not depend on whether the subject computes losses in batches. Inputs replace each other if the contexts of all
layers have equal shapes. Inputs without such a partner, or with equal ones only, take the contexts of the next
`LONGER` longer inputs, cut to their own length; without a longer input they are left out.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import Any, Generic, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.attention.components import HeadContexts
from regard.result import percent
from regard.viz.subject import Input, Subject

DIFFERENT = 1e-3
"""Difference of two contexts, as a fraction of the norm of the larger one, from which they differ. Rounding in
float32 gives differences below 1e-5."""
ENOUGH = 0.95
"""Share of the inputs whose contexts must change before anything is said about a head."""
LONGER = 8
"""Number of longer inputs that replace an input without a partner of its own length."""
SHIFTS = 32
"""Number of other inputs that are tried as a partner with another context."""
BATCHES = (250, 64, 1)
"""Numbers of inputs whose losses are computed together; the first that the subject computes in one pass."""
Head = tuple[str, int]
Calls = dict[str, list[Tensor]]
"""By layer: the contexts of each call, (B, T, H Dv). A recurrent decoder calls its layer once for each step."""


class Change(NamedTuple):
    """What an intervention changed in the contexts of heads, over some inputs."""

    inputs: int
    changed: int
    """Number of inputs whose contexts differ by at least `DIFFERENT` of their norm."""
    size: float
    """Median over the inputs of the difference, as a fraction of the norm of the context (0 to 2)."""

    @property
    def reason(self) -> str:
        """Why nothing can be said about the head; empty if the contexts of enough inputs changed."""
        if self.changed >= ENOUGH * self.inputs > 0:
            return ""
        if self.inputs < 2:
            return "there is only one input, or none is as long as another one"
        if not self.changed:
            return "its context is the same for all inputs of one length"
        return f"its context changes in only {percent(self.changed / self.inputs, 0)} of the inputs"


def relative_change(before: Tensor, after: Tensor) -> Tensor:
    """Return the norm of the difference of contexts (N, ...) for each of N inputs, as a fraction of the larger
    norm; 0 if both are zero."""
    before, after = before.flatten(1).float(), after.flatten(1).float()
    norms = torch.maximum(before.norm(dim=1), after.norm(dim=1))
    shares: Tensor = (after - before).norm(dim=1) / norms.clamp(min=torch.finfo(torch.float32).tiny)
    return shares.cpu()


def describe_change(sizes: Tensor) -> Change:
    """Return what changed, from the relative changes (N,) of N inputs."""
    return Change(len(sizes), int((sizes >= DIFFERENT).sum()), float(sizes.median()) if len(sizes) else 0.0)


class _Group(NamedTuple, Generic[Input]):
    """Inputs that replace each other."""

    inputs: list[Input]
    calls: Calls
    """Contexts (N, B, T, H Dv) of the inputs."""
    longer: Calls
    """Contexts (M, B, T, H Dv) of longer inputs, cut; empty if the inputs replace each other."""
    size: int
    """Number of inputs whose losses are computed in one pass."""


class Resampling(Generic[Input]):
    """Replaces the contexts of heads of a subject over some inputs.

    `inputs`: number of inputs with a partner; `alone`: number without; `cut`: number of inputs whose partners are
    longer. `losses` (N,): losses without replacement, of the inputs with a partner; `unstable` (N,): how much
    they differ when they are computed again.
    """

    def __init__(self, subject: Subject[Input], inputs: Sequence[Input]) -> None:
        self.subject, self.heads = subject, subject.components.heads
        self.path: Callable[[], AbstractContextManager[None]] = nullcontext
        if inputs and len(self._record(inputs[:1])[1]) < len(self.heads):
            self.path = subject.patchable.calling_hooks  # fused code does not call the hooks
        recorded = [self._record([input]) for input in inputs]
        by_shape: dict[object, list[int]] = defaultdict(list)
        for index, (_, calls) in enumerate(recorded):
            by_shape[_shapes(calls)].append(index)
        self.groups, kept = list[_Group[Input]](), list[int]()
        by_size = sorted((calls for _, calls in recorded), key=_size)
        for members in by_shape.values():
            calls, longer = _stack([recorded[index][1] for index in members]), Calls()
            if all(torch.equal(call, call[:1].expand_as(call)) for call in _all(calls)):
                short = recorded[members[0]][1]
                others = [cut for other in by_size if (cut := _cut(other, short)) is not None][:LONGER]
                if not others:
                    continue
                longer = _stack(others)
            self.groups.append(self._group([inputs[index] for index in members], calls, longer))
            kept += members
        self.inputs, self.alone = len(kept), len(inputs) - len(kept)
        self.cut = sum(len(group.inputs) for group in self.groups if group.longer)
        self.losses = self.replace(())[0]
        self.unstable = np.abs(self.losses - [recorded[index][0][0] for index in kept])

    def runs(self, layer: str) -> bool:
        """Return whether a layer runs when the losses are computed."""
        return any(layer in group.calls for group in self.groups)

    def is_zero(self, head: Head) -> bool:
        """Return whether the context of a head is zero for all inputs."""
        return not any(self._vectors(group.calls, head).any() for group in self.groups)

    def replace(self, heads: Sequence[Head], *, mean: bool = False) -> tuple[np.ndarray, Change]:
        """Return the losses (N,) if the contexts of some heads are those of another input, for which they differ
        if there is one, or the mean over the other inputs; and for how many inputs the contexts of all heads
        changed."""
        losses, sizes = [np.zeros(0)], [torch.zeros(0)]
        by_layer: dict[str, list[int]] = defaultdict(list)
        for layer, head in heads:
            by_layer[layer].append(head)
        for group in self.groups:
            count = len(group.inputs)
            pool = group.longer or group.calls
            if mean:
                values = {layer: [_mean(call, group) for call in pool[layer]] for layer in by_layer}
            else:
                donors = self._donors(group, heads)
                values = {layer: [call[donors] for call in pool[layer]] for layer in by_layer}
            inserted: list[list[Tensor]] = []
            for start in range(0, count, group.size):
                part = slice(start, start + group.size)
                with ExitStack() as stack:
                    stack.enter_context(self.path())
                    for layer, members in by_layer.items():
                        inserted.append([call[part] for call in values[layer]])
                        insert = partial(_insert, self.heads[layer], members, inserted[-1])
                        stack.enter_context(self.heads[layer].replace(insert))
                    losses.append(self.subject.losses(group.inputs[part])[:, 0])
            vectors = [(self._vectors(group.calls, head), self._vectors(values, head)) for head in heads]
            if any(inserted):  # the layer was not called as recorded
                sizes.append(torch.zeros(count))
            elif heads:
                sizes.append(torch.stack([relative_change(own, new) for own, new in vectors]).amin(0))
        return np.concatenate(losses), describe_change(torch.cat(sizes))

    def _record(self, inputs: Sequence[Input]) -> tuple[np.ndarray, Calls]:
        """Return the losses of inputs in one call, and the contexts of all layers."""
        calls: Calls = defaultdict(list)

        def record(layer: str, contexts: Tensor) -> Tensor:
            calls[layer].append(contexts.clone())
            return contexts

        with ExitStack() as stack:
            stack.enter_context(self.path())
            for layer, contexts in self.heads.items():
                stack.enter_context(contexts.replace(partial(record, layer)))
            return self.subject.losses(inputs)[:, 0], dict(calls)

    def _group(self, inputs: list[Input], calls: Calls, longer: Calls) -> _Group[Input]:
        """Return a group of inputs, and how many of them share a pass."""
        for size in BATCHES:
            # Two inputs show quickly that a subject computes no batches.
            parts = [slice(0, 2), *(slice(start, start + size) for start in range(0, len(inputs), size))]
            if size == 1 or all(self._are_together(inputs[part], calls, part) for part in parts):
                break
        return _Group(inputs, calls, longer, size)

    def _are_together(self, inputs: list[Input], calls: Calls, part: slice) -> bool:
        """Return whether the contexts of inputs in one call are those of each input alone, in the same order."""
        alone = {layer: [call[part].flatten(0, 1) for call in calls[layer]] for layer in calls}
        together = self._record(inputs)[1]
        return _shapes(together) == _shapes(alone) and all(
            bool((relative_change(call, other) < DIFFERENT).all())
            for layer in calls
            for call, other in zip(together[layer], alone[layer], strict=True)
        )

    def _vectors(self, calls: Calls, head: Head) -> Tensor:
        """Return the contexts (M, F) of a head in all calls."""
        heads = self.heads[head[0]].heads
        parts = [call.unflatten(-1, (heads, -1))[..., head[1], :].flatten(1) for call in calls.get(head[0], ())]
        return torch.cat(parts, 1).float() if parts else torch.zeros(0, 0)

    def _donors(self, group: _Group[Input], heads: Sequence[Head]) -> Tensor:
        """Return for each input the next input for which the contexts of all heads differ, (N,) int64."""
        pool = group.longer or group.calls
        pairs = [(self._vectors(group.calls, head), self._vectors(pool, head)) for head in heads]
        inputs, count = torch.arange(len(group.inputs)), len(pairs[0][1]) if pairs else 1
        donors, missing = (inputs + 1) % count, torch.ones(len(inputs), dtype=torch.bool)
        for other in [(inputs + shift) % count for shift in range(1, min(count, SHIFTS) + 1)]:
            differ = missing.clone()
            for own, others in pairs:
                differ &= relative_change(own, others[other]) >= DIFFERENT
            donors, missing = torch.where(differ, other, donors), missing & ~differ
            if not missing.any():
                break
        return donors


def _insert(layer: HeadContexts, heads: list[int], calls: list[Tensor], contexts: Tensor) -> Tensor:
    """Return the contexts of a call with those of some heads from the first of `calls`, which is removed."""
    if not calls or calls[0].numel() != contexts.numel():
        return contexts
    values = calls.pop(0)
    changed = contexts.unflatten(-1, (layer.heads, -1)).clone()
    changed[..., heads, :] = values.to(contexts).view_as(contexts).unflatten(-1, (layer.heads, -1))[..., heads, :]
    flat: Tensor = changed.flatten(-2)
    return flat


def _mean(pool: Tensor, group: _Group[Any]) -> Tensor:
    """Return for each of N inputs the mean of the contexts (M, ...) of all other inputs, (N, ...)."""
    if group.longer:
        return pool.float().mean(0).expand(len(group.inputs), *pool.shape[1:])
    return (pool.float().sum(0) - pool) / (len(pool) - 1)


def _stack(inputs: Sequence[Calls]) -> Calls:
    """Return the contexts of N inputs as (N, B, T, H Dv)."""
    return {
        layer: [torch.stack(call) for call in zip(*(calls[layer] for calls in inputs), strict=True)]
        for layer in inputs[0]
    }


def _all(calls: Calls) -> Iterator[Tensor]:
    return itertools.chain.from_iterable(calls.values())


def _shapes(calls: Calls) -> object:
    return tuple((layer, *(tuple(call.shape) for call in parts)) for layer, parts in calls.items())


def _size(calls: Calls) -> int:
    return sum(call.numel() for call in _all(calls))


def _cut(calls: Calls, short: Calls) -> Calls | None:
    """Return the contexts of a longer input at the positions of a short one; None if it is not longer."""
    if _shapes(calls) == _shapes(short):
        return None
    cut = {
        layer: [
            long[tuple(map(slice, call.shape))] for long, call in zip(calls.get(layer, ()), parts, strict=False)
        ]
        for layer, parts in short.items()
    }
    return cut if _shapes(cut) == _shapes(short) else None
