"""Head importance: the loss increase when a head is disabled (Michel et al. 2019, section 3.2)."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from torch import Tensor

from regard.activations.weights import intervene
from regard.arguments import public
from regard.errors import InputError, check_range, plural
from regard.interpret.estimates import Estimate, describe_interval, estimate, resample_counts
from regard.interpret.needs import ENOUGH
from regard.result import Result, percent, plain_table, signed
from regard.viz.page import WorthData
from regard.viz.subject import Input, PrunableSubject, Subject

GROUPS = 1000
"""Largest number of units that an interval resamples, for speed. More inputs are summed into groups."""
ROUNDING, COARSEST = 16, 0.02
"""Smallest difference of a loss that is not rounding, in units of the precision of the parameters' dtype times
the loss of an output (at least 1), and its largest value: half precision rounds logits, not losses."""


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class HeadImportance(Result):
    """The importance of each head, over inputs that were not used in training."""

    samples: int
    loss: float
    """Mean cross-entropy of all output steps with all heads enabled, in nats."""
    added: dict[str, list[float]]
    """Loss increase when each head is disabled, by layer. Below 0, the loss is lower without it."""
    intervals: dict[str, list[Estimate | None]] = field(default_factory=dict)
    """`added` with 95 % intervals over the samples; None for a single sample."""
    measure: str = "loss"
    """Name of the loss, if `loss` is not computed against known answers."""
    unchanged: dict[str, list[str]] = field(default_factory=dict)
    """By layer, for each head: why nothing can be said, if its context does not change when disabled; else empty."""

    def interval(self, layer: str, head: int) -> Estimate | None:
        """Return the interval of a head; None if it is unknown."""
        return self.intervals[layer][head] if layer in self.intervals else None

    def unchanged_reason(self, layer: str, head: int) -> str:
        """Return why nothing can be said about a head; empty if disabling it changes its context."""
        return self.unchanged[layer][head] if layer in self.unchanged else ""

    def ranked(self) -> list[tuple[float, str, int]]:
        """Return the loss increase, layer and index of every head, the least important first."""
        return sorted((value, layer, head) for layer, values in self.added.items() for head, value in enumerate(values))

    def summary(self) -> str:
        value, layer, head = self.ranked()[-1]
        if all(number == 0 for number, _, _ in self.ranked()):
            return f"no head makes a difference to the {self.measure} that can be measured"
        return (
            f"{layer} head {head} is the most important: disabling it adds {signed(value, 4, small=True)} to a "
            f"{self.measure} of {self.loss:.4f}"
        )

    def table(self) -> RenderableType:
        over = f"({self.loss:.4f} with all on, {plural(self.samples, 'sample')})"
        title = f"{self.measure.capitalize()} added when a head is off {over}"
        columns = [f"head {head}" for head in range(max(map(len, self.added.values())))]
        table = plain_table(("layer", *columns))
        for layer, values in self.added.items():
            cells = [signed(value, 4, small=True) for value in values]
            for head, interval in enumerate(self.intervals.get(layer, [])):
                if interval is not None and interval.low <= 0 <= interval.high:
                    cells[head] = f"({cells[head]})"
            table.add_row(layer, *cells)
        note = f"(in brackets if 0 is inside the {describe_interval(self.samples)})"
        if self.samples < 2:
            note = "(a single sample has no intervals: other samples may say otherwise of every head)"
        return Group(Text(title, style="italic"), table, Text(note, style="dim"))


def importance_by_layer(importance: HeadImportance) -> dict[str, list[WorthData]]:
    """Return the importance of each head by layer, with intervals if known, in the format of the page."""
    layers: dict[str, list[WorthData]] = {}
    for layer, added in importance.added.items():
        known = [importance.interval(layer, head) for head in range(len(added))]
        ends = [(None, None) if interval is None else (interval.low, interval.high) for interval in known]
        layers[layer] = [
            {"added": value, "low": low, "high": high} for value, (low, high) in zip(added, ends, strict=True)
        ]
    return layers


@public
@torch.inference_mode()
def head_importance(
    subject: Subject[Input],
    *,
    samples: int | None = None,
    seed: int = 0,
    on_progress: Callable[[int, int], None] = lambda done, heads: None,
) -> HeadImportance:
    """Measure the importance of every head of a subject on unseen inputs.

    `samples`: the number of inputs; default `subject.traits.samples`. The same `seed` draws the same inputs.
    `on_progress` is called after each head with the number of finished heads and their total.

    >>> importance = regard.head_importance(regard.load("runs/signal2"), samples=500)    # doctest: +SKIP
    >>> importance.ranked()[-1]    # doctest: +SKIP

    Raises `InputError` for a model without attention, or if there are no unseen inputs.
    """
    samples = subject.traits.samples if samples is None else samples
    check_range("samples", samples, 1, 10**7)
    if not subject.layers:
        raise InputError("the model has no heads: train it with attention")
    inputs = subject.unseen(samples, seed, purpose="importance")
    base, components = subject.losses(inputs), subject.components
    increases, unchanged = dict[str, list[np.ndarray]](), dict[str, list[str]]()
    counts = np.maximum(base[:, 1], 1)
    dtypes = (parameter.dtype for parameter in subject.model.parameters() if parameter.is_floating_point())
    rounding = min(ROUNDING * torch.finfo(next(dtypes, torch.float32)).eps, COARSEST)
    heads, done = sum(layer.heads for layer in subject.layers), 0
    on_progress(done, heads)
    for layer in subject.layers:
        # The loss with and without a head is measured on the same inputs, because differences have a smaller variance
        # than separate losses, and on the same path, because rounding differs between paths.
        used = list[Tensor]()

        def keep(name: str, contexts: Tensor, used: list[Tensor] = used) -> Tensor:
            # Disabling a head whose context is zero changes nothing. All steps of a row together, because a single
            # step may have no key.
            used.append(components.split(name, contexts).ne(0).any(-1).any(-2).flatten(0, -2).cpu())
            return contexts

        watched = [layer.name] if layer.name in components.heads else []
        with intervene(subject, layer.name, heads=[]), components.replace_contexts(keep, watched):
            same = subject.losses(inputs)[:, 0]
        # A difference within rounding is 0: below `ROUNDING` units of the dtype, or below what the unchanged losses
        # differ from those of a pass with an intervention on no head.
        noise = (np.abs(same - base[:, 0]) / counts).max()
        least = np.maximum(noise, rounding * np.maximum(1, np.abs(same) / counts)) * counts
        increases[layer.name] = []
        shares = torch.cat(used).double().mean(0).tolist() if used else [1.0] * layer.heads
        zero = [f"{percent(1 - share, 0)} of the" if share else "all" for share in shares]
        unchanged[layer.name] = [
            "" if share >= ENOUGH else f"its context is zero for {part} inputs"
            for share, part in zip(shares, zero, strict=True)
        ]
        for head in range(layer.heads):
            with intervene(subject, layer.name, heads=[head]):
                change = subject.losses(inputs)[:, 0] - same
            increases[layer.name].append(np.where(np.abs(change) > least, change, 0.0))
            done += 1
            on_progress(done, heads)
    outputs = max(base[:, 1].sum(), 1)
    return HeadImportance(
        samples=len(inputs),
        loss=float(base[:, 0].sum() / outputs),
        added={name: [float(row.sum() / outputs) for row in layer] for name, layer in increases.items()},
        intervals={name: [_interval(row, base[:, 1], seed) for row in layer] for name, layer in increases.items()},
        measure=subject.traits.measure,
        unchanged=unchanged,
    )


def _interval(increase: np.ndarray, outputs: np.ndarray, seed: int) -> Estimate | None:
    """Return the mean loss increase per output step with its interval. `increase` (N,): the loss increase of each
    input, summed over its output steps. `outputs` (N,): their number."""
    size = -(-len(increase) // GROUPS)
    if size > 1:
        starts = np.arange(0, len(increase), size)
        increase, outputs = np.add.reduceat(increase, starts), np.add.reduceat(outputs, starts)
    mean = increase.sum() / max(outputs.sum(), 1)
    # A ratio of two sums is resampled as a mean of linearized contributions (Cochran 1977, section 6.4), which
    # needs one matrix product instead of two.
    contributions = mean + (increase - mean * outputs) / max(outputs.mean(), 1e-9)
    return estimate(contributions, _cached_counts(len(contributions), seed))


_cached_counts = functools.lru_cache(maxsize=2)(resample_counts)  # all heads of a model use the same resamples


class PrunedHeads(NamedTuple):
    """The heads that `prune_heads` removed, and the importance of heads before and after the pruning."""

    removed: list[tuple[str, int]]  # Layer and head, numbered as in the original model, in the order of removal
    left: dict[str, list[int]]  # Remaining heads in ascending order, for each layer that can be pruned
    before: HeadImportance
    after: HeadImportance


@dataclass(frozen=True, kw_only=True, repr=False)
class Pruned(Result):
    """The removed heads, with the loss and the size of the model before and after."""

    removed: list[tuple[str, int]]
    """Layer and head, numbered as in the whole model, in the order of removal: the least important first."""
    samples: int  # Number of inputs over which the losses are measured
    measure: str = "loss"  # Name of the losses for tables
    loss_before: float  # Mean cross-entropy of all output steps in nats, or the loss that `measure` names
    loss_after: float
    parameters_before: int
    parameters_after: int

    def summary(self) -> str:
        return (
            f"{len(self.removed)} heads removed, {self.measure} {self.loss_before:.4f} before,"
            f" {self.loss_after:.4f} after"
        )

    def table(self) -> Table:
        rows = [
            ("heads removed", "", ", ".join(f"{layer} {head}" for layer, head in self.removed)),
            ("parameters", f"{self.parameters_before:,}", f"{self.parameters_after:,}"),
            (f"{self.measure}, {self.samples:,} samples", f"{self.loss_before:.4f}", f"{self.loss_after:.4f}"),
        ]
        return plain_table(("", "before", "after"), rows)


def prune_heads(subject: PrunableSubject[Input], heads: int = 1, *, seed: int = 0) -> PrunedHeads:
    """Remove the `heads` least important heads permanently from a subject's model.

    Heads are removed one at a time; heads that share keys are removed together. Importance is measured again
    after each removal: of two heads with the same function, neither is important while the other head remains.
    Every layer keeps at least one head.

    Raises `InputError` if fewer heads can be removed.
    """
    removable = subject.removable
    left = {layer: [head for group in groups for head in group] for layer, groups in removable.items()}
    spare = sum(len(groups) - 1 for groups in removable.values())
    check_range("heads", heads, 1, max(spare, 1))
    if not spare:
        raise InputError(
            f"{subject.name!r} has no layer with two or more heads that can be pruned: each head needs its own "
            f"keys, and no part of the attention may depend on the number of heads"
        )
    before = after = head_importance(subject, seed=seed)
    removed = []
    for _ in range(heads):
        # A group of heads with shared keys is removed as one, so its heads' importance is added.
        _, layer, indices = min(
            (sum(after.added[layer][head] for head in group), layer, group)
            for layer, groups in subject.removable.items()
            for group in groups
            if len(groups) > 1
        )
        subject.keep_heads(layer, [index for index in range(len(left[layer])) if index not in indices])
        removed += [(layer, left[layer][index]) for index in indices]
        left[layer] = [head for index, head in enumerate(left[layer]) if index not in indices]
        after = head_importance(subject, seed=seed)
    return PrunedHeads(removed, left, before, after)
