"""Which heads a model needs, alone and together.

The context of a head is replaced in two ways: by its context for another input (resampling, Chan et al. 2022, "Causal
scrubbing"), and by the mean over the other inputs; see `resampling`. An input is *affected* if its loss, summed over
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
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch

from regard.errors import InputError, plural
from regard.interpret.estimates import Estimate
from regard.interpret.resampling import Change, Head, Resampling
from regard.interpret.sentence_errors import RUN, error_bracket, is_reliable
from regard.result import percent
from regard.statistics import LEVEL, benjamini_hochberg, count_interval
from regard.viz.subject import Input, LearnedSubject

CHANGED = 0.1  # Change of the summed loss of an input, in nats, from which the input is affected
FEW = 0.01  # Share of affected inputs above which a model needs a head
MAX_TRIALS = 120  # Largest number of groups of heads that are switched off in each of the two searches
LEARNED = 0.7
"""Largest loss, as a fraction of that of untrained models, at which a model has learned enough for claims on
heads. Of 200 untrained models of five sizes, none is below this fraction of two others; 5.5 % are below 0.9."""
Need = Literal["needed", "not needed", "cannot be told"]
Group = tuple[Head, ...]


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
        sentences, open_heads = [], list[str]()
        unchanged: dict[str, list[str]] = {}
        for head, verdict in self.verdicts.items():
            change = self.changes.get(head)
            if head in self.silent:
                sentences.append(
                    f"{_name(head)} is not needed: it writes nothing, because its context is zero for all "
                    f"{self.inputs:,} inputs."
                )
            elif change is not None and change.reason:
                unchanged.setdefault(change.reason, []).append(_name(head))
            elif verdict == "cannot be told" or not is_reliable(verdict):
                open_heads.append(_name(head))
            else:
                sentences.append(
                    f"{_name(head)} is {verdict}{' on its own' * (verdict == 'not needed')}: with its output for "
                    f"another input, the loss of {self.shares[head].percent} of the inputs changes"
                    f"{error_bracket(verdict, self.origin)}."
                )
        sentences += [
            f"Whether the model needs {', '.join(names)} cannot be told: {reason}."
            for reason, names in unchanged.items()
        ]
        for kind, way, groups, test in (
            ("replace each other", "without all of them", self.replacing, "Prune one of them"),
            ("cancel each other", "if both are resampled", self.cancelling, "Prune both"),
        ):
            for group, share in groups:
                text = f"the loss of {share.percent} of the inputs changes {way}"
                names = " and ".join(map(_name, group))
                error = error_bracket(kind, self.origin)
                if is_reliable(kind):
                    sentences.append(f"{names} {kind}: {text}{error}.")
                else:
                    sentences.append(
                        f"Whether {names} {kind} cannot be told{error}: {text}. {test}, and examine the model again."
                    )
        if open_heads:
            enough = inputs_needed(len(self.verdicts))
            more = (
                f" {enough:,} inputs show that a head affects fewer than 1 % of them if none is affected."
                if self.inputs < enough
                else ""
            )
            sentences.append(
                f"Whether the model needs {', '.join(open_heads)} cannot be told from {self.inputs:,} inputs.{more}"
            )
        replaced = [change for change in self.changes.values() if not change.reason]
        if replaced:
            least = min(change.changed for change in replaced)
            size = min(change.size for change in replaced)
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


class _Ablation:
    """Counts the affected inputs of a subject when heads are resampled, or replaced by their mean."""

    def __init__(self, resampling: Resampling[Input]) -> None:
        self.resampling, self.inputs = resampling, resampling.inputs

    def __call__(self, heads: Group, *, mean: bool = False) -> tuple[int, Change]:
        losses, change = self.resampling.replace(heads, mean=mean)
        return int((np.abs(losses - self.resampling.losses) > CHANGED).sum()), change


@torch.inference_mode()
def find_needs(
    subject: LearnedSubject[Input], inputs: Sequence[Input], importance: dict[str, list[float]], *, seed: int = 0
) -> Needs:
    """Return which heads a subject needs, over some inputs. `importance`: orders the search, as `HeadImportance.added`.

    Nothing is claimed about a model that predicts little better than untrained ones.
    """
    components = subject.components
    remarks = [f"{name}: its heads cannot be resampled ({reason})." for name, reason in components.left_out.items()]
    resampling = Resampling(subject, inputs)
    affected, number = _Ablation(resampling), resampling.inputs
    heads = [(layer.name, head) for layer in subject.layers for head in range(layer.heads)]
    known = [head for head in heads if head[0] in resampling.layers]
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
        shares={head: _share(count, number) for head, (count, _) in alone.items()},
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
    replacing, tested = _find_replacing(affected, not_missed)
    needs.replacing.extend(replacing)
    # Heads that cancel each other have large effects alone, so the pairs begin with the most important heads.
    needed = [head for head in order[::-1] if needs.verdicts[head] == "needed"]
    pairs = list(itertools.combinations(needed, 2))
    for pair in pairs[:MAX_TRIALS]:
        count, change = affected(pair)
        if _is_below(count, number) and not change.reason:
            needs.cancelling.append((pair, _share(count, number)))
    if tested >= MAX_TRIALS or len(pairs) > MAX_TRIALS:
        remarks.append(f"The search for heads that replace or cancel each other stopped after {MAX_TRIALS} groups.")
    return needs


def decide(resampled: dict[Head, int], missed: dict[Head, int], inputs: int) -> dict[Head, Need]:
    """Return for each head whether it is needed, from the numbers of affected inputs with resampling and the mean.

    >>> decide({("cross", 0): 40, ("cross", 1): 40}, {("cross", 0): 30, ("cross", 1): 0}, 500)
    {('cross', 0): 'needed', ('cross', 1): 'cannot be told'}
    """
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


def _share(count: int, inputs: int) -> Estimate:
    interval = count_interval(count, inputs)
    assert interval.low is not None and interval.high is not None
    return Estimate(mean=interval.value, low=interval.low, high=interval.high)


def _find_replacing(affected: _Ablation, order: Sequence[Head]) -> tuple[list[tuple[Group, Estimate]], int]:
    """Return groups of heads that replace each other, and the number of groups that were switched off."""
    off: list[Head] = []
    groups: list[tuple[Group, Estimate]] = []
    tested = 0

    def affects(heads: Group) -> bool:
        nonlocal tested
        tested += 1
        # A small level, because the search tests many groups.
        return _tail(affected(heads, mean=True)[0], affected.inputs, above=True) <= 1e-4

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
            members = (*group, head)
            groups.append((members, _share(affected(members, mean=True)[0], affected.inputs)))
    return groups, tested


def not_learned(subject: LearnedSubject[Input], inputs: Sequence[Input], seed: int) -> str | None:
    """Return a sentence if the loss is not clearly below that of two untrained models, else None."""
    try:
        # Two, because one untrained model can have a low loss by chance.
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
