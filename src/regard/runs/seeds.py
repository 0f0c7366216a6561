"""Measurements over runs that differ only in their seed: `regard.examine_runs`, and `regard.timeline`, the
development of every head over the snapshots."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from rich.console import Group, RenderableType

from regard.arguments import Limits, public
from regard.attention.descriptions import describe_model
from regard.errors import InputError
from regard.fast.threads import limit_threads
from regard.interpret.estimates import Estimate, describe_error, error_rates, format_estimate
from regard.interpret.examination import FILE, Examination, HeadFindings, read_examination
from regard.interpret.health import FILE as WATCH, read_watch
from regard.interpret.timeline import (
    SAMPLE_COUNT,
    SAMPLES,
    THRESHOLD,
    Development,
    Head,
    HeadScores,
    Timeline,
    measure_heads,
    repeated_samples,
)
from regard.io import is_file, write_file
from regard.progress import counting_bar, print_status
from regard.result import Result, percent, plain_table, to_plain
from regard.runs.loading import SAVEPATH, load, read_task
from regard.runs.run import Run
from regard.statistics import Interval, describe_range, format_interval, seed_range
from regard.training.building import build_model
from regard.training.checkpoint import load_snapshots
from regard.training.config import RunConfig
from regard.training.run_folder import find_run
from regard.viz.report_page import Part, Plot, render_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def check_seeds(names: Sequence[str], configs: Sequence[RunConfig]) -> None:
    """Raise `InputError` unless runs have one task and shape, equal options, and other seeds. `names`: for messages."""
    first, expected = repr(names[0]), configs[0].flags()
    seeds = {configs[0].training.seed: first}
    for name, config in zip(map(repr, names[1:]), configs[1:], strict=True):
        if config.on != configs[0].on and config.name != configs[0].name:
            raise InputError(f"{first} is a run of {configs[0].name}, {name} of {config.name}: give runs of one task")
        flags = config.flags()
        for flag in sorted((flags.keys() | expected.keys()) - {"seed"}):
            if flags.get(flag) != expected.get(flag):
                values = f"{expected.get(flag)} in {first} and {flags.get(flag)} in {name}"
                raise InputError(f"{flag} is {values}: give runs that differ only in their seed")
        if config.kept_heads != configs[0].kept_heads:
            raise InputError(f"{first} and {name} were pruned to different heads: give runs with the same heads")
        if (seed := config.training.seed) in seeds:
            raise InputError(f"seed {seed} is that of {seeds[seed]} and of {name}: give each seed once")
        seeds[seed] = name


@public
def examine_runs(
    runs: Sequence[str | Path | Run[Any, Any]],
    *,
    samples: Annotated[int, Limits(2, 10**5)] = 200,
    seed: int = 0,
    savepath: str | Path = SAVEPATH,
    trust_code: bool = False,
    trust_edited: bool = False,
    progress: bool = True,
) -> ExaminedRuns:
    """Examine runs that differ only in their seed, each over `samples` unseen inputs, and compare their heads.

    `runs`: folders of runs, names of runs in `savepath`, or runs. The examination of a folder is saved there as
    examined.json. A repeated call reads it, if the run, `samples` and `seed` are the same. `progress`: show the
    number of examined runs on standard error. `trust_code`, `trust_edited`: as in `regard.load`.

    Raises `InputError` for runs of different tasks or shapes, with different options or steps, or equal seeds.

        print(regard.examine_runs(["seed0/signal2", "seed1/signal2", "seed2/signal2"]))
    """
    options = {"savepath": savepath, "trust_code": trust_code, "trust_edited": trust_edited}
    runs = [runs] if isinstance(runs, str | Path) else runs
    loaded = [run if isinstance(run, Run) else load(run, **options) for run in runs]  # type: ignore[arg-type]
    if not loaded:
        raise InputError("there are no runs: name the folders of one or more runs")
    names = [str(run.folder) for run in loaded]
    check_seeds(names, [run.config for run in loaded])
    for name, run in zip(names, loaded, strict=True):
        if run.step != loaded[0].step:
            steps = f"{loaded[0].step:,} training steps, {name!r} has {run.step:,}"
            raise InputError(f"{names[0]!r} has {steps}: continue an interrupted one with --resume")
    examinations, stored = [], []
    with counting_bar("examine, runs", 0, len(loaded), show=progress) as advance:
        for name, given, run in zip(names, runs, loaded, strict=True):
            # A run in memory may have been changed, so its file is neither read nor written.
            in_memory = isinstance(given, Run)
            examination = None if in_memory else read_examination(run.files, samples, seed)
            if examination is not None:
                stored.append(name)
            else:
                examination = run.examine(samples=samples, seed=seed)
                if not in_memory:
                    examination.save(run.folder / FILE)
            examinations.append(examination)
            advance()
    if stored:
        print_status(f"read from {FILE}, not measured again: {', '.join(stored)}", show=progress)
    return ExaminedRuns(
        task=loaded[0].name, runs=names, seeds=[run.config.training.seed for run in loaded], examinations=examinations
    )


@public
def timeline(
    runs: Sequence[str | Path | Run[Any, Any]],
    *,
    samples: Annotated[int, Limits(2, 10**6)] = SAMPLE_COUNT,
    threshold: float = THRESHOLD,
    seed: int = 0,
    savepath: str | Path = SAVEPATH,
    trust_code: bool = False,
    trust_edited: bool = False,
    progress: bool = True,
) -> Timeline:
    """Measure every head at all snapshots of runs that differ only in their seed.

    `runs`: runs, folders of runs, or names of runs in `savepath`; or folders with the checkpoints (`checkpoint-N`) of
    language models that transformers trained, whose samples are random tokens that are repeated once; or folders that
    `regard.watch` wrote. `samples`: number of samples, the same for all snapshots, drawn by `seed`. `threshold`: score
    (above 0, below 1) from which a head has a role. `progress`: show the number of measured snapshots on standard
    error. `trust_code`, `trust_edited`: as in `regard.load`.

    Raises `InputError` for runs without snapshots, of different tasks, or with different options, for equal
    seeds, and for a model without attention.

        print(regard.timeline(["seed0/induction", "seed1/induction"]))
    """
    if not 0 < threshold < 1:
        raise InputError(f"threshold {threshold} is out of range: choose above 0 and below 1")
    if not runs:
        raise InputError("there are no runs: name the folders of one or more runs")
    watched = [Path(run) for run in runs if isinstance(run, str | Path) and is_file(Path(run) / WATCH)]
    if watched and len(watched) == len(runs):
        return _watch_timeline(watched, threshold)
    checkpoints = [_checkpoints(run) if isinstance(run, str | Path) else [] for run in runs]
    if all(checkpoints):
        return _checkpoint_timeline(checkpoints, samples, threshold, seed, progress)
    folders = [
        find_run(run, Path(savepath), trust_edited=trust_edited) if isinstance(run, str | Path) else run.files
        for run in runs
    ]
    for folder in folders:
        folder.check_snapshots()
    configs = [folder.read_config(trust_code=trust_code) for folder in folders]
    check_seeds([str(folder.path) for folder in folders], configs)
    names, first = [path.name for path in folders[0].snapshots], repr(str(folders[0].path))
    for folder in folders[1:]:
        if [snapshot.name for snapshot in folder.snapshots] != names:
            others = f"{str(folder.path)!r} has {len(folder.snapshots)} or other steps"
            raise InputError(f"{first} has {len(names)} snapshots, {others}: continue an interrupted run with --resume")
    task = read_task(configs[0], folders[0])
    if task.answers == "text" and not task.draws:
        raise InputError(f"{task.name} draws no samples to measure its heads on: give runs of a task that does")
    drawn, count, developments = SAMPLES[task.answers](task, samples, seed), len(names), []
    with counting_bar("timeline, snapshots", 0, count * len(folders), show=progress, every=count) as advance:
        for folder, config in zip(folders, configs, strict=True):
            model, steps, scores = build_model(config, task), [], []
            with limit_threads(model):
                for step in load_snapshots(folder, model):
                    steps.append(step)
                    scores.append(measure_heads(model, drawn))
                    advance()
            developments.append(_development(str(folder.path), config.training.seed, steps, scores))
    return Timeline(
        task=task.name,
        kind=configs[0].kind,
        samples=samples,
        threshold=threshold,
        runs=developments,
        remark=describe_model(build_model(configs[0], task)),
    )


WATCHED = {"previous-token": "previous_token", "current-token": "own_token", "first-token": "first_token"}
"""The measure of `regard.watch` that is the score of each role."""
SHARES = (
    "Measured by regard.watch on its probe: the score of a role is the share of the weight on its keys, and a head "
    "attends uniformly if its entropy is 0.9 of the largest or more. Other roles are not measured."
)


def _development(run: str, seed: int, steps: list[int], scores: Sequence[HeadScores]) -> Development:
    return Development(
        run=run,
        seed=seed,
        steps=steps,
        heads=scores[0].heads,
        roles={role: np.stack([step.roles[role] for step in scores]) for role in scores[0].roles},
        **{name: np.array([getattr(step, name) for step in scores]) for name in HeadScores._fields[2:]},
    )


def _checkpoints(folder: str | Path) -> list[tuple[int, Path]]:
    """Return the steps and folders of checkpoints that transformers' Trainer wrote to a folder."""
    paths = [path for path in Path(folder).glob("checkpoint-*") if path.name[11:].isdecimal()]
    return sorted((int(path.name[11:]), path) for path in paths)


def _checkpoint_timeline(
    runs: Sequence[list[tuple[int, Path]]], samples: int, threshold: float, seed: int, progress: bool
) -> Timeline:
    """Measure the heads of language models at checkpoints of transformers; each folder counts as one seed."""
    from regard.external.loading import look  # slow to import

    steps, developments = [step for step, _ in runs[0]], []
    if any([step for step, _ in run] != steps for run in runs):
        raise InputError("the folders have checkpoints of other steps: give trainings with the same steps")
    with counting_bar("timeline, checkpoints", 0, len(steps) * len(runs), show=progress) as advance:
        for number, run in enumerate(runs):
            scores = []
            for _, path in run:
                model: Any = look(path, str).model  # the samples need no tokenizer
                kind = type(model).__name__
                if not kind.endswith(("ForCausalLM", "LMHeadModel")):
                    raise InputError(f"{str(path)!r} is a {kind}: the timeline of checkpoints needs a language model")
                drawn = repeated_samples(model.config.get_text_config().vocab_size, samples, seed)
                scores.append(measure_heads(model, drawn))
                advance()
            developments.append(_development(str(run[0][1].parent), number, steps, scores))
    task = runs[0][0][1].parent.name
    return Timeline(task=task, kind=kind, samples=samples, threshold=threshold, runs=developments, note=drawn.note)


def _watch_timeline(folders: Sequence[Path], threshold: float) -> Timeline:
    """Read what `regard.watch` measured; each folder counts as one seed."""
    developments = []
    for number, folder in enumerate(folders):
        record, scores = read_watch(folder), []
        losses = [note for note in record.notes if note.get("loss") is not None]
        if not record.rows:
            raise InputError(f"{str(folder)!r}: nothing was measured")
        groups = [(step, [*rows]) for step, rows in groupby(record.rows, itemgetter("step"))]
        for step, rows in groups:
            heads = [Head(row["layer"], row["head"]) for row in rows]
            names = ("relative_entropy", "entropy", *WATCHED.values())
            even, entropy, *shares = (np.array([row[name] for row in rows], dtype=float) for name in names)
            roles, unknown = dict(zip(WATCHED, shares, strict=True)), np.full(len(rows), np.nan)
            noted = bisect_right(losses, step, key=itemgetter("step"))  # the last loss until this step
            loss = losses[noted - 1]["loss"] if noted else math.nan
            scores.append(HeadScores(heads, roles, even, unknown, entropy, unknown, loss, math.nan, math.nan))
        developments.append(_development(str(folder), number, [step for step, _ in groups], scores))
    if len({tuple(run.steps) for run in developments}) > 1:
        raise InputError("the folders have measurements of other steps: give trainings with the same steps")
    return Timeline(task=folders[0].name, kind="", samples=0, threshold=threshold, runs=developments, note=SHARES)


UNMATCHED = (
    "Heads of different runs do not correspond by number. The tables therefore compare sets of heads: how many "
    "heads of a layer get a sentence, and the mean and the largest value of the heads."
)
RELEVANT, RANKED = "attention on relevant inputs", "rank correlation with the effect of replacing inputs"
ALIGNMENT = "alignment error rate"


@dataclass(frozen=True, kw_only=True)
class KindCount:
    """How many heads of a layer get one kind of sentence."""

    layer: str  # Name of the layer; "all" for groups of heads
    question: str
    kind: str
    heads: list[int]  # Number of heads, or of groups of heads, of each run
    of: int | None  # Number of heads of the layer; None for groups

    @property
    def runs(self) -> int:
        return sum(count > 0 for count in self.heads)


@dataclass(frozen=True, kw_only=True)
class LayerValue:
    """One measurement of a layer."""

    layer: str
    name: str
    values: list[float | None]  # Value of each run; None where it could not be measured

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
                    counts.append(KindCount(layer=layer, question=question, kind=kind, heads=number, of=len(heads)))
        for kind in self.examinations[0].groups:
            number = [run.groups.get(kind, 0) for run in self.examinations]
            counts.append(KindCount(layer="all", question="groups", kind=kind, heads=number, of=None))
        return counts

    @cached_property
    def values(self) -> list[LayerValue]:
        """Importance, relevance, ranking and alignment error of each layer: mean and largest of its heads."""
        values = []
        for layer in self.examinations[0].importance.added:
            measures: dict[str, list[list[float]]] = {
                f"{self.examinations[0].importance.measure} added when a head is off": [
                    run.importance.added[layer] for run in self.examinations
                ],
                RELEVANT: [_means(run, layer, lambda head: head.relevance) for run in self.examinations],
                RANKED: [_means(run, layer, lambda head: head.ranking) for run in self.examinations],
            }
            for name, heads in measures.items():
                if any(heads):
                    for part, reduce in (("mean", fmean), ("largest", max)):
                        reduced = [reduce(run) if run else None for run in heads]
                        values.append(LayerValue(layer=layer, name=f"{name}, {part} of the heads", values=reduced))
            rates = [run.alignment_error[layer].value for run in self.examinations if layer in run.alignment_error]
            if rates:
                values.append(LayerValue(layer=layer, name=ALIGNMENT, values=[*rates]))
        return values

    @property
    def sentences(self) -> list[str]:
        """What holds over the runs, how to read it, and how often such sentences are wrong."""
        sentences = [
            f"{count.layer}: {format_interval(seed_range(count.heads), _number)} of {count.of} heads are {count.kind}."
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
        counts = plain_table(
            ("layer", "question", "sentence", "runs", "heads"), title="How many heads get each sentence"
        )
        for count in self.counts:
            of = "" if count.of is None else f" of {count.of}"
            number = f"{format_interval(seed_range(count.heads), _number)}{of}"
            counts.add_row(count.layer, count.question, count.kind, f"{count.runs} of {total}", number)
        values = plain_table(("layer", "value", "mean (range) over the runs"), title="Values")
        for value in self.values:
            form = percent if value.name.startswith((RELEVANT, ALIGNMENT)) else "{:.4f}".format
            known = sum(number is not None for number in value.values)
            missing = "" if known == total else f", on {known} of {total} runs"
            values.add_row(value.layer, value.name, f"{format_interval(value.interval, form)}{missing}")
        columns = ("run", "seed", first.importance.measure, "most important head: adds", "needed")
        runs = plain_table((*columns, "heads with a role"), title="Each run, with intervals over the samples")
        for path, seed, run in zip(self.runs, self.seeds, self.examinations, strict=True):
            added, layer, head = run.importance.ranked()[-1]
            interval = run.importance.interval(layer, head)
            most = format_estimate(interval) if interval is not None else f"{added:.3f}"
            heads = [kinds for layer_heads in run.kinds.values() for kinds in layer_heads]
            needed = sum(kinds.get("need") == "needed" for kinds in heads)
            roles = "not measured" if run.roles is None else str(sum(r.role is not None for r in run.roles.heads))
            name = f"{layer} head {head}: {most}"
            runs.add_row(path, str(seed), f"{run.importance.loss:.4f}", name, str(needed), roles)
        return Group(title, "", counts, "", values, "", runs)

    def _draw_importance(self, width: float) -> Figure:
        from regard.viz.plots import ValueInterval, draw_rows  # matplotlib is slow to import

        points = {
            f"seed {seed}": [
                ValueInterval(layer, value, value, value)
                for layer, values in run.importance.added.items()
                for value in values
            ]
            for seed, run in zip(self.seeds, self.examinations, strict=True)
        }
        return draw_rows(points, width, f"{self.examinations[0].importance.measure} added when one head is off")

    def to_html(self, path: str | Path) -> Path:
        """Write a page with the importance of all heads, all tables and sentences, and return its path.

        Raises `MachineError` if the file cannot be written.
        """
        table = self.table()
        assert isinstance(table, Group)
        title = f"What the attention of {self.task} means, over {len(self.runs)} runs"
        says = "Points: loss increase when each head is disabled, by layer and run"
        parts: list[Part] = [Plot(self._draw_importance, says), Group(*self.sentences), table]
        write_file(Path(path), render_page(title, parts).encode())
        return Path(path)

    def json(self) -> dict[str, Any]:
        values = [{**to_plain(value), **to_plain(value.interval)} for value in self.values]
        return {**super().json(), "counts": to_plain(self.counts), "values": values, "words": self.sentences}

    def summary(self) -> str:
        return f"{self.task}, {len(self.runs)} runs (seeds {', '.join(map(str, self.seeds))})"


def _means(run: Examination, layer: str, measure: Callable[[HeadFindings], Estimate | None]) -> list[float]:
    estimates = [measure(head) for head in run.heads if head.layer == layer]
    return [estimate.mean for estimate in estimates if estimate is not None]


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
