"""Measure how strongly each head attends to the keys of each role; `roles` decides which role a head has.

The strength of a role is measured for each sample. Strength 0 means uniform attention; strength 1 means attention
to only the role's keys:

    (mass on the role's keys - fraction of these keys) / (1 - fraction of these keys)

Positions and symbols are chosen on one half of the samples, and all strengths are measured on the other half.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from regard.interpret.estimates import Estimate, estimate, resample_counts
from regard.interpret.patterns import FIXED, PAIRED, RELEVANT, Targets, searched_roles
from regard.viz.maps import LayerMap

EVEN = 0.02
"""Largest fraction of the weight of a uniform head that may differ from uniform attention."""


class RoleCandidate(NamedTuple):
    """A role that a head may have."""

    name: str
    values: np.ndarray
    """(N,) strength for each sample, NaN for samples in which it is undefined."""
    strength: Estimate
    untrained: float
    """Largest strength over all heads of the layer in untrained models."""


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
    """Return the roles that each head may have, with their strengths on the second half of some inputs.

    `maps`: the layers of each input. `untrained`: the same for untrained models, for half of the inputs.
    """
    heads: list[HeadCandidates] = []
    for layer in maps[0]:
        own = [sample[layer] for sample in maps]
        heads += _measure_layer(own, [[sample[layer] for sample in model] for model in untrained], seed)
    return heads


def _measure_layer(
    maps: Sequence[LayerMap], untrained: Sequence[Sequence[LayerMap]], seed: int
) -> Iterator[HeadCandidates]:
    """Measure the heads of one layer from its maps of all samples, and from its maps before training."""
    # The halves are alternate samples, so that both halves have inputs of all lengths even if the inputs are
    # sorted by length.
    chosen, measured = maps[::2], maps[1::2]
    draw = resample_counts(len(measured), seed)
    roles = {**FIXED, **PAIRED, **searched_roles(maps)}
    on_chosen, on_measured = (role_strengths(roles, half) for half in (chosen, measured))
    null = [role_strengths(roles, model) for model in untrained]
    on_others = role_strengths({RELEVANT: FIXED[RELEVANT]}, _permute_relevance(measured))[RELEVANT]
    for head in range(len(maps[0].weights)):
        searched = [name for name in roles if name not in FIXED and name not in PAIRED]
        # A step that fewer than half of the inputs have, or a symbol in fewer of them, describes few of them.
        searched = [name for name in searched if 2 * np.isfinite(on_chosen[name][head]).sum() >= len(chosen)]
        best = sorted(searched, key=lambda name: -_mean(on_chosen[name][head]))[:1]
        candidates = {name: on_measured[name][head] for name in [*FIXED, *PAIRED, *best]}
        beyond = estimate(on_measured[RELEVANT][head] - on_others[head], draw)
        if beyond is None or beyond.low <= 0:  # as much attention for another sample: it attends to positions
            del candidates[RELEVANT]
        yield HeadCandidates(
            maps[0].name,
            head,
            [
                RoleCandidate(
                    name,
                    values,
                    strength,
                    # The largest strength of all untrained heads, so that the comparison is valid for any number
                    # of heads.
                    max((_mean(other) for model in null for other in model[name]), default=-np.inf),
                )
                for name, values in candidates.items()
                if (strength := estimate(values, draw)) is not None
            ],
            _test_uniform(maps, untrained, head, resample_counts(len(maps), seed)),
        )


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


def _test_uniform(
    maps: Sequence[LayerMap], untrained: Sequence[Sequence[LayerMap]], head: int, draw: np.ndarray
) -> Estimate | None:
    """Return how much of the weight of a uniform head differs from uniform attention; None for other heads, and
    if a head of an untrained model is uniform.
    """
    deviation = estimate([uniform_deviation(sample.weights[head]) for sample in maps], draw)
    least = min(
        float(np.mean([uniform_deviation(sample.weights[untrained_head]) for sample in model]))
        for model in untrained
        for untrained_head in range(len(model[0].weights))
    )
    return deviation if deviation is not None and deviation.high < min(EVEN, least / 2) else None


def role_strengths(roles: Mapping[str, Targets], maps: Sequence[LayerMap]) -> dict[str, np.ndarray]:
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


def uniform_deviation(weights: np.ndarray) -> float:
    """Return the fraction of a head's weight (Tq, Tk) that differs from uniform attention."""
    seen = weights != 0
    even = seen / np.maximum(seen.sum(1, keepdims=True), 1)
    return float(np.abs(weights - even).sum(1).mean() / 2)


def _mean(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else -np.inf
