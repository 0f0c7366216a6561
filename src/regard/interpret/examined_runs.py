"""Examinations of runs that differ in their seed, and what holds over the seeds.

Heads of different seeds do not correspond by number: what head 3 does after one training, head 0 may do after
another. Layers do correspond. Heads are therefore not compared one by one. The results are about the set of heads
of each layer: how many heads get a sentence, and the mean and the largest value of these heads.

A value of a run is a mean over its samples. Means and ranges over the runs are taken of these values.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from regard.arguments import public
from regard.interpret.estimates import Estimate, format_estimate
from regard.interpret.examination import Examination
from regard.interpret.findings import HeadFindings
from regard.interpret.sentence_errors import describe_error, error_rates, is_reliable
from regard.io.writing import write_file
from regard.result import Result, percent, to_plain
from regard.statistics import Interval, describe_range, seed_range
from regard.viz.report_page import render_page

UNMATCHED = (
    "Heads of different runs do not correspond by number. The tables therefore compare sets of heads: how many "
    "heads of a layer get a sentence, and the mean and the largest value of the heads."
)
RELEVANT, RANKED = "attention on relevant inputs", "rank correlation with the effect of replacing inputs"
ALIGNMENT = "alignment error rate"


@dataclass(frozen=True, kw_only=True)
class KindCount:
    """How many heads of a layer get one kind of sentence."""

    layer: str
    """Name of the layer; "all" for groups of heads."""
    question: str
    kind: str
    heads: list[int]
    """Number of heads, or of groups of heads, of each run."""
    of: int | None
    """Number of heads of the layer; None for groups."""

    @property
    def runs(self) -> int:
        return sum(count > 0 for count in self.heads)


@dataclass(frozen=True, kw_only=True)
class LayerValue:
    """One measurement of a layer."""

    layer: str
    name: str
    values: list[float | None]
    """Value of each run; None where it could not be measured."""

    @property
    def interval(self) -> Interval:
        return seed_range([value for value in self.values if value is not None])


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class ExaminedRuns(Result):
    """The examinations of runs that differ in their seed; `print` shows what holds over the runs."""

    task: str
    runs: list[str]
    """Folder of each run."""
    seeds: list[int]
    """Training seed of each run."""
    examinations: list[Examination]

    @cached_property
    def counts(self) -> list[KindCount]:
        """How many heads of each layer get each kind of sentence."""
        kinds, counts = [run.kinds for run in self.examinations], list[KindCount]()
        for layer, heads in kinds[0].items():
            questions = dict.fromkeys(name for run in kinds for head in run[layer] for name in head)
            for question in questions:
                answers = [[head[question] for head in run[layer] if question in head] for run in kinds]
                for kind in sorted({kind for run in answers for kind in run}):
                    number = [run.count(kind) for run in answers]
                    counts.append(
                        KindCount(layer=layer, question=question, kind=kind, heads=number, of=len(heads))
                    )
        for kind in self.examinations[0].groups:
            number = [run.groups.get(kind, 0) for run in self.examinations]
            text = kind if is_reliable(kind) else f"may {kind} (cannot be told)"
            counts.append(KindCount(layer="all", question="groups", kind=text, heads=number, of=None))
        return counts

    @cached_property
    def values(self) -> list[LayerValue]:
        """Importance, relevance, ranking and alignment error of each layer: mean and largest of its heads."""
        values = []
        for layer in self.examinations[0].importance.added:
            measures: dict[str, list[list[float]]] = {
                self._added: [run.importance.added[layer] for run in self.examinations],
                RELEVANT: [_means(run, layer, lambda head: head.relevance) for run in self.examinations],
                RANKED: [_means(run, layer, lambda head: head.ranking) for run in self.examinations],
            }
            for name, heads in measures.items():
                if any(heads):
                    for part, reduce in (("mean", fmean), ("largest", max)):
                        reduced = [reduce(run) if run else None for run in heads]
                        values.append(
                            LayerValue(layer=layer, name=f"{name}, {part} of the heads", values=reduced)
                        )
            rates = [
                run.alignment_error[layer].value for run in self.examinations if layer in run.alignment_error
            ]
            if rates:
                values.append(LayerValue(layer=layer, name=ALIGNMENT, values=[*rates]))
        return values

    @property
    def _added(self) -> str:
        return f"{self.examinations[0].importance.measure} added when a head is off"

    @property
    def sentences(self) -> list[str]:
        """What holds over the runs, how to read it, and how often such sentences are wrong."""
        sentences = [
            f"{count.layer}: {_interval(seed_range(count.heads), _number)} of {count.of} heads are {count.kind}."
            for count in self.counts
            if count.question == "need" and count.kind != "cannot be told"
        ]
        kinds = dict.fromkeys(count.kind for count in self.counts if count.kind in error_rates())
        return [
            *sentences,
            UNMATCHED,
            f"In brackets: the smallest and the largest value of the runs. {describe_range(len(self.runs))}",
            *(f"Sentence “{kind}”: {describe_error(kind)}." for kind in kinds),
            "How often the sentences on rankings are wrong is not measured. The sentences of each run, with "
            "their error rates, are in examined.json in its folder (in Python: `examinations`).",
            *dict.fromkeys(sentence for run in self.examinations for sentence in run.remarks),
        ]

    def table(self) -> RenderableType:
        first, total = self.examinations[0], len(self.runs)
        title = f"{self.summary()}, {first.samples:,} {first.over} each"
        counts = _table("How many heads get each sentence", "layer", "question", "sentence", "runs", "heads")
        for count in self.counts:
            of = "" if count.of is None else f" of {count.of}"
            number = f"{_interval(seed_range(count.heads), _number)}{of}"
            counts.add_row(count.layer, count.question, count.kind, f"{count.runs} of {total}", number)
        values = _table("Values", "layer", "value", "mean (range) over the runs")
        for value in self.values:
            form = percent if value.name.startswith((RELEVANT, ALIGNMENT)) else "{:.4f}".format
            known = sum(number is not None for number in value.values)
            missing = "" if known == total else f", on {known} of {total} runs"
            values.add_row(value.layer, value.name, f"{_interval(value.interval, form)}{missing}")
        return Group(title, "", counts, "", values, "", self._run_table())

    def _run_table(self) -> Table:
        columns = ("run", "seed", self.examinations[0].importance.measure, "most important head: adds", "needed")
        table = _table("Each run, with intervals over the samples", *columns, "heads with a role")
        for path, seed, run in zip(self.runs, self.seeds, self.examinations, strict=True):
            added, layer, head = run.importance.ranked()[-1]
            interval = run.importance.interval(layer, head)
            most = format_estimate(interval) if interval is not None else f"{added:.3f}"
            heads = [kinds for layer_heads in run.kinds.values() for kinds in layer_heads]
            needed = sum(kinds.get("need") == "needed" for kinds in heads)
            roles = "not measured" if run.roles is None else str(sum(r.role is not None for r in run.roles.heads))
            name = f"{layer} head {head}: {most}"
            table.add_row(path, str(seed), f"{run.importance.loss:.4f}", name, str(needed), roles)
        return table

    def to_html(self, path: str | Path) -> Path:
        """Write a page with all tables and sentences, and return its path.

        Raises `MachineError` if the file cannot be written.
        """
        table = self.table()
        assert isinstance(table, Group)
        title = f"What the attention of {self.task} means, over {len(self.runs)} runs"
        write_file(Path(path), render_page(title, [Group(*self.sentences), table]).encode())
        return Path(path)

    def json(self) -> dict[str, Any]:
        values = [{**to_plain(value), **to_plain(value.interval)} for value in self.values]
        return {**super().json(), "counts": to_plain(self.counts), "values": values, "words": self.sentences}

    def summary(self) -> str:
        return f"{self.task}, {len(self.runs)} runs (seeds {', '.join(map(str, self.seeds))})"


def _means(run: Examination, layer: str, measure: Callable[[HeadFindings], Estimate | None]) -> list[float]:
    estimates = [measure(head) for head in run.heads if head.layer == layer]
    return [estimate.mean for estimate in estimates if estimate is not None]


def _table(title: str, *columns: str) -> Table:
    return Table(*columns, box=None, pad_edge=False, title=title, title_justify="left")


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _interval(interval: Interval, form: Callable[[float], str]) -> str:
    """Format a mean, and its range if the printed digits of its ends differ.

    >>> _interval(seed_range([1, 2]), _number), _interval(seed_range([2, 2]), _number)
    ('1.5 (1 to 2)', '2')
    """
    if interval.low is None or interval.high is None or form(interval.low) == form(interval.high):
        return form(interval.value)
    return f"{form(interval.value)} ({form(interval.low)} to {form(interval.high)})"
