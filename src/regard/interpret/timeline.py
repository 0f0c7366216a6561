"""The timeline of the heads of runs: the training step at which each role forms, over seeds.

The results are sentences, tables, JSON and a page.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Column, Table

from regard.arguments import public
from regard.interpret.formation import (
    Development,
    MedianInterval,
    Order,
    RoleHead,
    count_in_order,
    formed_at,
    median_interval,
    pair_orders,
    role_head,
)
from regard.io.writing import write_file
from regard.result import Result, signed, to_plain
from regard.viz.report_page import Part, Plot, render_page

CORRECT = 0.5
"""Fraction of correct outputs. The step from which this fraction is exceeded is an event like the formation of a
head."""
EVEN = 0.9
"""Score from which a head counts as uniform."""
ANSWERS = "half of the outputs correct"


@public
@dataclass(frozen=True, kw_only=True)
class RoleTimeline:
    """A role over all seeds. Lists have one entry per run; medians over seeds are of the role's head
    (`heads`)."""

    role: str
    formed: int
    """Number of seeds on which the role has formed."""
    step: MedianInterval
    """Step at which the role has formed."""
    steps: list[int | None]
    """Training step in each run at which the role has formed; None if it has not formed."""
    heads: list[str]
    """The role's head in each run: layer and number."""
    layers: dict[str, int]
    """Number of seeds by the layer of the head, of seeds on which the role has formed."""
    count: float
    """Median number of heads with the role at the last snapshot."""
    first_score: float
    """Median of the largest score of any head at the first snapshot, before training."""
    score: float
    """Median score at the last snapshot."""
    importance: float
    """Median increase of the loss at the last snapshot when the head is ablated."""
    relevance: float
    """Median fraction of the weight on relevant inputs at the last snapshot; NaN if unknown."""
    entropy: float
    """Median entropy of the weights at the last snapshot, in nats."""


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class Timeline(Result):
    """The development of all heads of runs that differ in their seed; `print` shows sentences and a table."""

    task: str
    kind: str
    """Name of the model."""
    samples: int
    """Number of samples on which every snapshot is measured."""
    threshold: float
    """Score from which a head has a role."""
    runs: list[Development]
    remark: str = ""
    """What distinguishes the weights from those of a softmax; empty for a softmax."""

    @property
    def steps(self) -> list[int]:
        """Training steps of the snapshots."""
        return self.runs[0].steps

    @cached_property
    def matched(self) -> dict[str, list[RoleHead]]:
        """The head of each role, for each run."""
        roles = {
            role: [role_head(run.roles[role], self.threshold) for run in self.runs] for role in self.runs[0].roles
        }
        middle = len(self.runs) // 2

        def key(item: tuple[str, list[RoleHead]]) -> tuple[float, list[float]]:
            steps = sorted(self._steps_of(item[1]))
            return steps[middle], steps  # of equal medians, the one with earlier seeds is first

        return dict(sorted(roles.items(), key=key))

    def _steps_of(self, heads: Sequence[RoleHead]) -> list[float]:
        """Return the step of formation in each run; infinite where the role has not formed."""
        return [math.inf if head.snapshot is None else self.steps[head.snapshot] for head in heads]

    @property
    def events(self) -> dict[str, list[float]]:
        """Training step for each run at which each role forms, and at which half of the outputs are correct;
        infinite for never."""
        answers = [formed_at(run.accuracy[:, None], CORRECT)[0] for run in self.runs]
        events = {role: self._steps_of(heads) for role, heads in self.matched.items()}
        return {**events, ANSWERS: [[*self.steps, math.inf][snapshot] for snapshot in answers]}

    @cached_property
    def roles(self) -> list[RoleTimeline]:
        """All roles, the earliest first."""
        return [self._role(role, heads) for role, heads in self.matched.items()]

    def _role(self, role: str, heads: Sequence[RoleHead]) -> RoleTimeline:
        def median(measure: str) -> float:
            pairs = zip(self.runs, heads, strict=True)
            return float(np.median([getattr(run, measure)[-1, head.head] for run, head in pairs]))

        steps, names = (
            self._steps_of(heads),
            [run.heads[head.head] for run, head in zip(self.runs, heads, strict=True)],
        )
        layers = [
            name.layer.removesuffix(".self_attention")
            for name, step in zip(names, steps, strict=True)
            if step < math.inf
        ]
        return RoleTimeline(
            role=role,
            formed=len(layers),
            step=median_interval(steps),
            steps=[None if step == math.inf else int(step) for step in steps],
            heads=[f"{name.layer} head {name.number}" for name in names],
            layers={layer: layers.count(layer) for layer in sorted(set(layers))},
            count=float(np.median([head.heads for head in heads])),
            first_score=float(np.median([np.nanmax(run.roles[role][0]) for run in self.runs])),
            score=float(
                np.median([run.roles[role][-1, head.head] for run, head in zip(self.runs, heads, strict=True)])
            ),
            importance=median("importance"),
            relevance=median("relevance"),
            entropy=median("entropy"),
        )

    @property
    def orders(self) -> list[Order]:
        """The order of each pair of events, counted over seeds."""
        return pair_orders(self.events)

    @property
    def sentences(self) -> list[str]:
        """The result in words."""
        seeds, frequent = len(self.runs), [role for role in self.roles if 2 * role.formed > len(self.runs)]
        parts = [
            f"{_article(role.role)} {role.role} head at step {format_steps(role.step)}"
            + (f" on {role.formed} of {seeds} seeds" if role.formed < seeds else "")
            for role in frequent
        ]
        if len(parts) > 1:
            strict, same = count_in_order([self.events[role.role] for role in frequent])
            parts.append(f"in this order on {strict} of {seeds} seeds")
            parts[-1] += f" (and on {same} with some in the same snapshot)" if same else ""
        text = ", ".join(parts)
        rare = ", ".join(f"{role.role} ({role.formed} of {seeds})" for role in self.roles if role not in frequent)
        return [
            *([f"{text[0].upper()}{text[1:]}."] if text else []),
            *([f"On at most half of the seeds: {rare}."] if rare else []),
            *self._performance(),
        ]

    def _performance(self) -> list[str]:
        """Return sentences on outputs, uniform heads and the in-context score."""
        answers = self.events[ANSWERS]
        reached = sum(step < math.inf for step in answers)
        correct, loss = (
            np.median([getattr(run, name)[-1] for run in self.runs]) for name in ("accuracy", "loss")
        )
        even = np.median([(run.uniform[-1] >= EVEN).sum() for run in self.runs])
        sentences = [
            f"Half of the outputs are correct from step {format_steps(median_interval(answers))} on "
            f"({reached} of {len(answers)} seeds); at the end {correct:.1%} are correct, at a loss of {loss:.4f} "
            f"(medians).",
            f"At the end, {even:g} of {len(self.runs[0].heads)} heads attend uniformly (median).",
        ]
        scores = np.median([run.in_context for run in self.runs], axis=0)
        if np.isfinite(scores).all():
            lowest = int(scores.argmin())
            sentences.append(
                f"In-context score (loss late in the sequence minus loss early in it, median): lowest at step "
                f"{self.steps[lowest]:,} with {signed(scores[lowest])} nats, {signed(scores[-1])} at the end."
            )
        return sentences

    @property
    def notes(self) -> list[str]:
        """Meaning and limits of the numbers."""
        seeds, coverage = len(self.runs), median_interval([0.0] * len(self.runs)).coverage
        interval = (
            f"Steps are medians over {seeds} seeds, in brackets the {coverage:.1%} interval (order statistics)"
        )
        if seeds < 6:
            interval += ", because fewer than 6 seeds cannot give 95 %"
        if seeds == 1:
            interval = "Steps are those of 1 seed: give more seeds for intervals and orders"
        return [
            f"{interval}. A step is that of the first snapshot that shows the head, so the head may have formed "
            f"at any step after the previous snapshot. never: not formed at the last step, {self.steps[-1]:,}.",
            f"Score: 0 for uniform attention, 1 for attention to only the role's keys. A head has formed at the "
            f"first snapshot from which its score stays at {self.threshold:g} or above. Seeds are matched by "
            f"role: the head of a role is the first to form, of several at once the strongest.",
            f"Measured on {self.samples:,} samples, the same for all snapshots. Snapshots have half precision.",
            "How often a role of this table is wrong is not measured; `regard examine` names the roles of the "
            "trained model with their error rates.",
            *([f"Attention weights: {self.remark}."] if self.remark else []),
        ]

    def table(self) -> RenderableType:
        """Return sentences, a table of roles, a table of orders, and notes."""
        return Group(*self.sentences, "", self.role_table(), "", self.order_table(), "", *self.notes)

    def role_table(self) -> Table:
        """Return a table with one row for each role."""
        table = Table(*(Column(name, no_wrap=True) for name in ROLE_COLUMNS), box=None, pad_edge=False)
        table.title, table.title_justify = f"Roles of the heads of {self.summary()}", "left"
        for role in self.roles:
            where = "\n".join(f"{layer} ({seeds})" for layer, seeds in role.layers.items())
            relevance = "" if math.isnan(role.relevance) else f"{role.relevance:.2f}"
            step = format_steps(role.step) if role.formed else "never"
            table.add_row(
                *(role.role, f"{role.formed} of {len(self.runs)}", step, where, f"{role.count:g}"),
                *(f"{role.first_score:.2f}", f"{role.score:.2f}", signed(role.importance, 4), relevance),
                f"{role.entropy:.2f}",
            )
        return table

    def order_table(self) -> Table:
        """Return a table with the order of pairs of events that happen on most seeds."""
        table = Table("first", "then", "seeds", "same snapshot", "reverse", box=None, pad_edge=False)
        table.title, table.title_justify = "Order over seeds", "left"
        frequent = {name for name, steps in self.events.items() if 2 * np.isfinite(steps).sum() > len(steps)}
        for order in self.orders:
            if {order.first, order.second} <= frequent:
                table.add_row(order.first, order.second, *map(str, (order.before, order.same, order.after)))
        return table

    def json(self) -> dict[str, Any]:
        """Return everything as plain values: the runs' measurements by snapshot and head, roles, orders,
        sentences."""
        derived = {"steps": self.steps, "roles": self.roles, "events": self.events, "orders": self.orders}
        return {**super().json(), **to_plain(derived), "words": self.sentences, "notes": self.notes}

    def summary(self) -> str:
        seeds = f"{len(self.runs)} seed{'s' * (len(self.runs) > 1)}"
        return f"{self.task}, {seeds}, {len(self.steps)} snapshots"

    def to_html(self, path: str | Path) -> Path:
        """Write a page with plots, tables and sentences that opens offline, and return its path.

        Raises `MachineError` if the file cannot be written.
        """
        from regard.interpret.timeline_plots import COLOURS, draw_heads, draw_roles  # imports matplotlib

        roles = ", ".join(f"{role}: {COLOURS[role]}" for role in self.matched)
        parts: list[Part] = [
            Group(*self.sentences),
            Plot(
                lambda: draw_roles(self.runs, self.matched, self.threshold),
                "Score of each role, loss and accuracy",
            ),
            "Each strip: score of the role's head, median over seeds as a line, interval as a band. Ticks below: "
            "step at which the role forms on each seed. Dashed: threshold. Snapshots stand at equal distances.",
            self.role_table(),
            self.order_table(),
            Plot(
                lambda: draw_heads(self.runs, self.matched),
                f"Role of each head at each snapshot, by color: {roles}",
            ),
            "Each row is a head of one seed. Its color is that of the role with the largest score, "
            "stronger for a larger score; no color for scores of 0.",
            Group(*self.notes),
        ]
        write_file(Path(path), render_page(f"When the heads of {self.task} form", parts).encode())
        return Path(path)


ROLE_COLUMNS = (
    *("role", "seeds", "formed at step", "layer (seeds)", "heads", "score at 0", "last", "off: loss"),
    *("relevant", "entropy"),
)


def format_steps(interval: MedianInterval) -> str:
    """Return the median step with its interval.

    >>> format_steps(MedianInterval(median=210.0, low=180.0, high=None, coverage=0.95))
    '210 (180 to never)'
    """
    median, low, high = (
        "never" if end is None else f"{end:,.0f}" for end in (interval.median, interval.low, interval.high)
    )
    return median if not interval.coverage or low == high else f"{median} ({low} to {high})"


def _article(name: str) -> str:
    return "an" if name[0] in "aeiou" else "a"
