"""A grid of variants and seeds. Each cell is trained and tested once, on one or several machines.

    DIR/TASK/VARIANT/seed-N/TASK/          the run
    DIR/TASK/VARIANT/seed-N/measured.json  its measurement

Cells with a measurement are not trained again. Interrupted training runs are resumed.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, cast

from regard.arguments import public
from regard.errors import InputError
from regard.io.writing import refuse_links
from regard.progress import counting_bar, print_status
from regard.sweep.backends import Backend, say_reused
from regard.sweep.job import Job, Measured, make_job
from regard.tasks.all_tasks import find_task
from regard.training.config import RunConfig, make_config
from regard.training.run_folder import RunFolder


@public
@dataclass(frozen=True)
class Variant:
    """One combination of the varied flags and their values."""

    varied: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The flags as text, for example `pooling=last,max_len=20`."""
        return ",".join(f"{name}={value}" for name, value in self.varied.items())


@dataclass(frozen=True, repr=False)
class Measurements:
    """All measurements of a grid, by variant and seed."""

    task: str
    folder: Path
    variants: list[Variant]
    measured: dict[str, list[Measured]]
    """For each variant name, one measurement per seed."""

    def values(self, variant: Variant, quantity: str) -> list[float]:
        """Return one quantity for each seed, without missing values."""
        values = (getattr(measured, quantity) for measured in self.measured[variant.name])
        return [value for value in values if value is not None]

    def metrics(self, variant: Variant) -> list[list[dict[str, Any]]]:
        """Return the training metrics of each seed. Raises `InputError` if metrics are missing."""
        return [RunFolder(run).known_metrics() for run in self.folders(variant)]

    def folders(self, variant: Variant) -> list[Path]:
        seeds = range(len(self.measured[variant.name]))
        return [self.folder / folder_name(variant) / f"seed-{seed}" / self.task for seed in seeds]


def make_variants(vary: Mapping[str, Sequence[Any]]) -> list[Variant]:
    """Return all combinations of values. The last flag varies fastest.

    >>> [variant.name for variant in make_variants({"a": [1, 2], "b": ["x"]})]
    ['a=1,b=x', 'a=2,b=x']

    Raises `InputError` for a flag without values or with repeated values.
    """
    for name, values in vary.items():
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise InputError(f"vary {name}={values!r} is not a list of values: give a list such as [{values!r}]")
        if not values or len(set(values)) < len(values):
            raise InputError(
                f"vary {name}={','.join(map(str, values))}: give at least one value, and each value once"
            )
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
    """Measure every variant with seeds from 0, and return the measurements by variant name.

    Raises `InputError` before any training starts if a variant is invalid.
    """
    jobs = []
    for variant in variants:
        for seed in range(seeds):
            config = make_config(task, {**flags, **variant.varied, "seed": seed})
            _check_tested(config)
            jobs.append(make_job(config, folder / folder_name(variant) / f"seed-{seed}"))
    for job in jobs:
        refuse_links(job.folder, below=folder.parent)
    measured = _measure_all(jobs, on, progress=progress)
    return {variant.name: measured[index * seeds : (index + 1) * seeds] for index, variant in enumerate(variants)}


def _check_tested(config: RunConfig) -> None:
    """Raise `InputError` for a task that neither generates samples nor has a test text."""
    task, task_config = find_task(config.on), cast("Any", config.task)
    if not task.draws and task_config.text("test") is None:
        raise InputError(f"{task.name} has no test text: give a text with --test")


def folder_name(variant: Variant) -> str:
    return "".join(c if c.isalnum() or c in "=,._-" else "-" for c in variant.name) or "all"


def _measure_all(jobs: list[Job], on: Backend, *, progress: bool) -> list[Measured]:
    """Measure the jobs that have no measurement, and return the measurements of all jobs."""
    measurements = {job.folder: job.read() for job in jobs}
    missing = [job for job in jobs if measurements[job.folder] is None]
    say_reused(len(jobs) - len(missing), len(jobs), jobs[0].folder.parent.parent, show=progress)
    folders = {folder for job in missing for folder in (job.folder, *list(job.folder.parents)[:3])}
    new = [folder for folder in folders if not folder.exists()]
    if missing:
        with (
            _empty_folders_removed(new),
            counting_bar("compare", len(jobs) - len(missing), len(jobs), show=progress) as advance,
        ):
            for job, measured in on.run(missing, partial(print_status, show=progress)):
                measurements[job.folder] = measured
                advance()
    return [measurement for job in jobs if (measurement := measurements[job.folder]) is not None]


@contextmanager
def _empty_folders_removed(folders: Sequence[Path]) -> Iterator[None]:
    """Remove those of some folders that are empty after the block. Processes that stop at the same time leave
    the folder that they share."""
    try:
        yield
    finally:
        for folder in sorted(folders, key=lambda path: len(path.parts), reverse=True):
            with suppress(OSError):  # not empty, or absent
                folder.rmdir()
