"""Examination: does the attention of a subject mean anything, and how far do the figures carry?

Three questions to every head that reads the input, each answered over many samples with a 95 % interval
(bootstrap over the samples, Efron 1979):

- Is it where it should be? The share of its attention on the inputs that the answer depends on, beside that of
  uniform attention, and beside the same head's share on the relevant inputs of another sample: a head that looks
  at the same places whatever the input is has that one too.
- Does it rank the inputs as the answer's dependence on them does? Spearman's rank correlation of the weights
  with gradient times input and with ablation (see `probing`), beside those of another sample.
- Does the head matter at all? What the loss gains when it is switched off (see `importance`).

What nothing was measured of is unknown: it is None, and no sentence is made of it.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from regard.errors import InputError, check_range
from regard.interpret.estimates import Estimate, resample_counts, estimate, describe_interval, said
from regard.interpret.findings import HeadFindings
from regard.interpret.importance import HeadImportance, head_importance
from regard.interpret.plots import importance_plot, relevance_plot
from regard.interpret.probing import Probe, probe
from regard.interpret.relevance import attention_mass
from regard.interpret.roles import MIN_SAMPLES, HeadRoles, head_roles
from regard.io import write_file, write_json
from regard.result import Result
from regard.training import RunFolder
from regard.training.kept import write_kept
from regard.viz.hypertext import Links, Part, Plot, page_of
from regard.viz.subject import Input, Subject

_WORTH = "Bars: what is added to the loss when each head is off; the table below has the numbers"
_PLACED = "Points: the share of each head on what the answer depends on; the table below has the numbers"
MOST = 60
"""Samples that roles are found over, at most."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Examination(Result):
    """What is known of a run's attention."""

    task: str
    samples: int
    seed: int
    uniform: Estimate | None
    """Share of uniform attention on relevant inputs; None where the task does not know them."""
    heads: list[HeadFindings]
    importance: HeadImportance
    alignment_error: dict[str, float] = field(default_factory=dict)
    """Alignment error rate (0 to 1) of each layer, where the alignment is known."""
    roles: HeadRoles | None = None
    """What each head does; None where nobody has asked."""
    unanswered: list[str] = field(default_factory=list)
    """What could not be asked, a sentence each."""
    over: str = "unseen samples"
    """What the inputs are, for people."""

    @property
    def sentences(self) -> list[str]:
        """What the figures support and what they do not, a sentence or two for each head."""
        found = [each.sentence() for each in self.heads]
        for layer, rate in self.alignment_error.items():
            quality = "nearly always points" if rate < 0.1 else "often points" if rate < 0.4 else "seldom points"
            found.append(
                f"{layer}: the largest weight {quality} at what a symbol was made from (error {rate:.1%})."
            )
        found += self.unanswered
        found.append(
            "Gradients and ablation are measures of their own, with faults of their own: where they disagree "
            "with the weights, that does not say which is right. Only switching a head off shows what the model "
            "does with it, and only for this run: train more seeds before saying it of the mechanism."
        )
        return found

    def table(self) -> RenderableType:
        """Return the figures as tables."""
        parts: list[RenderableType] = []
        if self.uniform is not None:
            shares = _table("Attention on what the answer depends on", "share", "less uniform", "less another's")
            for each in self.heads:
                found = (each.relevance, each.beyond_uniform, each.beyond_permuted)
                percents = (said(estimate, lambda known: known.percent) for estimate in found)
                shares.add_row(each.layer, str(each.head), *percents)
            parts += [shares, Text(f"Uniform attention: {self.uniform.percent}"), ""]
        gradient = _table(
            "Rank correlation of the weights with gradient times input", "this input's", "another's"
        )
        ablation = _table("Rank correlation of the weights with ablation", "this input's", "another's")
        for each in self.heads:
            gradient.add_row(each.layer, str(each.head), said(each.gradient), said(each.gradient_permuted))
            ablation.add_row(each.layer, str(each.head), said(each.ablation), said(each.ablation_permuted))
        if self.roles is not None:
            parts += [self.roles.table(self.importance.added), ""]
        about = f"{self.task}: {self.samples:,} {self.over}, mean ({interval_over(self.samples)})"
        return Group(about, "", *parts, gradient, "", ablation, "", self.importance.table())

    def to_html(self, path: str | Path, *, explorer: str | None = None) -> Path:
        """Write a page with all tables, plots and words; raises `MachineError` where that cannot be.

        `explorer`: where `regard show` serves the subject, so that each head has a link into it.
        """
        parts: list[Part] = [Group(*self.sentences), Plot(lambda: importance_plot(self.importance), _WORTH)]
        if (uniform := self.uniform) is not None:
            parts.append(Plot(lambda: relevance_plot(self.heads, uniform), _PLACED))
        table = self.table()
        assert isinstance(table, Group)
        parts.append(table)
        if explorer is not None:
            ranked = self.importance.ranked()[::-1]
            to = [(f"{layer}, head {head}", f"{explorer}#layer={layer}&head={head}") for _, layer, head in ranked]
            parts.append(Links("In the explorer, while `regard show` runs there", to))
        write_file(Path(path), page_of(f"What the attention of {self.task} means", parts).encode())
        return Path(path)

    def json(self) -> dict[str, Any]:
        """Return all figures as plain values, and the sentences as `words`."""
        return {**super().json(), "words": self.sentences}

    def summary(self) -> str:
        """Say what was asked."""
        return f"{self.task}, {len(self.heads)} heads, {self.samples:,} {self.over}"

    def save(self, path: str | Path) -> Path:
        """Write all figures as JSON, and the sentences; raises `MachineError` where that cannot be.

        In the folder of a run the file also says of which model it is, which is checked when it is read.
        """
        path = Path(path)
        if (run := RunFolder(path.parent)).exists():
            write_kept(run, path.name, self.json())
        else:
            write_json(path, self.json(), indent=1, allow_nan=False)
        return Path(path)


def _table(title: str, *columns: str) -> Table:
    return Table("layer", "head", *columns, box=None, pad_edge=False, title=title, title_justify="left")


def examine(subject: Subject[Input], *, samples: int = 200, seed: int = 0) -> Examination:
    """Ask what the attention of a subject to its inputs means, over `samples` unseen ones.

    Raises `InputError` for a model without attention, or where there are no such inputs.
    """
    check_range("samples", samples, 2, 10**5)
    importance = head_importance(subject, seed=seed)
    inputs = subject.unseen(samples, seed)
    trials = [trial for trial in map(subject.trial, inputs) if trial is not None]
    probes = [probe(subject.recording, each.embedding, each.run, each.layers) for each in trials]
    known = [each.relevant for each in trials if each.relevant is not None]
    found = make_examination(
        probes,
        known if known and len(known) == len(probes) else None,
        importance,
        task=subject.name,
        seed=seed,
        samples=len(inputs),
        alignment_error=subject.alignment_error(inputs),
        unanswered=subject.unanswered,
    )
    return dataclasses.replace(found, roles=_roles(subject, samples, seed))


def _roles(subject: Subject[Input], samples: int, seed: int) -> HeadRoles | None:
    """Return what each head does; None of somebody's model that cannot be drawn anew, and so has no null."""
    try:
        return head_roles(subject, samples=min(max(samples, MIN_SAMPLES), MOST), seed=seed)
    except InputError:
        return None


def make_examination(
    probes: Sequence[Probe],
    relevance: Sequence[np.ndarray] | None,
    importance: HeadImportance,
    *,
    task: str,
    seed: int,
    samples: int | None = None,
    alignment_error: dict[str, float] | None = None,
    unanswered: Sequence[str] = (),
) -> Examination:
    """Work out all figures; `relevance`: (Tq, Tk) bool for each probe, None where the task does not know it.

    Without probes, of which there are as many as samples otherwise, importance is all that is told of a head.
    """
    # Each sample beside the next one: as good as any other, and never itself.
    others = [*range(1, len(probes)), 0]
    draw = resample_counts(max(len(probes), 1), seed)
    even = (
        None if relevance is None else np.array([_share(np.full(r.shape, 1 / r.shape[1]), r) for r in relevance])
    )
    heads = []
    if not probes:
        heads = [
            _unprobed(layer, head, importance)
            for layer, all in importance.added.items()
            for head in range(len(all))
        ]
    for layer, first in probes[0].weights.items() if probes else ():
        for head in range(len(first)):
            weights = [each.weights[layer][head] for each in probes]
            placing = {}
            if relevance is not None and even is not None:
                placing = _placing(weights, relevance, even, others, draw)
            worth = importance.added[layer][head]
            ranking = _ranking(weights, probes, others, draw)
            moved = _moved(weights, others)
            heads.append(
                HeadFindings(
                    layer=layer,
                    head=head,
                    importance=worth,
                    measure=importance.measure,
                    moved=moved,
                    **ranking,
                    **placing,
                )
            )
    return Examination(
        task=task,
        samples=len(probes) if samples is None else samples,
        seed=seed,
        uniform=None if even is None else estimate(even, draw),
        heads=heads,
        importance=importance,
        alignment_error=alignment_error or {},
        unanswered=list(unanswered),
    )


def _unprobed(layer: str, head: int, importance: HeadImportance) -> HeadFindings:
    return HeadFindings(
        layer=layer,
        head=head,
        gradient=None,
        ablation=None,
        gradient_permuted=None,
        ablation_permuted=None,
        importance=importance.added[layer][head],
        measure=importance.measure,
    )


def _placing(
    weights: list[np.ndarray],
    relevance: Sequence[np.ndarray],
    even: np.ndarray,
    others: list[int],
    draw: np.ndarray,
) -> dict[str, Estimate | None]:
    """Say how much of a head's attention is on what is relevant; `even`: the share of uniform attention."""
    shares = [_share(w, r) for w, r in zip(weights, relevance, strict=True)]
    permuted = [_share(w, relevance[other]) for w, other in zip(weights, others, strict=True)]
    return {
        "relevance": estimate(shares, draw),
        "beyond_uniform": estimate(shares - even, draw),
        "beyond_permuted": estimate(np.subtract(shares, permuted), draw),
    }


def _moved(weights: list[np.ndarray], others: list[int]) -> float:
    """Say how much of a head's attention stands elsewhere on another sample, as far as both go: half the sum of
    the differences, in the mean."""
    found = []
    for own, other in zip(weights, (weights[each] for each in others), strict=True):
        steps, inputs = (min(sizes) for sizes in zip(own.shape, other.shape, strict=True))
        found.append(float(np.abs(own[:steps, :inputs] - other[:steps, :inputs]).sum(1).mean()) / 2)
    return float(np.mean(found))


def _ranking(
    weights: list[np.ndarray], probes: Sequence[Probe], others: list[int], draw: np.ndarray
) -> dict[str, Estimate | None]:
    """Say how far a head ranks the inputs as gradients and ablation do."""
    found: dict[str, Estimate | None] = {}
    for name, measures in (
        ("gradient", [each.gradient for each in probes]),
        ("ablation", [each.ablation for each in probes]),
    ):
        own = [correlation(w, m) for w, m in zip(weights, measures, strict=True)]
        another = [correlation(w, measures[other]) for w, other in zip(weights, others, strict=True)]
        found |= {name: estimate(own, draw), f"{name}_permuted": estimate(another, draw)}
    return found


def _share(weights: np.ndarray, relevant: np.ndarray) -> float:
    """Return the mean mass on relevant inputs over the steps that depend on some; of two samples of different
    lengths, as far as both go."""
    steps, inputs = (min(sizes) for sizes in zip(weights.shape, relevant.shape, strict=True))
    relevant = relevant[:steps, :inputs]
    counted = relevant.any(1)
    return float(attention_mass(weights[:steps, :inputs], relevant)[counted].mean()) if counted.any() else float("nan")


def correlation(weights: np.ndarray, measure: np.ndarray) -> float:
    """Return Spearman's rank correlation of weights and measure (Tq, Tk) over the inputs, mean over the steps.

    Of two samples of different lengths, as far as both go. Steps at which one of them is constant do not count;
    NaN where none is left.
    """
    steps, inputs = (min(sizes) for sizes in zip(weights.shape, measure.shape, strict=True))
    one, other = _ranks(weights[:steps, :inputs]), _ranks(measure[:steps, :inputs])
    one, other = one - one.mean(1, keepdims=True), other - other.mean(1, keepdims=True)
    size = np.sqrt((one**2).sum(1) * (other**2).sum(1))
    counted = size > 0
    if not counted.any():
        return float("nan")
    return float(((one * other).sum(1)[counted] / size[counted]).mean())


def _ranks(rows: np.ndarray) -> np.ndarray:
    """Return the rank of each value in its row; those that are alike to six decimals share the mean of theirs."""
    ranks = np.empty(rows.shape)
    for row, values in zip(ranks, rows.round(6), strict=True):
        _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
        row[:] = (counts.cumsum() - (counts - 1) / 2)[which]
    return ranks
