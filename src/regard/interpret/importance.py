"""Head importance: by how much the loss rises when a head is switched off (Michel et al. 2019, section 3.2)."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from regard.errors import InputError, check_range
from regard.interpret.estimates import Estimate, resample_counts, estimate, describe_interval
from regard.result import Result
from regard.viz.data import WorthData
from regard.viz.subject import Input, Subject

GROUPS = 1000
"""Of more inputs, an interval is over so many groups of them: drawing each would take long."""


@dataclass(frozen=True, kw_only=True, repr=False)
class HeadImportance(Result):
    """What each head is worth, over a sample that training has not seen."""

    samples: int
    loss: float
    """Mean cross-entropy of all output steps with every head on, in nats."""
    added: dict[str, list[float]]
    """By layer: what is added to the loss when each head is off. Below 0: the model does better without."""
    intervals: dict[str, list[Estimate | None]] = field(default_factory=dict)
    """The same as `added` with its 95 % interval, by bootstrap over the samples; None of a single one."""
    measure: str = "loss"
    """What `loss` is, where it is not that of a known truth."""

    def ranked(self) -> list[tuple[float, str, int]]:
        """Return every head with what it is worth and its layer, the least important first."""
        return sorted(
            (value, layer, head) for layer, values in self.added.items() for head, value in enumerate(values)
        )

    def summary(self) -> str:
        """Name the most important head."""
        value, layer, head = self.ranked()[-1]
        return f"{layer} head {head} adds most when off, {value:+.4f} to a {self.measure} of {self.loss:.4f}"

    def table(self) -> RenderableType:
        """Return a table, a line for each layer."""
        most = max(map(len, self.added.values()))
        over = f"({self.loss:.4f} with all on, {self.samples:,} samples)"
        title = f"{self.measure.capitalize()} added when a head is off {over}"
        columns = [f"head {head}" for head in range(most)]
        table = Table("layer", *columns, box=None, pad_edge=False)
        for layer, values in self.added.items():
            known = self.intervals.get(layer, [None] * len(values))
            table.add_row(layer, *map(_cell, values, known))
        parts: list[RenderableType] = [Text(title, style="italic"), table]
        if any(each is not None and _maybe_nothing(each) for some in self.intervals.values() for each in some):
            parts.append(Text(f"(in brackets: 0 is in the {interval_over(self.samples)})", style="dim"))
        return Group(*parts)


def importance_by_layer(found: HeadImportance) -> dict[str, list[WorthData]]:
    """Return what each head is worth, as the page takes it."""
    return {layer: importance_data(added, found.intervals.get(layer)) for layer, added in found.added.items()}


def importance_data(added: Sequence[float], intervals: Sequence[Estimate | None] | None) -> list[WorthData]:
    """Return what the heads of a layer are worth, with their intervals where those are known."""
    known = intervals or [None] * len(added)
    return [
        {"added": value, "low": None, "high": None}
        if each is None
        else {"added": value, "low": each.low, "high": each.high}
        for value, each in zip(added, known, strict=True)
    ]


def _cell(value: float, known: Estimate | None) -> str:
    return f"({value:+.4f})" if known is not None and _maybe_nothing(known) else f"{value:+.4f}"


def _maybe_nothing(found: Estimate) -> bool:
    return found.low <= 0 <= found.high


@torch.inference_mode()
def head_importance(
    subject: Subject[Input],
    *,
    samples: int | None = None,
    seed: int = 0,
    on_progress: Callable[[int, int], None] = lambda done, heads: None,
) -> HeadImportance:
    """Return the importance of every head of a subject, over unseen inputs (None: as many as is usual for it),
    the same ones each time. `on_progress` hears after each head how many are done, of how many.

    Raises `InputError` for a model without attention, or where there are no such inputs.
    """
    samples = subject.importance_samples if samples is None else samples
    check_range("samples", samples, 1, 10**7)
    check_range("seed", seed, 0, 2**63 - 1)
    if not subject.layers:
        raise InputError("the model has no heads: train it with attention")
    inputs = subject.unseen(samples, seed, purpose="importance")
    base, added = subject.losses(inputs), {}
    outputs = max(base[:, 1].sum(), 1)
    intervals = {}
    heads, done = sum(layer.heads for layer in subject.layers), 0
    on_progress(done, heads)
    for layer in subject.layers:
        values, estimates = [], []
        for head in range(layer.heads):
            with subject.touching(layer.name, heads=[head]):
                more = subject.losses(inputs)[:, 0] - base[:, 0]
            values.append(float(more.sum() / outputs))
            estimates.append(_interval(more, base[:, 1], seed))
            done += 1
            on_progress(done, heads)
        added[layer.name], intervals[layer.name] = values, estimates
    return HeadImportance(
        samples=len(inputs),
        loss=float(base[:, 0].sum() / outputs),
        added=added,
        intervals=intervals,
        measure=subject.measure,
    )


def _interval(more: np.ndarray, outputs: np.ndarray, seed: int) -> Estimate | None:
    """Return the mean of what is added to an output, `more` (N,) being added to so many `outputs` (N,) of each
    input.

    A ratio of two sums is drawn anew as the mean of what each input brings to it (Cochran 1977, section 6.4).
    """
    size = -(-len(more) // GROUPS)
    if size > 1:
        starts = np.arange(0, len(more), size)
        more, outputs = np.add.reduceat(more, starts), np.add.reduceat(outputs, starts)
    mean = more.sum() / max(outputs.sum(), 1)
    brought = mean + (more - mean * outputs) / max(outputs.mean(), 1e-9)
    return estimate(brought, _counts(len(brought), seed))


@functools.lru_cache(maxsize=2)
def _counts(samples: int, seed: int) -> np.ndarray:
    return resample_counts(samples, seed)


class PrunedHeads(NamedTuple):
    """What taking heads out of a model for good came to."""

    removed: list[tuple[str, int]]
    """Layer and head, as the model had them, in the order in which they went."""
    left: dict[str, list[int]]
    """By layer: the heads that stay, in ascending order; of the layers from which heads can be taken."""
    before: HeadImportance
    after: HeadImportance


def prune_heads(subject: Subject[Input], heads: int = 1, *, seed: int = 0) -> PrunedHeads:
    """Take the `heads` least important heads out of a subject's model, for good.

    One head goes at a time, or those that share their keys, and what the others are worth is asked anew after
    each, for two heads that do the same both look as if they were of no use. Every layer keeps one head at least.
    Raises `InputError` where there are not so many heads to take away.
    """
    together = subject.removable
    left = {layer: [head for some in groups for head in some] for layer, groups in together.items()}
    spare = sum(len(groups) - 1 for groups in together.values())
    check_range("heads", heads, 1, max(spare, 1))
    if not spare:
        raise InputError(f"{subject.where!r} has no layer with two heads or more: there is nothing to prune")
    before = after = head_importance(subject, seed=seed)
    removed = []
    for _ in range(heads):
        layer, places = _least(after, subject.removable)
        subject.keep_heads(layer, [each for each in range(len(left[layer])) if each not in places])
        removed += [(layer, left[layer][place]) for place in places]
        left[layer] = [head for place, head in enumerate(left[layer]) if place not in places]
        after = head_importance(subject, seed=seed)
    return PrunedHeads(removed, left, before, after)


def _least(found: HeadImportance, removable: Mapping[str, Sequence[Sequence[int]]]) -> tuple[str, Sequence[int]]:
    """Return the layer and the heads that go next: of those that go together, the sum counts."""
    worth = (
        (sum(found.added[layer][head] for head in some), layer, some)
        for layer, groups in removable.items()
        for some in groups
        if len(groups) > 1
    )
    _, layer, some = min(worth)
    return layer, some
