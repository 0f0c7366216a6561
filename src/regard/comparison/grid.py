"""A grid of variants times seeds, each trained and tested once, side by side over the cores; on a GPU, all seeds
of a query model together.

    DIR/TASK/VARIANT/seed-N/TASK/          the run
    DIR/TASK/VARIANT/seed-N/measured.json  what its test found

What is measured already is not trained again, and what was interrupted goes on where it stopped.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import torch

from regard.comparison.processes import in_processes
from regard.errors import InputError
from regard.files import write_json
from regard.progress import counting_bar
from regard.reading import is_file, read_json
from regard.runs import Figures, load, train, train_seeds
from regard.tasks import find_task
from regard.training import RunConfig, RunFolder, make_config, renamed, stackable

if TYPE_CHECKING:
    from regard.runs import AnyRun


LARGEST = 1 << 20
"""Bytes of the file of a measurement, at most."""
REACHED = 0.99
"""Exact match of a training batch, mean over ten lines of metrics, that counts as having learned."""


@dataclass(frozen=True)
class Variant:
    """One way to train: the flags that vary, with their values."""

    varied: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The flags as text, such as `pooling=last,max_len=20`."""
        return ",".join(f"{name}={value}" for name, value in self.varied.items())


@dataclass(frozen=True, kw_only=True)
class Measured(Figures):
    """What one training came to."""

    steps_to_99: int | None
    """Training steps until the training batches were 99 % right (mean of ten lines of metrics); None: never."""
    parameters: int
    seconds: float | None
    """Processor time of its training; None where it was interrupted."""
    loss: float
    """Mean over the last ten lines of metrics."""


@dataclass(frozen=True, repr=False)
class Measurements:
    """All measurements of a grid, by variant and seed."""

    task: str
    folder: Path
    variants: list[Variant]
    measured: dict[str, list[Measured]]
    """By the variant's name, one for each seed."""

    def values(self, variant: Variant, quantity: str) -> list[float]:
        """Return one quantity of each seed, without those that have none."""
        found = (getattr(each, quantity) for each in self.measured[variant.name])
        return [value for value in found if value is not None]

    def metrics(self, variant: Variant) -> list[list[dict[str, Any]]]:
        """Return the lines of metrics of each seed's training."""
        return [RunFolder(run).read_metrics() for run in self.folders(variant)]

    def folders(self, variant: Variant) -> list[Path]:
        """Return the run's folder of each seed."""
        seeds = range(len(self.measured[variant.name]))
        return [self.folder / folder_name(variant) / f"seed-{seed}" / self.task for seed in seeds]


def make_variants(vary: Mapping[str, Sequence[Any]]) -> list[Variant]:
    """Return all combinations, the last flag varying fastest. Raises `InputError` where a flag has no value."""
    for name, values in vary.items():
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise InputError(f"vary {name}={values!r} is no list of values: give one, such as [{values!r}]")
        if not values or len(set(values)) < len(values):
            raise InputError(f"vary {name}={','.join(map(str, values))}: give each value once, and at least one")
    return [Variant(dict(zip(vary, values, strict=True))) for values in product(*vary.values())]


def measure_grid(
    task: str, variants: Sequence[Variant], seeds: int, folder: Path, flags: Mapping[str, Any], *, progress: bool
) -> dict[str, list[Measured]]:
    """Measure every variant with seeds from 0, and return what was found by the variant's name.

    Raises `InputError` before anything is trained where a variant cannot be.
    """
    jobs = []
    for variant in variants:
        for seed in range(seeds):
            given = {**flags, **variant.varied, "seed": seed}
            _check_tested(make_config(task, given))
            jobs.append(_Job(task, folder / folder_name(variant) / f"seed-{seed}", given))
    found = _measure_all(jobs, progress=progress)
    return {variant.name: found[index * seeds : (index + 1) * seeds] for index, variant in enumerate(variants)}


def _check_tested(config: RunConfig) -> None:
    """Refuse a task that draws no samples, and has no text to test on either."""
    task, asked = find_task(config.on), cast("Any", config.task)
    if not task.draws and asked.text("test") is None:
        raise InputError(f"{task.name} has no text to test on: give one with --test")


@dataclass(frozen=True)
class _Job:
    """One training to be measured."""

    task: str
    folder: Path
    flags: dict[str, Any]

    @property
    def file(self) -> Path:
        return self.folder / "measured.json"

    @property
    def asked(self) -> dict[str, Any]:
        """What the run's config is to be."""
        return _plain(make_config(self.task, self.flags).resolved())

    @property
    def interrupted(self) -> bool:
        """Whether there is a run already."""
        return RunFolder(self.folder / find_task(self.task).name).exists()

    def read(self) -> Measured | None:
        """Return what was measured before; raises `InputError` where that was something else."""
        if not is_file(self.file):
            return None
        stored = read_json(self.file, _Stored, "delete it to measure anew", most=LARGEST, finite=False)
        if renamed(stored.config) != self.asked:
            raise InputError(
                f"{str(self.folder)!r} holds a measurement with other flags: choose another --savepath"
            )
        return stored.measured


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """What the file of a measurement holds."""

    config: dict[str, Any]
    measured: Measured


def _plain(config: RunConfig) -> dict[str, Any]:
    """Return a config as JSON has it, without what is learned from the text: that follows from the rest."""
    found: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config)))
    del found["tokenizer"]
    return found


def folder_name(variant: Variant) -> str:
    """Name the folder of a variant: what a path cannot hold is written as `-`."""
    return "".join(c if c.isalnum() or c in "=,._-" else "-" for c in variant.name) or "all"


def _measure_all(jobs: list[_Job], *, progress: bool) -> list[Measured]:
    """Measure what is not measured yet, in a process for each core with one thread each."""
    found = {job.folder: job.read() for job in jobs}
    missing = [job for job in jobs if found[job.folder] is None]
    if missing:
        with counting_bar("compare", len(jobs) - len(missing), len(jobs), show=progress) as on_one_more:
            for group, results in in_processes(_measure_group, _groups(missing)):
                for job, measured in zip(group, results, strict=True):
                    found[job.folder] = measured
                    on_one_more()
    return [each for job in jobs if (each := found[job.folder]) is not None]


def _groups(jobs: list[_Job]) -> list[list[_Job]]:
    """Put jobs together that can be trained as one, where that is faster: on a GPU (docs/benchmarks.md).

    They differ in their seed alone. What was interrupted, and models with parts that cannot be stacked, go
    alone.
    """
    together: dict[str, list[_Job]] = {}
    groups = []
    for job in jobs:
        if torch.cuda.is_available() and stackable(make_config(job.task, job.flags)) and not job.interrupted:
            others = {name: value for name, value in job.flags.items() if name != "seed"}
            together.setdefault(repr(others), []).append(job)
        else:
            groups.append([job])
    return [*groups, *together.values()]


def _measure_group(jobs: list[_Job]) -> list[Measured]:
    """Train, test, and keep what was found."""
    if len(jobs) == 1:
        [job] = jobs
        interrupted, began = job.interrupted, time.process_time()
        run = _train(job)
        return [_measure(job, run, None if interrupted else time.process_time() - began)]
    began = time.process_time()
    flags = {name: value for name, value in jobs[0].flags.items() if name != "seed"}
    seeds = [job.flags["seed"] for job in jobs]
    runs = train_seeds(jobs[0].task, [job.folder for job in jobs], seeds=seeds, **flags)
    seconds = (time.process_time() - began) / len(jobs)
    return [_measure(job, run, seconds) for job, run in zip(jobs, runs, strict=True)]


def _train(job: _Job) -> AnyRun:
    """Train a job, or go on with it where it was interrupted."""
    if not job.interrupted:
        return train(job.task, savepath=job.folder, progress=False, **job.flags)
    model = {"model": job.flags["model"]} if "model" in job.flags else {}
    if _plain(load(job.folder / find_task(job.task).name).config) != job.asked:
        raise InputError(f"{str(job.folder)!r} holds a run with other flags: choose another --savepath")
    return train(job.task, savepath=job.folder, resume=True, progress=False, **model)


def _measure(job: _Job, run: AnyRun, seconds: float | None) -> Measured:
    """Test a run, and keep what was found."""
    lines, figures = run.metrics, run.figures(seed=job.flags["seed"])
    recent = [
        (lines[end - 1]["step"], sum(line["exact_match"] for line in lines[end - 10 : end]) / 10)
        for end in range(10, len(lines) + 1)
    ]
    measured = Measured(
        **vars(figures),
        steps_to_99=next((step for step, share in recent if share >= REACHED), None),
        parameters=run.parameters,
        seconds=None if seconds is None else round(seconds, 3),
        loss=sum(line["loss"] for line in lines[-10:]) / len(lines[-10:]),
    )
    write_json(job.file, {"config": _plain(run.config), "measured": dataclasses.asdict(measured)})
    return measured
