"""A grid of variants times seeds, each trained and tested once, side by side on one machine or on many.

    DIR/TASK/VARIANT/seed-N/TASK/          the run
    DIR/TASK/VARIANT/seed-N/measured.json  what its test found

What is measured already is not trained again, and what was interrupted goes on where it stopped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, cast

from regard.errors import InputError
from regard.io import refuse_links
from regard.progress import counting_bar, tell
from regard.sweep.backends import Backend
from regard.sweep.job import Job, Measured, make_job
from regard.tasks import find_task
from regard.training import RunConfig, RunFolder, make_config


@dataclass(frozen=True)
class Variant:
    """One way to train: the flags that vary, with their values."""

    varied: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The flags as text, such as `pooling=last,max_len=20`."""
        return ",".join(f"{name}={value}" for name, value in self.varied.items())


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
        """Return the lines of metrics of each seed's training; raises `InputError` where they are lost."""
        return [RunFolder(run).known_metrics() for run in self.folders(variant)]

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
    task: str,
    variants: Sequence[Variant],
    seeds: int,
    folder: Path,
    flags: Mapping[str, Any],
    *,
    on: Backend,
    progress: bool,
) -> dict[str, list[Measured]]:
    """Measure every variant with seeds from 0, and return what was found by the variant's name.

    Raises `InputError` before anything is trained where a variant cannot be.
    """
    jobs = []
    for variant in variants:
        for seed in range(seeds):
            config = make_config(task, {**flags, **variant.varied, "seed": seed})
            _check_tested(config)
            jobs.append(make_job(config, folder / folder_name(variant) / f"seed-{seed}"))
    for job in jobs:
        refuse_links(job.folder, below=folder.parent)
    found = _measure_all(jobs, on, progress=progress)
    return {variant.name: found[index * seeds : (index + 1) * seeds] for index, variant in enumerate(variants)}


def _check_tested(config: RunConfig) -> None:
    """Refuse a task that draws no samples, and has no text to test on either."""
    task, asked = find_task(config.on), cast("Any", config.task)
    if not task.draws and asked.text("test") is None:
        raise InputError(f"{task.name} has no text to test on: give one with --test")


def folder_name(variant: Variant) -> str:
    """Name the folder of a variant: what a path cannot hold is written as `-`."""
    return "".join(c if c.isalnum() or c in "=,._-" else "-" for c in variant.name) or "all"


def _measure_all(jobs: list[Job], on: Backend, *, progress: bool) -> list[Measured]:
    """Measure what is not measured yet."""
    found = {job.folder: job.read() for job in jobs}
    missing = [job for job in jobs if found[job.folder] is None]
    if missing:
        with counting_bar("compare", len(jobs) - len(missing), len(jobs), show=progress) as on_one_more:
            for job, measured in on.run(missing, partial(tell, show=progress)):
                found[job.folder] = measured
                on_one_more()
    return [each for job in jobs if (each := found[job.folder]) is not None]
