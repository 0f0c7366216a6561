"""What each head does: a description of it, found over samples, with how sure that is.

A role says which keys a head of that role looks at, such as the previous step, or the inputs that the answer
depends on. How far a head has it is measured sample by sample, as the part of the way from even attention to that
role alone:

    (mass on the role's keys - share of these keys) / (1 - share of these keys)      0: by chance, 1: nothing else

A head that shuffled its weights over the keys would have 0. Roles that are searched for (which place, which
symbol) are chosen on one half of the samples and measured on the other. Looking at what the answer depends on has
to be more than looking at what another sample's answer depends on. A head is only described where the 95 %
interval lies above `LEAST`, and above whatever a head of the same model before training has.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from regard.errors import InputError, check_range
from regard.interpret.estimates import Estimate, resample_counts, estimate
from regard.interpret.patterns import FIXED, RELEVANT, Targets, searched_roles
from regard.result import Result, plain
from regard.viz.maps import LayerMap
from regard.viz.subject import Input, Subject

LEAST = 0.3
"""Part of the way from even attention to a role, above which a head is described by it."""
EVEN = 0.02
"""Share of its weight that a head may have elsewhere than even attention has it, and still be called even."""
MIN_SAMPLES = 10
"""Samples that roles can be found over."""
UNTRAINED = 2
"""Models before training that a head is compared with."""


@dataclass(frozen=True, kw_only=True, repr=False)
class HeadRole:
    """What is known of one head."""

    layer: str
    head: int
    role: str | None
    """What it does; None where nothing was found that is sure."""
    strength: Estimate | None
    """Part of the way (0 to 1) from even attention to the role alone; None without a role. Of a head that attends
    evenly: the share of its weight that is elsewhere."""
    untrained: float
    """The largest strength of that role, over all heads of the layer before training."""

    @property
    def description(self) -> str:
        """What it does, in words."""
        return "no role found" if self.role is None else self.role


@dataclass(frozen=True, kw_only=True, repr=False)
class HeadRoles(Result):
    """What the heads of a model do."""

    task: str
    samples: int
    heads: list[HeadRole]

    def of(self, layer: str, head: int) -> HeadRole:
        """Return what is known of a head; raises `InputError` where there is none of that name."""
        for each in self.heads:
            if (each.layer, each.head) == (layer, head):
                return each
        raise InputError(f"{layer} head {head} is not in the model")

    def summary(self) -> str:
        """Say how many heads have a description."""
        named = sum(each.role is not None for each in self.heads)
        return f"{self.task}: {named} of {len(self.heads)} heads have a role, over {self.samples} samples"

    def table(self, added: Mapping[str, Sequence[float]] | None = None) -> Table:
        """Return a line for each head; given the loss that is `added` when each is off, by layer, with that, and
        the most important first."""
        columns = ["layer", "head", *(["off: loss"] if added else []), "looks at", "how purely", "untrained"]
        table = Table(*columns, box=None, pad_edge=False)
        table.title, table.title_justify = "What each head does (0: as even attention; 1: nothing else)", "left"
        for each in self.sorted(added) if added else self.heads:
            sure = "" if each.strength is None or each.role is None else str(each.strength)
            null = f"{each.untrained:.3f}" if sure else ""
            worth = [f"{added[each.layer][each.head]:+.4f}"] if added else []
            table.add_row(each.layer, str(each.head), *worth, Text(each.description), sure, null)
        return table

    def sorted(self, added: Mapping[str, Sequence[float]]) -> list[HeadRole]:
        """Return the heads by the loss that is added when each is off, the most important first."""
        return sorted(self.heads, key=lambda each: -added[each.layer][each.head])

    def by_layer(self) -> dict[str, list[dict[str, Any]]]:
        """Return what the view shows of each layer's heads: `RoleData` of `regard.viz.data`."""
        found: dict[str, list[dict[str, Any]]] = {}
        for each in self.heads:
            on_progress = {"role": each.role, "strength": plain(each.strength), "untrained": each.untrained}
            found.setdefault(each.layer, []).append(on_progress)
        return found


def head_roles(
    subject: Subject[Input],
    *,
    samples: int = 60,
    seed: int = 0,
    on_progress: Callable[[int, int], None] = lambda done, all: None,
) -> HeadRoles:
    """Describe every head of a subject, over unseen inputs. `on_progress` hears how many of them are looked at, of how
    many.

    Raises `InputError` for a model without attention, or where there are no such inputs.
    """
    check_range("samples", samples, MIN_SAMPLES, 10**5)
    if not subject.layers:
        raise InputError("the model has no heads: train it with attention")
    inputs = subject.unseen(samples, seed, purpose="roles")
    if len(inputs) < 2:
        raise InputError(f"what heads do is found over several inputs, not over {len(inputs)}: give more of them")
    some = inputs[: max(len(inputs) // 2, 1)]
    looks = _counted(on_progress, len(inputs) + UNTRAINED * len(some))
    shown = [looks(subject, each) for each in inputs]
    before = [
        [looks(other, each) for each in some]
        for other in (subject.untrained(seed + number) for number in range(UNTRAINED))
    ]
    heads: list[HeadRole] = []
    for layer in subject.layers:
        own = [each[layer.name] for each in shown]
        null = [[each[layer.name] for each in model] for model in before]
        heads += _describe(own, null, seed)
    return HeadRoles(task=subject.name, samples=len(inputs), heads=heads)


def _counted(on_progress: Callable[[int, int], None], most: int) -> Callable[[Subject[Any], Any], dict[str, LayerMap]]:
    """Return what looks at an input of a subject, and tells how many it has looked at."""
    done = count(1)

    def look(subject: Subject[Any], input: Any) -> dict[str, LayerMap]:
        found = subject.look(input).layers
        on_progress(next(done), most)
        return found

    on_progress(0, most)
    return look


def _describe(maps: Sequence[LayerMap], untrained: Sequence[Sequence[LayerMap]], seed: int) -> Iterator[HeadRole]:
    """Describe the heads of one layer, given its maps of all samples, and those before training."""
    chosen, measured = maps[::2], maps[1::2]
    draw = resample_counts(len(measured), seed)
    roles = {**FIXED, **searched_roles(maps)}
    fixed = list(FIXED)
    on_chosen, on_measured = (_strengths(roles, some) for some in (chosen, measured))
    null = [_strengths(roles, model) for model in untrained]
    on_others = _strengths({RELEVANT: FIXED[RELEVANT]}, _with_others(measured))[RELEVANT]
    for head in range(len(maps[0].weights)):
        searched = [name for name in roles if name not in fixed and _mean(on_chosen[name][head]) > -np.inf]
        best = sorted(searched, key=lambda name: -_mean(on_chosen[name][head]))[:1]
        found = [
            _found(maps[0].name, head, name, on_measured[name][head], null, draw) for name in [*fixed, *best]
        ]
        beyond = estimate(on_measured[RELEVANT][head] - on_others[head], draw)
        if beyond is None or beyond.low <= 0:  # as much for another sample's: it looks at places
            found = [each for each in found if each is None or each.role != RELEVANT]
        sure = [each for each in found if each is not None]
        if sure:
            most = max(each.strength.mean for each in sure if each.strength is not None)
            yield next(each for each in sure if each.strength is not None and each.strength.mean > most - 0.05)
        else:
            yield _even_or_nothing(maps, untrained, head, resample_counts(len(maps), seed))


def _with_others(maps: Sequence[LayerMap]) -> list[LayerMap]:
    """Return maps as if each input had what another one's answer depends on, as far as both go."""
    found = []
    for own, other in zip(maps, [*maps[1:], *maps[:1]], strict=True):
        relevant = own.relevant
        if relevant is not None and other.relevant is not None:
            relevant = np.zeros_like(relevant)
            part = tuple(slice(min(sizes)) for sizes in zip(relevant.shape, other.relevant.shape, strict=True))
            relevant[part] = other.relevant[part]
        found.append(dataclasses.replace(own, relevant=relevant))
    return found


def _found(
    layer: str,
    head: int,
    name: str,
    values: np.ndarray,
    null: Sequence[Mapping[str, np.ndarray]],
    draw: np.ndarray,
) -> HeadRole | None:
    """Return a role of a head where it is sure."""
    strength = estimate(values, draw)
    chance = max((_mean(each) for model in null for each in model[name]), default=-np.inf)
    if strength is None or strength.low <= max(LEAST, chance):
        return None
    return HeadRole(layer=layer, head=head, role=name, strength=strength, untrained=max(chance, 0.0))


def _even_or_nothing(
    maps: Sequence[LayerMap], untrained: Sequence[Sequence[LayerMap]], head: int, draw: np.ndarray
) -> HeadRole:
    """Say that a head attends evenly, if it does and no head before training does, or that nothing is sure."""
    elsewhere = estimate([_elsewhere(each.weights[head]) for each in maps], draw)
    least = min(
        float(np.mean([_elsewhere(each.weights[other]) for each in model]))
        for model in untrained
        for other in range(len(model[0].weights))
    )
    even = elsewhere is not None and elsewhere.high < min(EVEN, least / 2)
    role = "everything alike" if even else None
    return HeadRole(layer=maps[0].name, head=head, role=role, strength=elsewhere if even else None, untrained=0.0)


def _strengths(roles: Mapping[str, Targets], maps: Sequence[LayerMap]) -> dict[str, np.ndarray]:
    """Return for every role how far each head has it in each sample, (H, N); NaN where a sample cannot say."""
    return {
        name: np.stack([_strength(targets, each) for each in maps], axis=1) for name, targets in roles.items()
    }


def _strength(targets: Targets, layer: LayerMap) -> np.ndarray:
    """Return the part of the way from even attention to a role, of each head (H); NaN where nothing can tell."""
    seen = np.asarray((layer.weights > 0).any(0))
    wanted = targets(layer, seen)
    if wanted is None:
        return np.full(len(layer.weights), np.nan)
    wanted = wanted & seen
    share = wanted.sum(1) / np.maximum(seen.sum(1), 1)
    telling = (share > 0) & (share < 1)
    if not telling.any():
        return np.full(len(layer.weights), np.nan)
    mass = (layer.weights * wanted).sum(2)[:, telling]
    found: np.ndarray = ((mass - share[telling]) / (1 - share[telling])).mean(1)
    return found


def _elsewhere(weights: np.ndarray) -> float:
    """Return the share of a head's weight (Tq, Tk) that is elsewhere than even attention has it."""
    seen = weights > 0
    even = seen / np.maximum(seen.sum(1, keepdims=True), 1)
    return float(np.abs(weights - even).sum(1).mean() / 2)


def _mean(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else -np.inf
