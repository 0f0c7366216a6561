"""Describe the keys to which each head attends, with the evidence.

A role is defined by a set of keys to which a head with this role attends, such as the previous step or the
inputs on which the answer depends. Its strength (see `role_strengths`) is 0 for uniform attention, and 1 for
attention to only the role's keys. A head with the same weights in random order has the mean strength 0. For the
role "what the answer depends on", the description says "perhaps at fixed steps" if attention to the relevant inputs
is not shown to exceed attention to another sample's. A head is described only if the 95 % interval lies above the
threshold of this kind of role (set by `benchmarks/sentences.py`) and above the strength of every head of the same
model before training. A head that divides its attention between two steps is described by both. Symbols are known
if the steps have names. Letters: Tq queries, Tk keys.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table
from rich.text import Text

from regard.arguments import public
from regard.attention.descriptions import describe_model
from regard.errors import InputError, check_range
from regard.interpret.estimates import (
    NOT_MEASURED,
    RUN,
    Estimate,
    describe_error,
    estimate,
    is_reliable,
    p_above,
    rate_of,
    resample_counts,
    tell_with,
    threshold,
)
from regard.result import Result, plain_table, signed, to_plain
from regard.statistics import LEVEL, benjamini_hochberg
from regard.viz.maps import CROSS, LayerMap
from regard.viz.subject import Input, LearnedSubject, Subject

SEPARATORS = ("</s>", "<s>")
MAX_SEARCHED = 40  # Number of positions, and of most frequent symbols, that are searched

Targets = Callable[[LayerMap, np.ndarray], np.ndarray | None]
"""Takes a layer and its visible keys (Tq, Tk); returns the role's keys, (Tq, Tk) bool, or None."""


def _offset(layer: LayerMap, seen: np.ndarray, offset: int) -> np.ndarray | None:
    return None if layer.kind == CROSS else np.eye(seen.shape[0], seen.shape[1], offset, dtype=bool)


def _has_symbols(layer: LayerMap) -> bool:
    """Return whether the keys have names; an external model without names numbers them."""
    return any(label != str(index) for index, label in enumerate(layer.key_labels))


def _same_symbol(layer: LayerMap, seen: np.ndarray | None = None) -> np.ndarray | None:
    if layer.kind == CROSS or len(set(layer.weights.shape[1:])) > 1 or not _has_symbols(layer):
        return None
    labels = np.array(layer.key_labels, dtype=object)
    return np.asarray((labels[:, None] == labels[None, :]) & ~np.eye(len(labels), dtype=bool))


def induction_keys(layer: LayerMap) -> np.ndarray | None:
    """Return the keys (Tq, Tk) that follow earlier occurrences of the query's symbol; None for cross-attention. A head
    with this role is an induction head (Olsson et al. 2022)."""
    if (same := _same_symbol(layer)) is None:
        return None
    # The keys that follow are the keys of earlier occurrences, shifted by one.
    before = np.tril(same, -1)
    followers: np.ndarray = np.pad(before, ((0, 0), (1, 0)))[:, :-1] & np.tril(np.ones_like(before), -1)
    return followers


def _followers(layer: LayerMap, seen: np.ndarray) -> np.ndarray | None:
    """Return `induction_keys`, and the query's own step if the symbol before it is equal."""
    if (keys := induction_keys(layer)) is None:
        return None
    labels = np.array(layer.key_labels, dtype=object)
    repeated: np.ndarray = np.concatenate([[False], labels[1:] == labels[:-1]])
    # Without the second "a" of "aa", an exact induction head has a strength of 0.5 only on texts of three symbols.
    followers: np.ndarray = keys | np.diag(repeated)
    return followers


def _diagonal(layer: LayerMap, seen: np.ndarray, backwards: bool) -> np.ndarray | None:
    if layer.kind != CROSS or seen.shape[0] < 3:  # two steps have a first and a last one, and no direction
        return None
    inputs = sum(label not in SEPARATORS for label in layer.key_labels)
    outputs = sum(label not in SEPARATORS for label in layer.query_labels)
    # The positions are relative, because input and output may differ in length.
    position = np.round(np.arange(seen.shape[0]) * (inputs - 1) / max(outputs - 1, 1))
    position = inputs - 1 - position if backwards else position
    diagonal: np.ndarray = np.arange(seen.shape[1])[None, :] == position[:, None]
    return diagonal


def _position(layer: LayerMap, seen: np.ndarray, position: int) -> np.ndarray | None:
    # Only the last query of a causal layer sees the last step: a head that attends to its own step would seem to
    # attend to this step, whatever the query.
    if position >= seen.shape[1] or 2 * seen[:, position].sum() < len(seen):
        return None
    keys: np.ndarray = np.arange(seen.shape[1])[None, :].repeat(seen.shape[0], 0) == position
    return keys


def _either(layer: LayerMap, seen: np.ndarray, first: Targets, second: Targets) -> np.ndarray | None:
    keys, others = first(layer, seen), second(layer, seen)
    return None if keys is None or others is None else keys | others


def _symbol(layer: LayerMap, seen: np.ndarray, symbols: Sequence[str]) -> np.ndarray:
    return np.isin(np.array(layer.key_labels), symbols)[None, :].repeat(seen.shape[0], 0)


RELEVANT = "what the answer depends on"
REPEATED = ("what followed the same symbol before", "other steps with the same symbol")
FIXED: dict[str, Targets] = {
    "its own step": partial(_offset, offset=0),
    "the previous step": partial(_offset, offset=-1),
    "the next step": partial(_offset, offset=1),
    "what followed the same symbol before": _followers,
    "other steps with the same symbol": _same_symbol,
    RELEVANT: lambda layer, seen: layer.relevant,
    "the same relative position in the input": partial(_diagonal, backwards=False),
    "the same relative position from the end of the input": partial(_diagonal, backwards=True),
    "the input at the output's index": lambda layer, seen: (
        np.eye(*seen.shape, dtype=bool) if layer.kind == CROSS else None
    ),
    "the first step": partial(_position, position=0),
    "the end of the sequence": partial(_symbol, symbols=SEPARATORS),
}
"""Roles that need no search, the most specific role first: it is used if two fit equally well."""
AT_STEPS = f"{RELEVANT}, perhaps at fixed steps"
"""Role instead of `RELEVANT` of a head that is not shown to attend less to another sample's relevant inputs."""
PAIRED: dict[str, Targets] = {
    f"{first} or {second}": partial(_either, first=FIXED[first], second=FIXED[second])
    for first, second in (
        ("its own step", "the previous step"),
        ("its own step", "the next step"),
        ("the previous step", "the next step"),
        ("its own step", "the first step"),
        ("the previous step", "the first step"),
    )
}
"""Roles of heads that divide their attention, if no single role fits."""
UNIFORM = "everything alike"
KINDS: dict[str, str] = {
    "its own step": "nearby step",
    "the previous step": "nearby step",
    "the next step": "nearby step",
    "what followed the same symbol before": "induction",
    "other steps with the same symbol": "same symbol",
    RELEVANT: RELEVANT,
    AT_STEPS: RELEVANT,
    UNIFORM: "everything alike",
    **dict.fromkeys(PAIRED, "two steps"),
}
"""Kind of sentence of each role; error rates are measured by kind."""

ROLE_KINDS = tuple(dict.fromkeys([*KINDS.values(), "position", "symbol"]))


def role_kind(role: str) -> str:
    """Return the kind of sentence that names a role.

    >>> role_kind("step 3, with any symbol"), role_kind("the symbol 'B', at any step")
    ('position', 'symbol')
    """
    if role.startswith("the symbol ") or role == "the end of the sequence":
        return "symbol"
    return KINDS.get(role, "position")


def searched_roles(maps: Sequence[LayerMap]) -> dict[str, Targets]:
    """Return a role for each position, and a role for each frequent symbol at any position."""
    longest = max(sample.weights.shape[2] for sample in maps)
    named = filter(_has_symbols, maps)
    counts = Counter(label for sample in named for label in set(sample.key_labels) - set(SEPARATORS))
    # Only frequent symbols are searched, because a rare symbol explains little of a head's attention.
    common = [label for label, count in counts.items() if count >= len(maps) / 2]
    frequent = sorted(common, key=lambda label: -counts[label])[:MAX_SEARCHED]
    roles: dict[str, Targets] = {
        f"step {position}, with any symbol": partial(_position, position=position)
        for position in range(1, min(longest, MAX_SEARCHED))
    }
    return roles | {f"the symbol {label!r}, at any step": partial(_symbol, symbols=[label]) for label in frequent}


# Strength of a role in a sample: (mass on the role's keys - fraction of these keys) / (1 - fraction of these keys). The
# position or symbol of a head is chosen on a quarter of the samples, and its strength is measured on the others.

LEAST = 0.25  # Smallest strength of which an interval is computed; thresholds are larger
EVEN = 0.02  # Largest fraction of the weight of a uniform head that may differ from uniform attention


class RoleCandidate(NamedTuple):
    """A role that a head may have."""

    name: str
    values: np.ndarray  # (N,) strength for each sample, NaN for samples in which it is undefined
    strength: Estimate
    untrained: float  # Largest strength over all heads of the layer in untrained models


class HeadCandidates(NamedTuple):
    """The roles that a head may have."""

    layer: str
    head: int
    candidates: list[RoleCandidate]
    deviation: Estimate | None
    """Fraction of the weight of a uniform head that differs from uniform attention; None for other heads."""


def measure_candidates(
    maps: Sequence[Mapping[str, LayerMap]], untrained: Sequence[Sequence[Mapping[str, LayerMap]]], seed: int = 0
) -> list[HeadCandidates]:
    """Return the roles that each head may have, from the layers of each input, and those of untrained models."""
    heads = []
    for layer in maps[0]:
        own = [sample[layer] for sample in maps]
        before = [[sample[layer] for sample in model] for model in untrained]
        draw = resample_counts(len(own), seed)
        searchable = searched_roles(own)
        roles = {**FIXED, **PAIRED, **searchable}
        strengths = role_strengths(roles, own)
        # Every fourth sample, so that both parts have inputs of all lengths even if the inputs are sorted by length.
        chosen = {name: strengths[name][:, ::4].copy() for name in searchable}
        for name in searchable:
            strengths[name][:, ::4] = np.nan
        null = [role_strengths(roles, model) for model in before]
        # The largest strength of all untrained heads, so that the comparison is valid for any number of heads.
        bars = {name: max((_mean(o) for model in null for o in model[name]), default=-np.inf) for name in roles}
        bars[AT_STEPS], strengths[AT_STEPS] = bars[RELEVANT], strengths[RELEVANT]
        least = min(np.mean([uniform_deviation(o.weights) for o in model], 0).min() for model in before)
        deviations = np.stack([uniform_deviation(sample.weights) for sample in own], 1)
        on_others = role_strengths({name: FIXED[name] for name in (*REPEATED, RELEVANT)}, _with_answers_of_next(own))
        for head in range(len(own[0].weights)):
            # A step that fewer than half of the inputs have, or a symbol in fewer of them, describes few of them.
            known = [name for name in searchable if 2 * np.isfinite(values := chosen[name][head]).sum() >= len(values)]
            best = sorted(known, key=lambda name: -_mean(chosen[name][head]))[:1]
            # As much attention for another sample: it can attend to positions, which describe it better.
            beyond = {name: estimate(strengths[name][head] - other[head], draw) for name, other in on_others.items()}
            excluded = {name for name, more in beyond.items() if (more.low <= 0 if more else name == RELEVANT)}
            excluded |= set() if RELEVANT in excluded else {AT_STEPS}
            described = [
                RoleCandidate(name, strengths[name][head], strength, bars[name])
                for name in [*FIXED, *PAIRED, *best, AT_STEPS]
                if name not in excluded and (strength := _estimate(strengths[name][head], draw)) is not None
            ]
            deviation = estimate(deviations[head], draw)
            # No head counts as uniform if a head of an untrained model is.
            is_uniform = deviation is not None and deviation.high < min(EVEN, least / 2)
            heads.append(HeadCandidates(own[0].name, head, described, deviation if is_uniform else None))
    return heads


def _estimate(values: np.ndarray, draw: np.ndarray) -> Estimate | None:
    """Return the strength with its interval, or without one if it is too small for any role, which saves time."""
    if (mean := _mean(values)) < LEAST:
        return None if mean == -np.inf else Estimate(mean=mean, low=-np.inf, high=np.inf)
    return estimate(values, draw)


def _with_answers_of_next(maps: Sequence[LayerMap]) -> list[LayerMap]:
    """Return maps with the symbols and the relevant inputs of the next sample, cut to the common steps and inputs."""
    permuted = []
    for own, other in zip(maps, [*maps[1:], *maps[:1]], strict=True):
        relevant = None if own.relevant is None else np.zeros_like(own.relevant)
        if relevant is not None and other.relevant is not None:
            part = tuple(slice(min(sizes)) for sizes in zip(relevant.shape, other.relevant.shape, strict=True))
            relevant[part] = other.relevant[part]
        labels = [*(other.key_labels or ()), *(f"\0{step}" for step in range(own.weights.shape[2]))]
        permuted.append(replace(own, relevant=relevant, key_labels=labels[: own.weights.shape[2]]))
    return permuted


def role_strengths(roles: Mapping[str, Targets], maps: Sequence[LayerMap]) -> dict[str, np.ndarray]:
    """Return the strength of every role for each head and sample, (H, N); NaN if the role has no keys or all keys."""
    strengths = {name: np.full((len(maps[0].weights), len(maps)), np.nan) for name in roles}
    for number, layer in enumerate(maps):
        # Keys to which no head attends are masked.
        seen = np.asarray((layer.weights != 0).any(0))
        total = np.maximum(seen.sum(1), 1)
        for name, targets in roles.items():
            if (keys := targets(layer, seen)) is None:
                continue
            wanted = keys & seen
            share = wanted.sum(1) / total
            counted = (share > 0) & (share < 1)
            if counted.any():
                share, weights, wanted = share[counted], layer.weights[:, counted], wanted[counted]
                mass = np.einsum("hqk,qk->hq", weights, wanted.astype(weights.dtype))
                strengths[name][:, number] = ((mass - share) / (1 - share)).mean(1)
    return strengths


def uniform_deviation(weights: np.ndarray) -> np.ndarray:
    """Return the fraction (...) of the weight of heads (..., Tq, Tk) that differs from uniform attention."""
    seen = weights != 0
    deviation: np.ndarray = np.abs(weights - seen / np.maximum(seen.sum(-1, keepdims=True), 1)).sum(-1).mean(-1) / 2
    return deviation


def _mean(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else -np.inf


MIN_SAMPLES = 10  # Smallest number of samples
UNTRAINED, UNTRAINED_INPUTS = 2, 30
"""Number of untrained models whose heads are compared with the trained heads, and largest number of their inputs."""
UNNAMED = "Roles that name symbols cannot be told: the steps of the inputs have no names (`names` of regard.look)."


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class HeadRole:
    """The role of one head."""

    layer: str
    head: int
    role: str | None
    """Keys to which the head attends; None if no role has enough evidence."""
    strength: Estimate | None
    """Strength of the role (0 to 1), None without a role; of a uniform head, the fraction of weight that differs."""
    untrained: float
    """Largest strength of this role over all heads of the layer in untrained models."""
    origin: str = RUN
    """How the model was given, as `Traits.origin`."""
    perhaps: str = ""
    """A role that more inputs may show, with their number; or empty."""

    @property
    def description(self) -> str:
        """The role as text."""
        if self.role is None:
            return f"cannot be told, perhaps {self.perhaps}" if self.perhaps else "no role found"
        return self.role if self.is_reliable else f"cannot be told, perhaps {self.role}"

    @property
    def is_reliable(self) -> bool:
        """Whether the error rate of such descriptions is low."""
        return self.role is None or is_reliable(role_kind(self.role), self.origin)

    @property
    def wrong(self) -> str:
        """How many of 100 such descriptions are wrong, with the interval; empty without a role."""
        if self.role is None:
            return ""
        rate = rate_of(role_kind(self.role), self.origin)
        return NOT_MEASURED if rate is None else rate.percent


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class HeadRoles(Result):
    """The roles of a model's heads."""

    task: str
    samples: int
    heads: list[HeadRole]
    remark: str = ""
    """What distinguishes the weights from those of a softmax; empty for a softmax."""

    def of(self, layer: str, head: int) -> HeadRole:
        """Return the role of one head; raises `InputError` for an unknown head."""
        for role in self.heads:
            if (role.layer, role.head) == (layer, head):
                return role
        raise InputError(f"{layer} head {head} is not in the model")

    def summary(self) -> str:
        described = sum(role.role is not None and role.is_reliable for role in self.heads)
        return f"{self.task}: {described} of {len(self.heads)} heads have a role, over {self.samples} samples"

    def table(self, added: Mapping[str, Sequence[float]] | None = None) -> Table:
        """Return a table with one row for each head.

        `added`: by layer, the loss increase when each head is disabled. The table then has a column with the
        loss increase, and the most important heads are first.
        """
        columns = ["layer", "head", *(["off: loss"] if added else []), "attends to", "strength", "untrained", "wrong"]
        title, notes = "What each head attends to (0: uniform attention; 1: nothing else)", "\n".join(self._notes())
        table = plain_table(columns, title=title, caption=notes, caption_justify="left")
        for role in self.sorted(added) if added else self.heads:
            strength = "" if role.strength is None or role.role is None else str(role.strength)
            null = f"{role.untrained:.3f}" if strength else ""
            loss = [signed(added[role.layer][role.head], 4)] if added else []
            table.add_row(role.layer, str(role.head), *loss, Text(role.description), strength, null, role.wrong)
        return table

    def _notes(self) -> list[str]:
        notes = [f"Note: {self.remark}"] if self.remark else []
        notes.append("wrong: of 100 such descriptions of heads of known models, with its 95 % interval")
        if not all(role.is_reliable for role in self.heads):
            notes.append("cannot be told without a number of inputs: more than 7 of 100 such descriptions may be wrong")
        return notes

    def sorted(self, added: Mapping[str, Sequence[float]]) -> list[HeadRole]:
        """Return the heads in decreasing order of the loss increase when each head is disabled."""
        return sorted(self.heads, key=lambda role: -added[role.layer][role.head])

    def by_layer(self) -> dict[str, list[dict[str, Any]]]:
        """Return the roles by layer, in the format of the page: `RoleData` of `regard.viz.page`."""
        layers: dict[str, list[dict[str, Any]]] = {}
        for role in self.heads:
            data = {"role": role.role, "strength": to_plain(role.strength), "untrained": role.untrained}
            data["error"] = "" if role.role is None else describe_error(role_kind(role.role), role.origin)
            data["reliable"] = role.is_reliable
            layers.setdefault(role.layer, []).append(data)
        return layers


def head_roles(
    subject: LearnedSubject[Input],
    *,
    samples: int = 100,
    seed: int = 0,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> HeadRoles:
    """Describe every head of a subject, over unseen inputs. `on_progress` is called with the number of processed inputs
    and their total. Raises `InputError` for a model without attention, or if there are fewer than two unseen inputs."""
    check_range("samples", samples, MIN_SAMPLES, 10**5)
    if not subject.layers:
        raise InputError("the model has no heads: train a model with attention")
    inputs = subject.unseen(samples, seed, purpose="roles")
    if len(inputs) < 2:
        raise InputError(f"roles need at least two inputs, got {len(inputs)}: give more inputs")
    first = inputs[:UNTRAINED_INPUTS]
    done, total = count(1), len(inputs) + UNTRAINED * len(first)
    on_progress(0, total)

    def look(subject: Subject[Input], input: Input) -> dict[str, LayerMap]:
        layers = subject.look(input).layers
        on_progress(next(done), total)
        return layers

    maps = [look(subject, input) for input in inputs]
    is_named = any(_has_symbols(layer) for sample in maps for layer in sample.values())
    models = (subject.untrained(seed + number) for number in range(UNTRAINED))
    found = measure_candidates(maps, [[look(model, input) for input in first] for model in models], seed)
    return HeadRoles(
        task=subject.name,
        samples=len(inputs),
        heads=[
            replace(role, origin=subject.traits.origin)
            for role in choose_roles(found, {kind: threshold(kind) for kind in ROLE_KINDS})
        ],
        remark=" ".join(filter(None, (describe_model(subject.model), "" if is_named else UNNAMED))),
    )


def choose_roles(heads: Sequence[HeadCandidates], thresholds: Mapping[str, float]) -> list[HeadRole]:
    """Return the role of each head. The lower end of its interval must exceed the threshold of its kind, also after
    Benjamini and Hochberg's correction over all roles of all heads."""

    def bar_of(role: RoleCandidate) -> float:
        return max(thresholds[role_kind(role.name)], role.untrained)

    tested = [(number, role) for number, head in enumerate(heads) for role in head.candidates]
    bars = [bar_of(role) for _, role in tested]
    adjusted = benjamini_hochberg([p_above(role.values, bar) for (_, role), bar in zip(tested, bars, strict=True)])
    fitting: dict[int, list[RoleCandidate]] = {}
    for (number, role), bar, p_value in zip(tested, bars, adjusted, strict=True):
        if role.strength.low > bar and p_value <= (1 - LEVEL) / 2:
            fitting.setdefault(number, []).append(role)
    chosen = []
    for number, head in enumerate(heads):
        place, candidates = dict[str, Any](layer=head.layer, head=head.head), fitting.get(number, [])
        if candidates := [role for role in candidates if role.name not in PAIRED] or candidates:
            # Of roles within 0.05 of the strongest, the first is the most specific one: FIXED is in order of
            # specificity.
            most = max(role.strength.mean for role in candidates)
            best = next(role for role in candidates if role.strength.mean > most - 0.05)
            place |= {"role": best.name, "strength": best.strength, "untrained": max(best.untrained, 0.0)}
        else:
            uniform = None if head.deviation is None else UNIFORM
            place |= {"role": uniform, "strength": head.deviation, "untrained": 0.0}
            likely = [role for role in head.candidates if role.strength.mean > bar_of(role)]
            if uniform is None and likely:
                best, size = max(likely, key=lambda role: role.strength.mean), len(likely[0].values)
                place["perhaps"] = best.name + tell_with(size, best.strength, bar_of(best))
        chosen.append(HeadRole(**place))
    return chosen
