"""Describe the keys to which each head attends, with the evidence.

A role is defined by a set of keys to which a head with this role attends, such as the previous step or the
inputs on which the answer depends. The strength of a role is measured for each sample. Strength 0 means uniform
attention; strength 1 means attention to only the role's keys:

    (mass on the role's keys - fraction of these keys) / (1 - fraction of these keys)    0: uniform, 1: these
    keys only

A head with the same weights in random order has the mean strength 0. Some roles need a search for the best
position or symbol. These positions and symbols are chosen on one half of the samples, and the strength is
measured on the other half. For the role "what the answer depends on", attention to the relevant inputs must
exceed attention to another sample's relevant inputs. A head is described only if the 95 % interval lies above
`MIN_STRENGTH` and above the strength of every head of the same model before training.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from regard.attention.descriptions import describe_model
from regard.errors import InputError, check_range
from regard.interpret.estimates import Estimate, estimate, resample_counts
from regard.interpret.patterns import FIXED, RELEVANT, Targets, searched_roles
from regard.result import Result, to_plain
from regard.viz.maps import LayerMap
from regard.viz.subject import Input, Subject

MIN_STRENGTH = 0.3
"""Strength above which a role describes a head."""
EVEN = 0.02
"""Largest fraction of the weight of a uniform head that may differ from uniform attention."""
MIN_SAMPLES = 10
"""Smallest number of samples."""
UNTRAINED = 2
"""Number of untrained models whose heads are compared with the trained heads."""


@dataclass(frozen=True, kw_only=True, repr=False)
class HeadRole:
    """The role of one head."""

    layer: str
    head: int
    role: str | None
    """Keys to which the head attends; None if no role has enough evidence."""
    strength: Estimate | None
    """Strength of the role: 0 for uniform attention, 1 for attention to only the role's keys; None without a
    role. For a uniform head: the fraction of its weight that differs from uniform attention.
    """
    untrained: float
    """Largest strength of this role over all heads of the layer in untrained models."""

    @property
    def description(self) -> str:
        """The role as text."""
        return "no role found" if self.role is None else self.role


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
        """Return a text with the number of heads that have a role."""
        described = sum(role.role is not None for role in self.heads)
        return f"{self.task}: {described} of {len(self.heads)} heads have a role, over {self.samples} samples"

    def table(self, added: Mapping[str, Sequence[float]] | None = None) -> Table:
        """Return a table with one row for each head.

        `added`: by layer, the loss increase when each head is disabled. The table then has a column with the
        loss increase, and the most important heads are first.
        """
        columns = ["layer", "head", *(["off: loss"] if added else []), "attends to", "strength", "untrained"]
        table = Table(*columns, box=None, pad_edge=False)
        table.title, table.title_justify = (
            "What each head attends to (0: uniform attention; 1: nothing else)",
            "left",
        )
        if self.remark:
            table.caption, table.caption_justify = f"Note: {self.remark}", "left"
        for role in self.sorted(added) if added else self.heads:
            strength = "" if role.strength is None or role.role is None else str(role.strength)
            null = f"{role.untrained:.3f}" if strength else ""
            loss = [f"{added[role.layer][role.head]:+.4f}"] if added else []
            table.add_row(role.layer, str(role.head), *loss, Text(role.description), strength, null)
        return table

    def sorted(self, added: Mapping[str, Sequence[float]]) -> list[HeadRole]:
        """Return the heads in decreasing order of the loss increase when each head is disabled."""
        return sorted(self.heads, key=lambda role: -added[role.layer][role.head])

    def by_layer(self) -> dict[str, list[dict[str, Any]]]:
        """Return the roles by layer, in the format of the page: `RoleData` of `regard.viz.data`."""
        layers: dict[str, list[dict[str, Any]]] = {}
        for role in self.heads:
            data = {"role": role.role, "strength": to_plain(role.strength), "untrained": role.untrained}
            layers.setdefault(role.layer, []).append(data)
        return layers


def head_roles(
    subject: Subject[Input],
    *,
    samples: int = 60,
    seed: int = 0,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> HeadRoles:
    """Describe every head of a subject, over unseen inputs.

    `on_progress` is called with the number of processed inputs and their total.

    Raises `InputError` for a model without attention, or if there are fewer than two unseen inputs.
    """
    check_range("samples", samples, MIN_SAMPLES, 10**5)
    if not subject.layers:
        raise InputError("the model has no heads: train a model with attention")
    inputs = subject.unseen(samples, seed, purpose="roles")
    if len(inputs) < 2:
        raise InputError(f"roles need at least two inputs, got {len(inputs)}: give more inputs")
    first_half = inputs[: max(len(inputs) // 2, 1)]
    look = _count_looks(on_progress, len(inputs) + UNTRAINED * len(first_half))
    trained_maps = [look(subject, input) for input in inputs]
    untrained_maps = [
        [look(untrained, input) for input in first_half]
        for untrained in (subject.untrained(seed + number) for number in range(UNTRAINED))
    ]
    heads: list[HeadRole] = []
    for layer in subject.layers:
        own = [maps[layer.name] for maps in trained_maps]
        null = [[maps[layer.name] for maps in model] for model in untrained_maps]
        heads += _describe_layer(own, null, seed)
    return HeadRoles(task=subject.name, samples=len(inputs), heads=heads, remark=describe_model(subject.model))


def _count_looks(
    on_progress: Callable[[int, int], None], total: int
) -> Callable[[Subject[Any], Any], dict[str, LayerMap]]:
    """Return a function that computes the map of an input and reports the number of its calls."""
    done = count(1)

    def look(subject: Subject[Any], input: Any) -> dict[str, LayerMap]:
        layers = subject.look(input).layers
        on_progress(next(done), total)
        return layers

    on_progress(0, total)
    return look


def _describe_layer(
    maps: Sequence[LayerMap], untrained: Sequence[Sequence[LayerMap]], seed: int
) -> Iterator[HeadRole]:
    """Describe the heads of one layer from its maps of all samples, and from its maps before training."""
    # The halves are alternate samples, so that both halves have inputs of all lengths even if the inputs are
    # sorted by length.
    chosen, measured = maps[::2], maps[1::2]
    draw = resample_counts(len(measured), seed)
    roles = {**FIXED, **searched_roles(maps)}
    fixed = list(FIXED)
    on_chosen, on_measured = (_strengths(roles, half) for half in (chosen, measured))
    null = [_strengths(roles, model) for model in untrained]
    on_others = _strengths({RELEVANT: FIXED[RELEVANT]}, _permute_relevance(measured))[RELEVANT]
    for head in range(len(maps[0].weights)):
        searched = [name for name in roles if name not in fixed and _mean(on_chosen[name][head]) > -np.inf]
        best = sorted(searched, key=lambda name: -_mean(on_chosen[name][head]))[:1]
        candidates = [
            _test_role(maps[0].name, head, name, on_measured[name][head], null, draw) for name in [*fixed, *best]
        ]
        beyond = estimate(on_measured[RELEVANT][head] - on_others[head], draw)
        if beyond is None or beyond.low <= 0:  # as much attention for another sample: it attends to positions
            candidates = [role for role in candidates if role is None or role.role != RELEVANT]
        strengths = {role: role.strength.mean for role in filter(None, candidates) if role.strength is not None}
        if strengths:
            # Of roles within 0.05 of the strongest, the first is the most specific one: FIXED is in order of
            # specificity.
            most = max(strengths.values())
            yield next(role for role, strength in strengths.items() if strength > most - 0.05)
        else:
            yield _test_uniform(maps, untrained, head, resample_counts(len(maps), seed))


def _permute_relevance(maps: Sequence[LayerMap]) -> list[LayerMap]:
    """Return maps with the relevant inputs of the next sample, cut to the common steps and inputs."""
    permuted = []
    for own, other in zip(maps, [*maps[1:], *maps[:1]], strict=True):
        relevant = own.relevant
        if relevant is not None and other.relevant is not None:
            relevant = np.zeros_like(relevant)
            part = tuple(slice(min(sizes)) for sizes in zip(relevant.shape, other.relevant.shape, strict=True))
            relevant[part] = other.relevant[part]
        permuted.append(dataclasses.replace(own, relevant=relevant))
    return permuted


def _test_role(
    layer: str,
    head: int,
    name: str,
    values: np.ndarray,
    null: Sequence[Mapping[str, np.ndarray]],
    draw: np.ndarray,
) -> HeadRole | None:
    """Return a role of a head if there is enough evidence for it."""
    strength = estimate(values, draw)
    # The comparison uses the largest strength of all untrained heads, so that it is valid for any number of
    # heads.
    chance = max((_mean(untrained) for model in null for untrained in model[name]), default=-np.inf)
    if strength is None or strength.low <= max(MIN_STRENGTH, chance):
        return None
    return HeadRole(layer=layer, head=head, role=name, strength=strength, untrained=max(chance, 0.0))


def _test_uniform(
    maps: Sequence[LayerMap], untrained: Sequence[Sequence[LayerMap]], head: int, draw: np.ndarray
) -> HeadRole:
    """Return the role "uniform" if the head is uniform and no head of an untrained model is uniform; otherwise
    no role.
    """
    deviation = estimate([_deviation(sample.weights[head]) for sample in maps], draw)
    least = min(
        float(np.mean([_deviation(sample.weights[untrained_head]) for sample in model]))
        for model in untrained
        for untrained_head in range(len(model[0].weights))
    )
    even = deviation is not None and deviation.high < min(EVEN, least / 2)
    role = "everything alike" if even else None
    return HeadRole(layer=maps[0].name, head=head, role=role, strength=deviation if even else None, untrained=0.0)


def _strengths(roles: Mapping[str, Targets], maps: Sequence[LayerMap]) -> dict[str, np.ndarray]:
    """Return the strength of every role for each head and sample, (H, N); NaN for samples in which the strength
    is undefined.
    """
    return {
        name: np.stack([_strength(targets, sample) for sample in maps], axis=1) for name, targets in roles.items()
    }


def _strength(targets: Targets, layer: LayerMap) -> np.ndarray:
    """Return the strength of a role for each head (H); NaN if the role has no keys or all keys."""
    # Keys to which no head attends are masked.
    seen = np.asarray((layer.weights != 0).any(0))
    wanted = targets(layer, seen)
    if wanted is None:
        return np.full(len(layer.weights), np.nan)
    wanted = wanted & seen
    share = wanted.sum(1) / np.maximum(seen.sum(1), 1)
    counted = (share > 0) & (share < 1)
    if not counted.any():
        return np.full(len(layer.weights), np.nan)
    mass = (layer.weights * wanted).sum(2)[:, counted]
    strength: np.ndarray = ((mass - share[counted]) / (1 - share[counted])).mean(1)
    return strength


def _deviation(weights: np.ndarray) -> float:
    """Return the fraction of a head's weight (Tq, Tk) that differs from uniform attention."""
    seen = weights != 0
    even = seen / np.maximum(seen.sum(1, keepdims=True), 1)
    return float(np.abs(weights - even).sum(1).mean() / 2)


def _mean(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else -np.inf
