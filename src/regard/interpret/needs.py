"""Which heads a model needs, alone and together.

The context of a head is replaced in two ways: by its context for another input (resampling, Chan et al. 2022, "Causal
scrubbing"), and by the mean over the other inputs; see `Resampling`. An input is *affected* if its loss, summed over
the outputs, then changes by more than `CHANGED`. A model *needs* a head if more than `FEW` of all inputs are affected
in both ways, and does not need it if fewer are in both ways (one-sided exact binomial tests of the counted inputs, with
Benjamini and Hochberg's correction over all heads). Otherwise it cannot be told: of two heads that replace each other,
a wrong value of one changes answers, and its absence does not. Nothing is said about a head whose context does not
change in 95 % of the inputs; a head that writes zero for all inputs is not needed.

No head alone shows two kinds of groups, which are therefore searched:

- Heads that replace each other: none is missed alone, and the mean of all of them affects inputs. Such heads are
  switched off one after another, the least important first, as `prune` removes them. If a head affects inputs
  only after others are off, the smallest group with it is determined.
- Heads that cancel each other: each is needed, and resampling both affects no inputs.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import Any, Generic, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.errors import InputError, plural
from regard.interpret.estimates import RUN, Estimate, error_bracket, is_reliable
from regard.result import percent
from regard.statistics import LEVEL, benjamini_hochberg, count_interval
from regard.viz.subject import Input, LearnedSubject, Subject

CHANGED = 0.1  # Change of the summed loss of an input, in nats, from which the input is affected
FEW = 0.01  # Share of affected inputs above which a model needs a head
MAX_TRIALS = 120  # Largest number of groups of heads that are switched off in each of the two searches
LEARNED = 0.7
"""Largest loss, as a fraction of that of untrained models, at which a model has learned enough for claims on
heads. Of 200 untrained models of five sizes, none is below this fraction of two others; 5.5 % are below 0.9."""
DIFFERENT = 1e-3
"""Difference of two contexts, as a fraction of the norm of the larger one, from which they differ. Rounding in
float32 gives differences below 1e-5."""
ENOUGH = 0.95  # Share of the inputs whose contexts must change before anything is said about a head
LONGER = 8  # Number of longer inputs that replace an input to which no other input is equal in length
SHIFTS = 32  # Number of other inputs that are tried as a partner with another context
BATCHES = (250, 64, 1)
"""Numbers of inputs whose losses are computed together; the first that the subject computes in one pass."""
ContextCalls = list[tuple[str, Tensor]]
"""Layer and contexts (B, T, H Dv) of each call. A recurrent decoder calls its layer once for each step."""
Head = tuple[str, int]  # The name of a layer, and the index of a head
Need = Literal["needed", "not needed", "cannot be told"]
Group = tuple[Head, ...]


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
    """Replaces the contexts of heads of a subject over some inputs, and measures what the replacement changed.

    The contexts of all inputs are recorded beforehand, one input at a time. What replaces a context therefore does
    not depend on whether the subject computes losses in batches. Inputs replace each other if the contexts of all
    layers have equal shapes. Inputs without such a partner, or with equal ones only, take the contexts of the next
    `LONGER` longer inputs, cut to their own length; without a longer input they are left out.

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
            choose = partial(_others_mean, group) if mean else itemgetter(self._donors(group, heads))
            values = [(layer, choose(call)) for layer, call in group.pool]
            missed = False
            for start in range(0, len(group.inputs), group.size):
                part = slice(start, start + group.size)
                waiting = {name: [call[part] for layer, call in values if layer == name] for name, _ in heads}

                def insert(name: str, contexts: Tensor, waiting: dict[str, list[Tensor]] = waiting) -> Tensor:
                    if not waiting[name] or waiting[name][0].numel() != contexts.numel():
                        return contexts
                    changed = self.components.split(name, contexts).clone()
                    members = [head for layer, head in heads if layer == name]
                    inserted = waiting[name].pop(0).to(contexts)  # the next call that was recorded
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

    def count_affected(self, heads: Group, *, mean: bool = False) -> tuple[int, Change]:
        """Return the number of affected inputs if `replace` changes the contexts of some heads, and the change."""
        losses, change = self.replace(heads, mean=mean)
        return int((np.abs(losses - self.losses) > CHANGED).sum()), change

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
            changed = [relative_change(own, others[other]) >= DIFFERENT for own, others in pairs]
            differ = torch.stack([missing, *changed]).all(0)
            donors, missing = torch.where(differ, other, donors), missing & ~differ
            if not missing.any():
                break
        return donors


def _others_mean(group: _Group[Any], pool: Tensor) -> Tensor:
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


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Which heads a model needs."""

    inputs: int  # Number of inputs with another input whose contexts can replace theirs
    shares: dict[Head, Estimate] = field(default_factory=dict)
    """Share of affected inputs without each head, with its exact 95 % interval."""
    verdicts: dict[Head, Need] = field(default_factory=dict)
    replacing: list[tuple[Group, Estimate]] = field(default_factory=list)
    """Groups of heads that replace each other, with the share of affected inputs without the whole group."""
    cancelling: list[tuple[Group, Estimate]] = field(default_factory=list)
    """Pairs of heads that cancel each other, with the share of affected inputs without both."""
    learned: bool = True  # Whether the model predicts clearly better than untrained models
    remarks: list[str] = field(default_factory=list)  # What was not searched or cannot be told, one sentence each
    changes: dict[Head, Change] = field(default_factory=dict)
    """What resampling each head changed, or its mean if this changed fewer inputs."""
    silent: list[Head] = field(default_factory=list)  # Heads whose context is zero for all inputs
    origin: str = RUN  # How the model was given, as `Traits.origin`; error rates are measured for some origins

    def sentences(self) -> list[str]:
        """Return one sentence for each head and group, with the measured error rate of its kind."""
        sentences, open_heads, unchanged = list[str](), list[str](), defaultdict[str, list[str]](list)
        for head, verdict in self.verdicts.items():
            change, name = self.changes.get(head), _name(head)
            if head in self.silent:
                reason = f"it writes nothing, because its context is zero for all {self.inputs:,} inputs"
                sentences.append(f"{name} is not needed: {reason}.")
            elif change is not None and change.reason:
                unchanged[change.reason].append(name)
            elif verdict == "cannot be told" or not is_reliable(verdict):
                open_heads.append(name)
            else:
                affected, error = self.shares[head].percent, error_bracket(verdict, self.origin)
                sentences.append(
                    f"{name} is {verdict}{' on its own' * (verdict == 'not needed')}: with its output for another "
                    f"input, the loss of {affected} of the inputs changes{error}."
                )
        sentences += [
            f"Whether the model needs {', '.join(names)} cannot be told: {reason}."
            for reason, names in unchanged.items()
        ]
        for kind, way, groups, test in (
            ("replace each other", "without all of them", self.replacing, "Prune one of them"),
            ("cancel each other", "if both are resampled", self.cancelling, "Prune both"),
        ):
            names, error = [" and ".join(map(_name, group)) for group, _ in groups], error_bracket(kind, self.origin)
            for name, (_, share) in zip(names, groups, strict=True):
                text = f"the loss of {share.percent} of the inputs changes {way}"
                known = f"{name} {kind}: {text}{error}."
                unknown = f"Whether {name} {kind} cannot be told{error}: {text}. {test}, and examine the model again."
                sentences.append(known if is_reliable(kind) else unknown)
        if open_heads:
            enough = inputs_needed(len(self.verdicts))
            more = f" {enough:,} inputs show that a head affects fewer than 1 % of them if none is affected."
            text = f"Whether the model needs {', '.join(open_heads)} cannot be told from {self.inputs:,} inputs."
            sentences.append(text + more * (self.inputs < enough))
        if replaced := [change for change in self.changes.values() if not change.reason]:
            least, size = min(change.changed for change in replaced), min(change.size for change in replaced)
            sentences.append(
                f"The replaced contexts differed in {least:,} or more of {self.inputs:,} inputs, by a median of "
                f"{percent(size)} of their norm or more."
            )
        return sentences + self.remarks


def inputs_needed(heads: int) -> int:
    """Return how many inputs, none of them affected, show that each of some heads affects fewer than 1 %.

    >>> inputs_needed(1), inputs_needed(8)
    (299, 505)
    """
    return math.ceil(math.log((1 - LEVEL) / max(heads, 1)) / math.log(1 - FEW))


def _name(head: Head) -> str:
    return f"{head[0]} head {head[1]}"


@torch.inference_mode()
def find_needs(
    subject: LearnedSubject[Input], inputs: Sequence[Input], importance: dict[str, list[float]], *, seed: int = 0
) -> Needs:
    """Return which heads a subject needs, over some inputs. `importance`: orders the search, as `HeadImportance.added`.
    Nothing is claimed about a model that predicts little better than untrained ones."""
    components = subject.components
    remarks = [f"{name}: its heads cannot be resampled ({reason})." for name, reason in components.left_out.items()]
    resampling = Resampling(subject, inputs)
    affected, number = resampling.count_affected, resampling.inputs
    names = [layer for layer in subject.layers if layer.name in resampling.layers]
    known = [(layer.name, head) for layer in names for head in range(layer.heads)]
    remarks += [
        f"{layer}: its heads cannot be resampled (it does not run when the loss is computed)."
        for layer in components.heads
        if number and layer not in resampling.layers
    ]
    for count, text in (
        (resampling.alone, "had no other input of this length or longer"),
        (resampling.cut, "had no other input of this length, and took contexts of longer inputs, cut to their length"),
    ):
        if count and number:
            remarks.append(f"{plural(count, 'input')} {text}.")
    if not known:
        if components.heads:
            remarks.append(f"No head can be resampled, because {Change(number, 0, 0.0).reason}: give more inputs.")
        return Needs(inputs=number, remarks=remarks)
    # The context of another input is one that the model knows, but it can be equal in what matters. The mean has no
    # information about any input, but can be a context that the model never meets. A verdict needs both.
    alone = {head: affected((head,)) for head in known}
    missing = {head: affected((head,), mean=True) for head in known}
    needs = Needs(
        inputs=number,
        shares={head: Estimate.of(count_interval(count, number)) for head, (count, _) in alone.items()},
        verdicts=dict.fromkeys(known, "cannot be told"),
        remarks=remarks,
        changes={head: min(alone[head][1], missing[head][1]) for head in known},
        silent=[head for head in known if resampling.is_zero(head)],
        origin=subject.traits.origin,
    )
    if (reason := not_learned(subject, inputs, seed)) is not None:
        return replace(needs, learned=False, remarks=[*remarks, reason])
    if (resampling.unstable > CHANGED).mean() > FEW:
        remarks.append("The loss changes when it is computed again, so no effect of a head can be measured.")
        return needs
    changed = [head for head in known if not needs.changes[head].reason]
    counts = {head: alone[head][0] for head in changed}
    missed = {head: missing[head][0] for head in changed}
    needs.verdicts.update({**decide(counts, missed, number), **dict.fromkeys(needs.silent, "not needed")})
    # The least important heads first: heads that replace each other seem unimportant, so few groups are tried.
    order = sorted(changed, key=lambda head: importance[head[0]][head[1]])
    not_missed = [head for head in order if _is_below(missed[head], number)]
    replacing, tested = _find_replacing(resampling, not_missed)
    needs.replacing.extend(replacing)
    # Heads that cancel each other have large effects alone, so the pairs begin with the most important heads.
    needed = [head for head in order[::-1] if needs.verdicts[head] == "needed"]
    pairs = list(itertools.combinations(needed, 2))
    for pair in pairs[:MAX_TRIALS]:
        count, change = affected(pair)
        if _is_below(count, number) and not change.reason:
            needs.cancelling.append((pair, Estimate.of(count_interval(count, number))))
    if tested >= MAX_TRIALS or len(pairs) > MAX_TRIALS:
        remarks.append(f"The search for heads that replace or cancel each other stopped after {MAX_TRIALS} groups.")
    return needs


def decide(resampled: dict[Head, int], missed: dict[Head, int], inputs: int) -> dict[Head, Need]:
    """Return for each head whether it is needed, from the numbers of affected inputs with resampling and the mean."""
    # Both counts must show the claim, so its p-value is the larger one (Berger 1982, intersection-union test).
    above = benjamini_hochberg([_tail(min(resampled[head], missed[head]), inputs, above=True) for head in resampled])
    below = benjamini_hochberg([_tail(max(resampled[head], missed[head]), inputs, above=False) for head in resampled])
    verdicts: dict[Head, Need] = {}
    for head, high, low in zip(resampled, above, below, strict=True):
        verdicts[head] = "needed" if high <= 1 - LEVEL else "not needed" if low <= 1 - LEVEL else "cannot be told"
    return verdicts


def _tail(count: int, inputs: int, *, above: bool) -> float:
    """Return the probability of at least (`above`) or at most `count` affected inputs if `FEW` of all are."""
    from scipy.special import bdtr, bdtrc  # SciPy takes long to import

    return float((1.0 if count == 0 else bdtrc(count - 1, inputs, FEW)) if above else bdtr(count, inputs, FEW))


def _is_below(count: int, inputs: int) -> bool:
    return _tail(count, inputs, above=False) <= 1 - LEVEL


def _find_replacing(resampling: Resampling[Any], order: Sequence[Head]) -> tuple[list[tuple[Group, Estimate]], int]:
    """Return groups of heads that replace each other, and the number of groups that were switched off."""
    off, groups, tested = list[Head](), list[tuple[Group, Estimate]](), 0

    def affects(heads: Group) -> bool:
        nonlocal tested
        tested += 1
        # A small level, because the search tests many groups.
        return _tail(resampling.count_affected(heads, mean=True)[0], resampling.inputs, above=True) <= 1e-4

    # If all heads together have no effect, no group of them has one: the usual case ends after one test.
    if len(order) < 2 or not affects(tuple(order)):
        return [], tested
    for head in order:
        if tested >= MAX_TRIALS:
            break
        # Heads are switched off one after the other. The head that makes a difference completes a group.
        if not affects((*off, head)):
            off.append(head)
            continue
        group = [*off]
        for member in off:  # a member that can stay on without ending the effect is not part of the group
            if tested < MAX_TRIALS and affects((*(kept for kept in group if kept != member), head)):
                group.remove(member)
        if tested < MAX_TRIALS:
            count, _ = resampling.count_affected(members := (*group, head), mean=True)
            groups.append((members, Estimate.of(count_interval(count, resampling.inputs))))
    return groups, tested


def not_learned(subject: LearnedSubject[Input], inputs: Sequence[Input], seed: int) -> str | None:
    """Return a sentence if the loss is not clearly below that of two untrained models, else None."""
    try:
        # Two, because one untrained model can have a low loss by chance.
        untrained = [subject.untrained(seed + number).losses(inputs) for number in (0, 1)]
    except InputError:
        return None
    sums = [losses.sum(0) for losses in (subject.losses(inputs), *untrained)]
    own, *others = (float(total / max(outputs, 1)) for total, outputs in sums)
    if own <= LEARNED * min(others):
        return None
    return (
        f"The loss, {own:.3f}, is not below {percent(LEARNED, 0)} of that of untrained models "
        f"({min(others):.3f}): which heads the model needs cannot be told before it has learned more."
    )
