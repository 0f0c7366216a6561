"""Which heads a model needs, alone and together.

The context of a head is replaced in two ways: by its context for another input of the same length (resampling,
Chan et al. 2022, "Causal scrubbing"), and by the mean over the inputs of this length. An input is *affected* if
its loss, summed over the outputs, then changes by more than `CHANGED`. A model *needs* a head if more than
`FEW` of all inputs are affected in both ways, and does not need it if fewer are in both ways (one-sided exact
binomial tests of the counted inputs, with Benjamini and Hochberg's correction over all heads). Otherwise it
cannot be told: of two heads that replace each other, a wrong value of one changes answers, and its absence does
not.

No head alone shows two kinds of groups, which are therefore searched:

- Heads that replace each other: none is missed alone, and the mean of all of them affects inputs. Such heads are
  switched off one after another, the least important first, as `prune` removes them. If a head affects inputs
  only after others are off, the smallest group with it is determined.
- Heads that cancel each other: each is needed, and resampling both affects no inputs.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from regard.errors import InputError
from regard.interpret.estimates import Estimate
from regard.interpret.sentence_errors import describe_error, is_reliable
from regard.result import percent
from regard.statistics import LEVEL, benjamini_hochberg, count_interval
from regard.viz.subject import Input, Subject

CHANGED = 0.1
"""Change of the summed loss of an input, in nats, from which the input is affected."""
FEW = 0.01
"""Share of affected inputs above which a model needs a head."""
MAX_TRIALS = 120
"""Largest number of groups of heads that are switched off in each of the two searches."""
LEARNED = 0.7
"""Largest loss, as a fraction of that of untrained models, at which a model has learned enough for claims on
heads. Of 200 untrained models of five sizes, none is below this fraction of two others; 5.5 % are below 0.9."""
Need = Literal["needed", "not needed", "cannot be told"]
Head = tuple[str, int]
Group = tuple[Head, ...]


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Which heads a model needs."""

    inputs: int
    """Number of inputs that have another input of the same length."""
    shares: dict[Head, Estimate] = field(default_factory=dict)
    """Share of affected inputs without each head, with its exact 95 % interval."""
    verdicts: dict[Head, Need] = field(default_factory=dict)
    replacing: list[tuple[Group, Estimate]] = field(default_factory=list)
    """Groups of heads that replace each other, with the share of affected inputs without the whole group."""
    cancelling: list[tuple[Group, Estimate]] = field(default_factory=list)
    """Pairs of heads that cancel each other, with the share of affected inputs without both."""
    learned: bool = True
    """Whether the model predicts clearly better than untrained models."""
    remarks: list[str] = field(default_factory=list)
    """What was not searched or cannot be told, one sentence each."""

    def sentences(self) -> list[str]:
        """Return one sentence for each head and group, with the measured error rate of its kind."""
        sentences, open_heads = [], []
        for head, verdict in self.verdicts.items():
            share = self.shares[head]
            if verdict == "cannot be told" or not is_reliable(verdict):
                open_heads.append(_name(head))
                continue
            sentences.append(
                f"{_name(head)} is {verdict}{' on its own' * (verdict == 'not needed')}: with its output for "
                f"another input, the loss of {share.percent} of the inputs changes ({describe_error(verdict)})."
            )
        for kind, way, groups, test in (
            ("replace each other", "without all of them", self.replacing, "Prune one of them"),
            ("cancel each other", "if both are resampled", self.cancelling, "Prune both"),
        ):
            for group, share in groups:
                text = f"the loss of {share.percent} of the inputs changes {way}"
                names = " and ".join(map(_name, group))
                if is_reliable(kind):
                    sentences.append(f"{names} {kind}: {text} ({describe_error(kind)}).")
                else:
                    sentences.append(
                        f"Whether {names} {kind} cannot be told ({describe_error(kind)}): {text}. {test}, and "
                        f"examine the model again."
                    )
        if open_heads:
            enough = inputs_needed(len(self.verdicts))
            more = (
                f" {enough:,} inputs show that a head affects fewer than 1 % of them if none is affected."
                if self.inputs < enough
                else ""
            )
            sentences.append(
                f"Whether the model needs {', '.join(open_heads)} cannot be told from {self.inputs:,} "
                f"inputs.{more}"
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


class _Ablation:
    """Counts affected inputs of a subject when heads are resampled."""

    def __init__(self, subject: Subject[Input], inputs: Sequence[Input]) -> None:
        self.subject, self.components = subject, subject.components
        groups: dict[object, list[Input]] = defaultdict(list)
        for input in inputs:
            groups[_shape(input)].append(input)
        # An input without another input of its length cannot be resampled.
        self.groups = [group for group in groups.values() if len(group) > 1]
        self.inputs = sum(map(len, self.groups))
        self.base = self._losses()

    def affected(self, heads: Group, *, mean: bool = False) -> int:
        """Return the number of inputs that are affected when heads are resampled, or replaced by their mean."""
        with ExitStack() as stack:
            for layer, members in itertools.groupby(sorted(heads), key=lambda head: head[0]):
                contexts = self.components.heads[layer]
                indices = [head for _, head in members]
                stack.enter_context(contexts.replace(_Change(contexts.heads, indices, mean)))
            return int((np.abs(self._losses() - self.base) > CHANGED).sum())

    def _losses(self) -> np.ndarray:
        return np.concatenate([self.subject.losses(group)[:, 0] for group in self.groups] or [np.zeros(0)])


@dataclass(frozen=True)
class _Change:
    """Gives each row of a batch the contexts (B, Tq, H Dv) of some heads from the next row, or their mean."""

    heads: int
    indices: Sequence[int]
    mean: bool

    def __call__(self, contexts: Tensor) -> Tensor:
        changed = contexts.unflatten(-1, (self.heads, -1)).clone()
        chosen = changed[..., self.indices, :]
        changed[..., self.indices, :] = chosen.mean(0, keepdim=True) if self.mean else chosen.roll(1, 0)
        flat: Tensor = changed.flatten(-2)
        return flat


def _shape(input: object) -> object:
    """Return what must be equal for two inputs to be resampled from each other: the lengths of their parts."""
    if isinstance(input, Tensor):
        return tuple(input.shape)
    if isinstance(input, tuple):
        return tuple(len(part) if isinstance(part, str | list | tuple) else None for part in input[:2])
    return getattr(input, "steps", None)


@torch.inference_mode()
def find_needs(
    subject: Subject[Input], inputs: Sequence[Input], importance: dict[str, list[float]], *, seed: int = 0
) -> Needs:
    """Return which heads a subject needs, over some inputs. `importance`: orders the search, as
    `HeadImportance.added`.

    Nothing is claimed about a model that predicts little better than untrained ones.
    """
    components = subject.components
    heads = [(layer.name, head) for layer in subject.layers for head in range(layer.heads)]
    known = [head for head in heads if head[0] in components.heads]
    ablation = _Ablation(subject, inputs)
    remarks = [
        f"{name}: its heads cannot be resampled ({reason})." for name, reason in components.left_out.items()
    ]
    if ablation.inputs < 2 or not known:
        remarks.append("No two inputs have the same length, so no head can be resampled: give more inputs.")
        return Needs(inputs=ablation.inputs, remarks=remarks)
    counts = {head: ablation.affected((head,)) for head in known}
    missed = {head: ablation.affected((head,), mean=True) for head in known}
    shares = {head: _share(count, ablation.inputs) for head, count in counts.items()}
    if (reason := not_learned(subject, inputs, seed)) is not None:
        return Needs(
            inputs=ablation.inputs,
            shares=shares,
            verdicts=dict.fromkeys(known, "cannot be told"),
            learned=False,
            remarks=[reason],
        )
    verdicts = decide(counts, missed, ablation.inputs)
    order = sorted(known, key=lambda head: importance[head[0]][head[1]])
    not_missed = [head for head in order if _is_below(missed[head], ablation.inputs)]
    replacing, tested = _find_replacing(ablation, not_missed)
    needed = [head for head in order[::-1] if verdicts[head] == "needed"]
    pairs = list(itertools.combinations(needed, 2))
    cancelling: list[tuple[Group, Estimate]] = [
        (pair, _share(count, ablation.inputs))
        for pair in pairs[:MAX_TRIALS]
        if _is_below(count := ablation.affected(pair), ablation.inputs)
    ]
    if tested >= MAX_TRIALS or len(pairs) > MAX_TRIALS:
        remarks.append(
            f"The search for heads that replace or cancel each other stopped after {MAX_TRIALS} groups."
        )
    return Needs(
        inputs=ablation.inputs,
        shares=shares,
        verdicts=verdicts,
        replacing=replacing,
        cancelling=cancelling,
        remarks=remarks,
    )


def decide(resampled: dict[Head, int], missed: dict[Head, int], inputs: int) -> dict[Head, Need]:
    """Return for each head whether it is needed, from the numbers of affected inputs with resampling and the
    mean.

    >>> decide({("cross", 0): 40, ("cross", 1): 40}, {("cross", 0): 30, ("cross", 1): 0}, 500)
    {('cross', 0): 'needed', ('cross', 1): 'cannot be told'}
    """
    # Both counts must show the claim, so its p-value is the larger one (Berger 1982, intersection-union test).
    above = benjamini_hochberg(
        [_tail(min(resampled[head], missed[head]), inputs, above=True) for head in resampled]
    )
    below = benjamini_hochberg(
        [_tail(max(resampled[head], missed[head]), inputs, above=False) for head in resampled]
    )
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


def _share(count: int, inputs: int) -> Estimate:
    interval = count_interval(count, inputs)
    assert interval.low is not None and interval.high is not None
    return Estimate(mean=interval.value, low=interval.low, high=interval.high)


def _find_replacing(ablation: _Ablation, order: Sequence[Head]) -> tuple[list[tuple[Group, Estimate]], int]:
    """Return groups of heads that replace each other, and the number of groups that were switched off."""
    off: list[Head] = []
    groups: list[tuple[Group, Estimate]] = []
    tested = 0

    def affects(heads: Group) -> bool:
        nonlocal tested
        tested += 1
        # A small level, because the search tests many groups.
        return _tail(ablation.affected(heads, mean=True), ablation.inputs, above=True) <= 1e-4

    if len(order) < 2 or not affects(tuple(order)):
        return [], tested
    for head in order:
        if tested >= MAX_TRIALS:
            break
        if not affects((*off, head)):
            off.append(head)
            continue
        group = [*off]
        for member in off:  # a member that can stay on without ending the effect is not part of the group
            if tested < MAX_TRIALS and affects((*(kept for kept in group if kept != member), head)):
                group.remove(member)
        if tested < MAX_TRIALS:
            members = (*group, head)
            groups.append((members, _share(ablation.affected(members, mean=True), ablation.inputs)))
    return groups, tested


def not_learned(subject: Subject[Input], inputs: Sequence[Input], seed: int) -> str | None:
    """Return a sentence if the loss is not clearly below that of two untrained models, else None."""
    try:
        untrained = [subject.untrained(seed + number).losses(inputs) for number in (0, 1)]
    except InputError:
        return None
    own, others = _mean(subject.losses(inputs)), [_mean(losses) for losses in untrained]
    if own <= LEARNED * min(others):
        return None
    return (
        f"The loss, {own:.3f}, is not below {percent(LEARNED, 0)} of that of untrained models "
        f"({min(others):.3f}): which heads the model needs cannot be told before it has learned more."
    )


def _mean(losses: np.ndarray) -> float:
    total, outputs = losses.sum(0)
    return float(total / max(outputs, 1))
