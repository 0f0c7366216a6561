"""Which heads a model needs, alone and together: one verdict for each head.

The context of a head is replaced in three ways: by its context for another input (resampling, Chan et al. 2022,
"Causal scrubbing"), by the mean over the other inputs, and by zero ("off"); see `Resampling`. An input is *affected*
if its loss, summed over the outputs, then changes by more than `CHANGED`. A way *affects* the model if more than `FEW`
of all inputs are affected (one-sided exact binomial tests of the counted inputs, with Benjamini and Hochberg's
correction over all heads). Nothing is said about a head whose context does not change in 95 % of the inputs.

No head alone shows three kinds of sets, which are therefore searched, with up to `MAX_SET` heads:

- Replacing each other: none is missed alone, and the mean or the absence of all of them affects the model. All heads
  that are not missed alone are replaced together, and the smallest sets are found by halving (Junker 2004,
  "QuickXplain"), all of them by leaving out each member in turn (Reiter 1987).
- Backups: a head of such a set does nothing unless the others are off. If it keeps what it writes for the unchanged
  model, the others are missed.
- Opposing each other: each affects the model alone, and both or all three together do not. The sets whose summed
  outputs are smallest, compared with those of the members, are tried first.

The verdict joins these results: a head of an opposing set *opposes* the others. Otherwise it is *needed* if other
inputs and the mean affect the model; a *backup for* others; *needed only together with* others; or *not needed* if
neither affects the model. All else cannot be told.
"""

import itertools
import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.errors import InputError, plural
from regard.interpret.estimates import RUN, Estimate, describe_error, is_reliable
from regard.result import percent
from regard.statistics import LEVEL, benjamini_hochberg, count_interval
from regard.viz.subject import Input, LearnedSubject, Subject

CHANGED = 0.1  # Change of the summed loss of an input, in nats, from which the input is affected
FEW = 0.01  # Share of affected inputs above which a model needs a head
MAX_TRIALS = 120  # Largest number of sets of heads that are replaced in each search
MAX_SET = 3  # Largest number of heads of a set
SEARCHED = 1e-4  # Level of a test in a search, which makes many tests
CANCELS, OTHER_PAIRS = 0.8, 20
"""Norm of the summed outputs of heads, as a fraction of that of independent ones, below which they may oppose each
other; and the number of other sets that are tried."""
STATES = 512  # Largest number of states over which the outputs of heads are compared
LEARNED = 0.7
"""Largest loss, as a fraction of that of untrained models, at which a model has learned enough for claims on
heads. Of 200 untrained models of five sizes, none is below this fraction of two others; 5.5 % are below 0.9."""
DIFFERENT = 1e-3
"""Difference of two contexts, as a fraction of the norm of the larger one, from which they differ. Rounding in
float32 gives differences below 1e-5."""
ENOUGH = 0.95  # Share of the inputs whose contexts must change before anything is said about a head
LONGER = 8  # Number of longer inputs that replace an input to which no other input is equal in length
SHIFTS = 32  # Number of other inputs that are tried as a partner with another context
BATCHES = (250, 64, 8, 1)
"""Numbers of inputs whose losses are computed together; the first that the subject computes in one pass."""
ContextCalls = list[tuple[str, Tensor]]
"""Layer and contexts (B, T, H Dv) of each call. A recurrent decoder calls its layer once for each step."""
Head = tuple[str, int]  # The name of a layer, and the index of a head
Need = Literal["needed", "needed only together", "backup", "opposes", "not needed", "cannot be told"]
SetKind = Literal["replace each other", "oppose each other"]
Group = tuple[Head, ...]
Way = Literal["off", "mean", "other"]
WAYS: dict[Way, str] = {
    "other": "with its output for another input",
    "mean": "with its mean over other inputs",
    "off": "without it",
}


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

    def replace(self, heads: Sequence[Head], way: Way = "other", own: Sequence[Head] = ()) -> tuple[np.ndarray, Change]:
        """Return the losses (N,) if the contexts of some heads are replaced, and for how many inputs those of all of
        them changed. The other input is one for which the contexts differ if there is one. The heads in `own` keep
        the contexts of the unchanged model, whatever the replaced heads do."""
        losses, sizes, replaced = [np.zeros(0)], [torch.zeros(0)], [*heads, *own]
        for group in self.groups:
            values = self._values(group, heads, way)
            missed = False
            for start in range(0, len(group.inputs), group.size):
                part = slice(start, start + group.size)
                pairs = [*zip(values, group.calls, strict=True)]
                waiting = {
                    name: [(new[part], old[part]) for (layer, new), (_, old) in pairs if layer == name]
                    for name, _ in replaced
                }

                def insert(name: str, contexts: Tensor, waiting: dict[str, Any] = waiting) -> Tensor:
                    if not waiting[name] or waiting[name][0][0].numel() != contexts.numel():
                        return contexts
                    changed = self.components.split(name, contexts).clone()
                    # The next call that was recorded.
                    for inserted, chosen in zip(waiting[name].pop(0), (heads, own), strict=True):
                        members = [head for layer, head in chosen if layer == name]
                        changed[..., members, :] = inserted.to(contexts).view_as(changed)[..., members, :]
                    flat: Tensor = changed.flatten(-2)
                    return flat

                with self.path(), self.components.replace_contexts(insert, waiting):
                    losses.append(self.subject.losses(group.inputs[part])[:, 0])
                missed |= any(waiting.values())
            if missed:  # the layer was not called as recorded
                sizes.append(torch.zeros(len(group.inputs)))
            elif heads:
                changed = [(self._vectors(group.calls, head), self._vectors(values, head)) for head in heads]
                sizes.append(torch.stack([relative_change(old, new) for old, new in changed]).amin(0))
        changes = torch.cat(sizes)
        size = float(changes.median()) if len(changes) else 0.0
        return np.concatenate(losses), Change(len(changes), int((changes >= DIFFERENT).sum()), size)

    def count_affected(self, heads: Group, way: Way = "other", own: Group = ()) -> tuple[int, Change]:
        """Return the number of affected inputs if `replace` changes the contexts of some heads, and the change."""
        losses, change = self.replace(heads, way, own)
        return int((np.abs(losses - self.losses) > CHANGED).sum()), change

    def outputs(self, heads: Sequence[Head]) -> dict[Head, Tensor]:
        """Return what heads add to the residual stream, minus the mean over the inputs, as one vector of each."""
        group = max(self.groups, key=lambda group: len(group.inputs))
        vectors = {}
        for layer in dict.fromkeys(layer for layer, _ in heads):
            parts = [self.components.split(layer, call) for name, call in group.calls if name == layer]
            states = sum(math.prod(part.shape[1:-2]) for part in parts)
            parts = [part[: max(STATES // max(states, 1), 2)] for part in parts]
            with torch.inference_mode():
                outputs = [self.components.heads[layer].outputs(part.flatten(0, -3)) for part in parts]
            split = [output.unflatten(0, part.shape[:-2]) for output, part in zip(outputs, parts, strict=True)]
            for head in (head for head in heads if head[0] == layer):
                written = [output[..., head[1], :].flatten(1).float() for output in split]
                vectors[head] = torch.cat([part - part.mean(0) for part in written], 1).flatten()
        return vectors

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

    def _values(self, group: _Group[Input], heads: Sequence[Head], way: Way) -> ContextCalls:
        """Return the contexts (N, B, T, H Dv) that replace those of a group of inputs."""
        if way == "off":
            return [(layer, torch.zeros_like(call)) for layer, call in group.calls]
        if way == "other":
            donors = self._donors(group, heads)
            return [(layer, call[donors]) for layer, call in group.pool]
        if group.pool is group.calls:  # without the input's own context, which would keep a part of what is replaced
            return [(layer, (call.float().sum(0) - call) / (len(call) - 1)) for layer, call in group.pool]
        return [(layer, call.float().mean(0).expand(len(group.inputs), *call.shape[1:])) for layer, call in group.pool]

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


class HeadSet(NamedTuple):
    """Heads whose effect shows together only."""

    kind: SetKind
    heads: Group
    way: Way  # How the heads were replaced together
    share: Estimate  # Share of affected inputs then; of opposing heads, of those whose loss rises
    backups: Group = ()  # Heads that act only if the others do not


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Which heads a model needs."""

    inputs: int  # Number of inputs with another input whose contexts can replace theirs
    shares: dict[Head, dict[Way, Estimate]] = field(default_factory=dict)
    """Share of affected inputs if each head is replaced, with its exact 95 % interval."""
    verdicts: dict[Head, Need] = field(default_factory=dict)
    sets: list[HeadSet] = field(default_factory=list)
    learned: bool = True  # Whether the model predicts clearly better than untrained models
    remarks: list[str] = field(default_factory=list)  # What was not searched or cannot be told, one sentence each
    changes: dict[Head, Change] = field(default_factory=dict)
    """What resampling each head changed, or its mean if this changed fewer inputs."""
    silent: list[Head] = field(default_factory=list)  # Heads whose context is zero for all inputs
    origin: str = RUN  # How the model was given, as `Traits.origin`; error rates are measured for some origins

    def partners(self, head: Head) -> list[str]:
        """Return the heads that a verdict names, one text for each set."""
        kind = "oppose each other" if self.verdicts[head] == "opposes" else "replace each other"
        is_backup = self.verdicts[head] == "backup"
        sets = [found for found in self.sets if found.kind == kind and head in found.heads]
        groups = [tuple(other for other in found.heads if other != head) for found in sets
                  if not is_backup or head in found.backups]  # fmt: skip
        return [" and ".join(map(name_head, group)) for group in dict.fromkeys(groups)]

    def verdict(self, head: Head) -> str:
        """Return the verdict on a head with the other heads that it names."""
        kind, partners = self.verdicts[head], " or ".join(self.partners(head))
        texts = {
            "needed only together": f"needed only together with {partners}",
            "backup": f"backup for {partners}",
            "opposes": f"opposes {partners}",
        }
        return texts.get(kind, kind)

    def sentences(self) -> list[str]:
        """Return one sentence for each head, then general remarks."""
        sentences, unclear = list[str](), defaultdict[str, list[str]](list)
        for head, verdict in self.verdicts.items():
            change, name = self.changes.get(head), name_head(head)
            if head in self.silent:
                reason = f"it writes nothing, because its context is zero for all {self.inputs:,} inputs"
                sentences.append(f"{name} is not needed: {reason}.")
            elif change is not None and change.reason:
                unclear[f": {change.reason}"].append(name)
            elif verdict == "cannot be told" or not is_reliable(verdict, self.origin):
                unclear[self._open(head)].append(name)
            else:
                sentences.append(f"{name}: {self.verdict(head)}; {self._evidence(head)}.")
        sentences += [
            f"Whether the model needs {', '.join(names)} cannot be told{reason}." for reason, names in unclear.items()
        ]
        if replaced := [change for change in self.changes.values() if not change.reason]:
            least, size = min(change.changed for change in replaced), min(change.size for change in replaced)
            sentences.append(
                f"The replaced contexts differed in {least:,} or more of {self.inputs:,} inputs, by a median of "
                f"{percent(size)} of their norm or more."
            )
        return sentences + self.remarks

    def _evidence(self, head: Head) -> str:
        shares = ", ".join(f"{share.percent} {WAYS[way]}" for way, share in self.shares[head].items())
        text = f"inputs whose loss changes: {shares}"
        for found in self.sets:
            if head in found.heads:
                together = {"off": "without", "mean": "with the means of", "other": "with another input's outputs of"}
                names = " and ".join(map(name_head, found.heads))
                text += f"; {found.share.percent} {together[found.way]} {names}"
                if backups := [name_head(backup) for backup in found.backups if head not in found.backups]:
                    text += f", where {' and '.join(backups)} acts only then"
        return text

    def _open(self, head: Head) -> str:
        """Return how many inputs would tell whether a head is needed."""
        heads, shares = len(self.verdicts), [self.shares[head][way].mean for way in ("other", "mean")]
        if self.verdicts[head] != "cannot be told":
            return f" ({self.verdicts[head]}, but {describe_error(self.verdicts[head], self.origin)})"
        if self.inputs < inputs_needed(heads) and max(shares) <= FEW:
            return f" from {self.inputs:,} inputs: {inputs_needed(heads):,} inputs would tell if none is affected"
        if min(shares) <= FEW < max(shares):
            return ": a wrong output and a missing output of it have different effects, so no number of inputs tells"
        numbers = (self.inputs << step for step in range(20))
        above = min(shares) > FEW
        tails = (
            (number, _tail(round((min if above else max)(shares) * number), number, above=above)) for number in numbers
        )
        enough = next((number for number, tail in tails if tail <= (1 - LEVEL) / heads), None)
        return f" from {self.inputs:,} inputs" + (f": about {enough:,} inputs would tell" if enough else "")


def inputs_needed(heads: int) -> int:
    """Return how many inputs, none of them affected, show that each of some heads affects fewer than 1 %.

    >>> inputs_needed(1), inputs_needed(8)
    (299, 505)
    """
    return math.ceil(math.log((1 - LEVEL) / max(heads, 1)) / math.log(1 - FEW))


def name_head(head: Head) -> str:
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
    number = resampling.inputs
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
    results = {way: {head: resampling.count_affected((head,), way) for head in known} for way in WAYS}
    counts = {way: {head: count for head, (count, _) in heads.items()} for way, heads in results.items()}
    needs = Needs(
        inputs=number,
        shares={head: {way: share_of(counts[way][head], number) for way in WAYS} for head in known},
        verdicts=dict.fromkeys(known, "cannot be told"),
        remarks=remarks,
        changes={head: min(results["other"][head][1], results["mean"][head][1]) for head in known},
        silent=[head for head in known if resampling.is_zero(head)],
        origin=subject.traits.origin,
    )
    if (reason := not_learned(subject, inputs, seed)) is not None:
        return replace(needs, learned=False, remarks=[*remarks, reason])
    if (resampling.unstable > CHANGED).mean() > FEW:
        remarks.append("The loss changes when it is computed again, so no effect of a head can be measured.")
        return needs
    changed = [head for head in known if not needs.changes[head].reason]
    resampled, missed = ({head: counts[way][head] for head in changed} for way in ("other", "mean"))
    alone = decide(resampled, missed, number)
    # The least important heads first: heads that replace each other seem unimportant.
    order = sorted(changed, key=lambda head: importance[head[0]][head[1]])
    search = _Search(resampling)
    for way in ("mean", "off"):
        told = {head for found in needs.sets for head in found.heads}
        pool = [head for head in order if _is_below(counts[way][head], number) and head not in told]
        needs.sets.extend(search.replacing(way, pool))
    strong = {
        way: [head for head in order if _is_above(counts[way][head], number) and alone[head] != "not needed"]
        for way in WAYS
    }
    needs.sets.extend(search.opposing(strong))
    remarks += search.remarks
    needs.verdicts.update({**_join(alone, needs.sets), **dict.fromkeys(needs.silent, "not needed")})
    return needs


def _join(alone: dict[Head, Need], sets: Sequence[HeadSet]) -> dict[Head, Need]:
    """Return one verdict on each head from the verdicts on single heads and the sets of heads."""
    verdicts = dict(alone)
    for found in sets:
        for head in found.heads:
            if found.kind == "oppose each other":
                verdicts[head] = "opposes"
            elif verdicts[head] not in ("needed", "opposes"):
                is_backup = head in found.backups and verdicts[head] != "needed only together"
                verdicts[head] = "backup" if is_backup else "needed only together"
    return verdicts


def share_of(count: int, inputs: int) -> Estimate:
    return Estimate.of(count_interval(count, inputs))


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


def _is_above(count: int, inputs: int) -> bool:
    return _tail(count, inputs, above=True) <= SEARCHED


class _Search:
    """Searches for sets of heads; each method replaces at most `MAX_TRIALS` sets."""

    def __init__(self, resampling: Resampling[Any]) -> None:
        self.resampling, self.remarks = resampling, list[str]()
        self.counts: dict[tuple[frozenset[Head], Way], int] = {}
        self.tests = 0

    def count(self, heads: Group, way: Way) -> int:
        key = frozenset(heads), way
        if key not in self.counts:
            self.tests += 1
            self.counts[key] = self.resampling.count_affected(heads, way)[0]
        return self.counts[key]

    def affects(self, heads: Group, way: Way) -> bool:
        return bool(heads) and _is_above(self.count(heads, way), self.resampling.inputs)

    def replacing(self, way: Way, order: Sequence[Head]) -> Iterator[HeadSet]:
        """Yield the sets of heads none of which is missed alone."""
        self.tests, found = 0, list[Group]()
        # One head of each set that was found stays on, until all other heads together have no effect. Then another
        # head of each set stays on, which shows the sets that share heads with it.
        waiting = deque[Head | None]([None])
        while waiting and self.tests < MAX_TRIALS:
            kept = waiting.popleft()
            others = {head for head, *rest in found if kept is None or kept not in rest}
            pool = tuple(head for head in order if head != kept and head not in others)
            # If all heads together have no effect, no set of them has one: the usual case ends after one test.
            if len(pool) < 2 or not self.affects(pool, way):
                continue
            found.append(group := self._smallest((), pool, way))
            waiting.extend(group[1:MAX_SET])
            if kept is None:
                waiting.appendleft(None)
            if len(group) <= MAX_SET:
                yield self._describe(group, way)
        large = [group for group in found if len(group) > MAX_SET]
        if large and len(large) == len(found):
            count = min(map(len, large))
            self.remarks.append(
                f"{count} heads that are not missed alone are missed together (replaced by: {way}), and no set of up "
                f"to {MAX_SET} of them is."
            )
        if waiting and self.tests >= MAX_TRIALS:
            self.remarks.append(f"The search for heads that replace each other stopped after {self.tests} sets.")

    def _smallest(self, base: Group, pool: Group, way: Way) -> Group:
        """Return a smallest part of a pool that has an effect together with the heads in `base`."""
        if self.affects(base, way):
            return ()
        if len(pool) == 1:
            return pool
        half = len(pool) // 2
        second = self._smallest((*base, *pool[:half]), pool[half:], way)
        first = self._smallest((*base, *second), pool[:half], way)
        return (*first, *second)

    def _describe(self, group: Group, way: Way) -> HeadSet:
        """Return a set with its backups: heads whose outputs of the unchanged model do not replace the others."""
        count, backups = self.count(group, way), list[Head]()
        for head in group:
            others = tuple(other for other in group if other != head)
            if 2 * self.resampling.count_affected(others, way, own=(head,))[0] > count:
                backups.append(head)
        share = share_of(count, self.resampling.inputs)
        return HeadSet("replace each other", group, way, share, tuple(backups) if len(backups) < len(group) else ())

    def opposing(self, strong: dict[Way, list[Head]]) -> Iterator[HeadSet]:
        """Yield sets of heads each of which has an effect alone, and which have none together. `strong`: the heads with
        an effect alone, by the way in which they are replaced."""
        self.tests = 0
        heads, found = list(dict.fromkeys(itertools.chain(*strong.values()))), list[set[Head]]()
        for group in _opposed(self.resampling.outputs(heads)) if len(heads) > 1 else ():
            if self.tests >= MAX_TRIALS:
                self.remarks.append(f"The search for heads that oppose each other stopped after {self.tests} sets.")
                return
            if any(known <= set(group) for known in found):
                continue
            for way in (way for way, members in strong.items() if set(group) <= set(members)):
                self.tests += 1
                losses, change = self.resampling.replace(group, way)
                # Count the inputs whose loss rises: heads that cancel each other in part can also lower it.
                count = len(losses) if change.reason else int((losses - self.resampling.losses > CHANGED).sum())
                if _is_below(count, self.resampling.inputs):
                    found.append(set(group))
                    yield HeadSet("oppose each other", group, way, share_of(count, self.resampling.inputs))
                    break


def _opposed(outputs: dict[Head, Tensor]) -> list[Group]:
    """Return pairs and sets of three heads whose outputs cancel each other, and some other pairs, the first first."""
    heads, squares = list(outputs), {head: float(vector.square().sum()) for head, vector in outputs.items()}

    def left(group: Group) -> float:
        """Return the norm of the summed outputs, as a fraction of that of independent ones."""
        vectors = [outputs[head] for head in group]
        if len({len(vector) for vector in vectors}) > 1:
            return 2.0  # heads of different streams
        total = float(torch.stack(vectors).sum(0).square().sum())
        return math.sqrt(total / max(sum(squares[head] for head in group), 1e-30))

    sums: dict[Group, float] = {pair: left(pair) for pair in itertools.combinations(heads, 2)}
    for pair in sorted(sums, key=lambda pair: sums[pair])[:MAX_TRIALS]:
        third = min((head for head in heads if head not in pair), key=lambda head: left((*pair, head)), default=None)
        if third is not None and (total := left((*pair, third))) < sums[pair]:
            sums[tuple(head for head in heads if head in (*pair, third))] = total
    ranked = sorted(sums, key=lambda group: (sums[group], len(group)))
    few = sum(total < CANCELS for total in sums.values()) + OTHER_PAIRS
    return ranked[:few]


def not_learned(subject: LearnedSubject[Input], inputs: Sequence[Input], seed: int) -> str | None:
    """Return a sentence if the loss is not clearly below that of four untrained models, else None."""
    try:
        # Four, because an untrained model can have a low loss by chance, if its parameters are large.
        untrained = [subject.untrained(seed + number).losses(inputs) for number in range(4)]
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
