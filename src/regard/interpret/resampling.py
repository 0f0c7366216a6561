"""Replace the contexts of heads with those of other inputs, and measure what the replacement changed.

The contexts of all inputs are recorded beforehand, one input at a time. What replaces a context therefore does
not depend on whether the subject computes losses in batches. Inputs replace each other if the contexts of all
layers have equal shapes. Inputs without such a partner, or with equal ones only, take the contexts of the next
`LONGER` longer inputs, cut to their own length; without a longer input they are left out.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.result import percent
from regard.viz.subject import Input, Subject

DIFFERENT = 1e-3
"""Difference of two contexts, as a fraction of the norm of the larger one, from which they differ. Rounding in
float32 gives differences below 1e-5."""
ENOUGH = 0.95  # Share of the inputs whose contexts must change before anything is said about a head
LONGER = 8  # Number of longer inputs that replace an input without a partner of its own length
SHIFTS = 32  # Number of other inputs that are tried as a partner with another context
BATCHES = (250, 64, 1)
"""Numbers of inputs whose losses are computed together; the first that the subject computes in one pass."""
Head = tuple[str, int]
ContextCalls = list[tuple[str, Tensor]]
"""Layer and contexts (B, T, H Dv) of each call. A recurrent decoder calls its layer once for each step."""


class Change(NamedTuple):
    """What an intervention changed in the contexts of heads, over some inputs."""

    inputs: int
    changed: int  # Number of inputs whose contexts differ by at least `DIFFERENT` of their norm
    size: float  # Median over the inputs of the difference, as a fraction of the norm of the context (0 to 2)

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


class _Group(NamedTuple, Generic[Input]):
    """Inputs that replace each other."""

    inputs: list[Input]
    calls: ContextCalls  # Contexts (N, B, T, H Dv) of the inputs
    pool: ContextCalls  # Contexts (M, B, T, H Dv) that replace them: their own, or those of longer inputs, cut
    size: int  # Number of inputs whose losses are computed in one pass


class Resampling(Generic[Input]):
    """Replaces the contexts of heads of a subject over some inputs.

    `inputs`: number of inputs with a partner; `alone`: number without; `cut`: number of inputs whose partners are
    longer. `losses` (N,): losses without replacement, of the inputs with a partner; `unstable` (N,): how much
    they differ when they are computed again.
    """

    def __init__(self, subject: Subject[Input], inputs: Sequence[Input]) -> None:
        self.subject, self.components = subject, subject.components
        self.path: Callable[[], AbstractContextManager[None]] = nullcontext
        if inputs and len(dict(self._record(inputs[:1])[1])) < len(self.components.heads):
            self.path = subject.patchable.calling_hooks  # fused code does not call the hooks
        # One input at a time, because padding in a batch can change contexts.
        recorded = [self._record([input]) for input in inputs]
        by_size = sorted((calls for _, calls in recorded), key=lambda calls: sum(call.numel() for _, call in calls))
        by_shape: dict[object, list[int]] = defaultdict(list)
        for index, (_, calls) in enumerate(recorded):
            by_shape[_shapes(calls)].append(index)
        self.groups, kept = list[_Group[Input]](), list[int]()
        for members in by_shape.values():
            short = recorded[members[0]][1]
            pool = calls = _stack([recorded[index][1] for index in members])
            if all(torch.equal(call, call[:1].expand_as(call)) for _, call in calls):
                longer = [cut for other in by_size if (cut := _cut(other, short)) is not None][:LONGER]
                pool = _stack(longer)
            if pool:
                drawn = [inputs[index] for index in members]
                self.groups.append(_Group(drawn, calls, pool, self._shared_inputs(drawn, calls)))
                kept += members
        self.inputs, self.alone = len(kept), len(inputs) - len(kept)
        self.cut = sum(len(group.inputs) for group in self.groups if group.pool is not group.calls)
        self.layers = {layer for group in self.groups for layer, _ in group.calls}
        self.losses = self.replace(())[0]
        # Dropout or sampling in the model would look like an effect of a head.
        self.unstable = np.abs(self.losses - [recorded[index][0][0] for index in kept])

    def is_zero(self, head: Head) -> bool:
        return not any(self._vectors(group.calls, head).any() for group in self.groups)

    def replace(self, heads: Sequence[Head], *, mean: bool = False) -> tuple[np.ndarray, Change]:
        """Return the losses (N,) if the contexts of some heads are those of another input, for which they differ if
        there is one, or the mean over the other inputs; and for how many inputs the contexts of all heads changed."""
        losses, sizes = [np.zeros(0)], [torch.zeros(0)]
        for group in self.groups:
            if mean:
                values = [(layer, _others_mean(call, group)) for layer, call in group.pool]
            else:
                donors = self._donors(group, heads)
                values = [(layer, call[donors]) for layer, call in group.pool]
            missed = False
            for start in range(0, len(group.inputs), group.size):
                part = slice(start, start + group.size)
                waiting = {name: [call[part] for layer, call in values if layer == name] for name, _ in heads}

                def insert(name: str, contexts: Tensor, waiting: dict[str, list[Tensor]] = waiting) -> Tensor:
                    """Replace the contexts of some heads by those of the next call that was recorded."""
                    if not waiting[name] or waiting[name][0].numel() != contexts.numel():
                        return contexts
                    changed = self.components.split(name, contexts).clone()
                    members = [head for layer, head in heads if layer == name]
                    inserted = waiting[name].pop(0).to(contexts)
                    changed[..., members, :] = inserted.view_as(changed)[..., members, :]
                    flat: Tensor = changed.flatten(-2)
                    return flat

                with self.path(), self.components.replace_contexts(insert, waiting):
                    losses.append(self.subject.losses(group.inputs[part])[:, 0])
                missed |= any(waiting.values())
            if missed:  # the layer was not called as recorded
                sizes.append(torch.zeros(len(group.inputs)))
            elif heads:
                pairs = [(self._vectors(group.calls, head), self._vectors(values, head)) for head in heads]
                sizes.append(torch.stack([relative_change(own, new) for own, new in pairs]).amin(0))
        changes = torch.cat(sizes)
        size = float(changes.median()) if len(changes) else 0.0
        return np.concatenate(losses), Change(len(changes), int((changes >= DIFFERENT).sum()), size)

    def _record(self, inputs: Sequence[Input]) -> tuple[np.ndarray, ContextCalls]:
        """Return the losses of inputs in one call, and the contexts of all layers."""
        calls: ContextCalls = []

        def record(layer: str, contexts: Tensor) -> Tensor:
            calls.append((layer, contexts.clone()))
            return contexts

        with self.path(), self.components.replace_contexts(record):
            return self.subject.losses(inputs)[:, 0], calls

    def _shared_inputs(self, inputs: list[Input], calls: ContextCalls) -> int:
        """Return how many inputs share a pass: their contexts in one pass are those of each input alone."""

        def are_together(part: slice) -> bool:
            together = self._record(inputs[part])[1]
            alone = [(layer, call[part].flatten(0, 1)) for layer, call in calls]
            return _shapes(together) == _shapes(alone) and all(
                bool((relative_change(call, other) < DIFFERENT).all())
                for (_, call), (_, other) in zip(together, alone, strict=True)
            )

        for size in BATCHES:
            # Two inputs show quickly that a subject computes no batches.
            if are_together(slice(0, 2)) and all(
                are_together(slice(start, start + size)) for start in range(0, len(inputs), size)
            ):
                return size
        return 1

    def _vectors(self, calls: ContextCalls, head: Head) -> Tensor:
        name, number = head
        parts = [self.components.split(name, call)[..., number, :] for layer, call in calls if layer == name]
        return torch.cat([part.flatten(1).float() for part in parts], 1) if parts else torch.zeros(0, 0)

    def _donors(self, group: _Group[Input], heads: Sequence[Head]) -> Tensor:
        """Return for each input the next input for which the contexts of all heads differ, (N,) int64."""
        pairs = [(self._vectors(group.calls, head), self._vectors(group.pool, head)) for head in heads]
        # The next input is a fixed choice, so that results do not depend on a seed.
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


def _others_mean(pool: Tensor, group: _Group[Any]) -> Tensor:
    if group.pool is group.calls:  # without the input's own context, which would keep a part of what is replaced
        return (pool.float().sum(0) - pool) / (len(pool) - 1)
    return pool.float().mean(0).expand(len(group.inputs), *pool.shape[1:])


def _stack(inputs: Sequence[ContextCalls]) -> ContextCalls:
    return [(calls[0][0], torch.stack([call for _, call in calls])) for calls in zip(*inputs, strict=True)]


def _shapes(calls: ContextCalls) -> object:
    return tuple((layer, call.shape) for layer, call in calls)


def _cut(calls: ContextCalls, short: ContextCalls) -> ContextCalls | None:
    """Return the contexts of a longer input at the positions of a short one; None if it is not longer."""
    if _shapes(calls) == _shapes(short):
        return None
    pairs = zip(calls, short, strict=False)
    cut = [(layer, long[tuple(map(slice, call.shape))]) for (layer, long), (_, call) in pairs]
    return cut if _shapes(cut) == _shapes(short) else None
