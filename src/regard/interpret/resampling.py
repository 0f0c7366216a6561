"""Replace the contexts of heads with those of other inputs, and measure what the replacement changed.

The contexts of all inputs are recorded beforehand, one input at a time. What replaces a context therefore does
not depend on whether the subject computes losses in batches. Inputs replace each other if the contexts of all
layers have equal shapes. An input without such a partner takes the contexts of the next `LONGER` longer inputs,
cut to its own length; without a longer input it is left out.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Generic, NamedTuple

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
BATCH = 250
"""Largest number of inputs whose losses are computed together."""
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
            return "there is only one input" if self.inputs else "there are no inputs of equal length"
        if not self.changed:
            return "its context is the same for all inputs of one length"
        return f"its context changes in only {percent(self.changed / self.inputs, 0)} of the inputs"


def relative_change(before: Tensor, after: Tensor) -> Tensor:
    """Return the norm of the difference of contexts (N, ..., Dv) for each of N inputs, as a fraction of the
    larger norm; 0 if both are zero."""
    before, after = before.flatten(1).float(), after.flatten(1).float()
    norms = torch.maximum(before.norm(dim=1), after.norm(dim=1))
    return (after - before).norm(dim=1) / norms.clamp(min=torch.finfo(torch.float32).tiny)


@dataclass
class _Group(Generic[Input]):
    """Inputs that replace each other."""

    inputs: list[Input]
    calls: Calls
    """Contexts (M, B, T, H Dv) of the N inputs, followed by those of M - N longer ones, which are cut."""
    batches: list[range]
    """Numbers of the inputs whose losses are computed together."""

    def vectors(self, head: Head, heads: int) -> Tensor:
        """Return the contexts (M, F) of a head in all calls."""
        parts = [call.unflatten(-1, (heads, -1))[..., head[1], :].flatten(1) for call in self.calls[head[0]]]
        return torch.cat(parts, 1).float()


class Replacement(NamedTuple):
    """Losses with replaced contexts, and what was replaced."""

    losses: np.ndarray
    """(N,) summed loss of each input."""
    change: Change
    """Inputs count as changed if the contexts of all replaced heads are."""


class Resampling(Generic[Input]):
    """Replaces the contexts of heads of a subject over some inputs.

    `inputs`: number of inputs with a partner; `alone`: number without. `losses` (N,): losses without replacement,
    of the inputs with a partner; `unstable` (N,): how much they differ when they are computed again.
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
        groups, kept = [], list[int]()
        for members in by_shape.values():
            pool = [recorded[index][1] for index in members]
            if len(members) == 1:
                longer = [calls for _, calls in recorded if _is_longer(calls, pool[0])]
                pool += [_cut(calls, pool[0]) for calls in sorted(longer, key=_size)[:LONGER]]
            if len(pool) > 1:
                groups.append(self._group([inputs[index] for index in members], pool))
                kept += members
        self.groups, self.inputs, self.alone = groups, len(kept), len(inputs) - len(kept)
        self.losses = self.replace(()).losses
        first = np.array([recorded[index][0][0] for index in kept])
        self.unstable = np.abs(self.losses - first)

    def called(self, layer: str) -> bool:
        """Return whether a layer runs when the losses are computed."""
        return any(layer in group.calls for group in self.groups)

    def is_zero(self, head: Head) -> bool:
        """Return whether the context of a head is zero for all inputs."""
        return not any(group.vectors(head, self.heads[head[0]].heads).any() for group in self.groups)

    def replace(self, heads: Sequence[Head], *, mean: bool = False) -> Replacement:
        """Return the losses if the contexts of some heads are those of another input, for which they differ if
        there is one, or the mean over the other inputs."""
        losses, sizes = [np.zeros(0)], [torch.zeros(0)]
        by_layer: dict[str, list[int]] = defaultdict(list)
        for layer, head in heads:
            by_layer[layer].append(head)
        for group in self.groups:
            donors = None if mean or not heads else self._donors(group, heads)
            values = {
                layer: [
                    _others_mean(call)[: len(group.inputs)] if donors is None else call[donors] for call in calls
                ]
                for layer, calls in group.calls.items()
                if layer in by_layer
            }
            for batch in group.batches:
                insertions: list[_Insertion] = []
                with ExitStack() as stack:
                    stack.enter_context(self.path())
                    for layer, members in by_layer.items():
                        chosen = [call[batch.start : batch.stop] for call in values[layer]]
                        insertions.append(_Insertion(self.heads[layer], members, chosen, len(batch)))
                        stack.enter_context(self.heads[layer].replace(insertions[-1]))
                    losses.append(self.subject.losses([group.inputs[index] for index in batch])[:, 0])
                sizes += [torch.stack([part.sizes() for part in insertions]).amin(0)] if insertions else []
        return Replacement(np.concatenate(losses), describe_change(torch.cat(sizes)))

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

    def _group(self, inputs: list[Input], pool: Sequence[Calls]) -> _Group[Input]:
        """Return a group of inputs with equal shapes; they share batches if the subject computes them so."""
        calls = {layer: [torch.stack(call) for call in _transpose(layer, pool)] for layer in pool[0]}
        batches = [range(start, min(start + BATCH, len(inputs))) for start in range(0, len(inputs), BATCH)]
        for batch in [range(min(2, len(inputs))), *batches]:  # two inputs show quickly that there are no batches
            together = self._record(inputs[batch.start : batch.stop])[1]
            alone = {
                layer: [call[batch.start : batch.stop].flatten(0, 1) for call in calls[layer]] for layer in calls
            }
            if len(batch) > 1 and not _are_equal(together, alone):
                return _Group(inputs, calls, [range(index, index + 1) for index in range(len(inputs))])
        return _Group(inputs, calls, batches)

    def _donors(self, group: _Group[Input], heads: Sequence[Head]) -> Tensor:
        """Return for each input the next input for which the contexts of all heads differ, (N,) int64."""
        vectors = [group.vectors(head, self.heads[head[0]].heads) for head in heads]
        pool, own = len(vectors[0]), torch.arange(len(group.inputs))
        donors, missing = (own + 1) % pool, torch.ones(len(own), dtype=torch.bool)
        for shift in range(1, min(pool, SHIFTS)):
            other = (own + shift) % pool
            differ = [relative_change(rows[own], rows[other]).cpu() >= DIFFERENT for rows in vectors]
            chosen = missing & torch.stack(differ).all(0)
            donors, missing = torch.where(chosen, other, donors), missing & ~chosen
            if not missing.any():
                break
        return donors


def describe_change(sizes: Tensor) -> Change:
    """Return what changed, from the relative changes (N,) of N inputs."""
    return Change(len(sizes), int((sizes >= DIFFERENT).sum()), float(sizes.median()) if len(sizes) else 0.0)


class _Insertion:
    """Inserts the contexts of some heads of a layer for N inputs, and measures the change of each input."""

    def __init__(self, contexts: HeadContexts, heads: Sequence[int], values: list[Tensor], inputs: int) -> None:
        self.contexts, self.heads, self.values, self.inputs = contexts, list(heads), values, inputs
        self.before: list[Tensor] = []
        self.after: list[Tensor] = []

    def __call__(self, contexts: Tensor) -> Tensor:
        """Return the contexts of the next call with those of the heads replaced."""
        number = len(self.before)
        if number >= len(self.values) or self.values[number].numel() != contexts.numel():
            self.values = []  # other calls than those that were recorded
            return contexts
        changed = contexts.unflatten(-1, (self.contexts.heads, -1)).clone()
        own, values = changed[..., self.heads, :], self.values[number].to(contexts).view(contexts.shape)
        values = values.unflatten(-1, (self.contexts.heads, -1))[..., self.heads, :]
        changed[..., self.heads, :] = values
        for states, parts in ((own, self.before), (values, self.after)):
            parts.append(states.movedim(-2, 0).reshape(len(self.heads), self.inputs, -1))
        flat: Tensor = changed.flatten(-2)
        return flat

    def sizes(self) -> Tensor:
        """Return the smallest relative change of the heads (N,); 0 if the layer was not called as recorded."""
        if not self.before or len(self.before) != len(self.values):
            return torch.zeros(self.inputs)
        before, after = torch.cat(self.before, -1), torch.cat(self.after, -1)
        changes = relative_change(before.flatten(0, 1), after.flatten(0, 1)).unflatten(0, (len(self.heads), -1))
        return changes.amin(0).cpu()


def _others_mean(call: Tensor) -> Tensor:
    """Return for each of M inputs the mean of the contexts (M, ...) of all others."""
    return (call.float().sum(0) - call) / (len(call) - 1)


def _transpose(layer: str, pool: Sequence[Calls]) -> list[tuple[Tensor, ...]]:
    return list(zip(*(calls[layer] for calls in pool), strict=True))


def _shapes(calls: Calls) -> object:
    return tuple((layer, *(tuple(call.shape) for call in parts)) for layer, parts in calls.items())


def _size(calls: Calls) -> int:
    return sum(call.numel() for parts in calls.values() for call in parts)


def _is_longer(calls: Calls, short: Calls) -> bool:
    """Return whether all calls of a short input have a call that is at least as long, and not all are equal."""
    if calls.keys() != short.keys() or _shapes(calls) == _shapes(short):
        return False
    return all(
        len(calls[layer]) >= len(parts)
        and all(
            long.dim() == call.dim() and all(map(int.__ge__, long.shape, call.shape))
            for long, call in zip(calls[layer], parts, strict=False)
        )
        for layer, parts in short.items()
    )


def _cut(calls: Calls, short: Calls) -> Calls:
    """Return the contexts of a longer input at the positions of a short one."""
    return {
        layer: [long[tuple(map(slice, call.shape))] for long, call in zip(calls[layer], parts, strict=False)]
        for layer, parts in short.items()
    }


def _are_equal(calls: Calls, others: Calls) -> bool:
    """Return whether contexts are equal except for rounding."""
    return _shapes(calls) == _shapes(others) and all(
        bool((relative_change(call, other) < DIFFERENT).all())
        for layer, parts in calls.items()
        for call, other in zip(parts, others[layer], strict=True)
    )
