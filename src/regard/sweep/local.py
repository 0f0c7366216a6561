"""Run training jobs on this machine: in parallel on its cores, or on a GPU with all seeds of a query model in
one batch."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regard.sweep.backends import JobT
from regard.sweep.job import Job, measure_together
from regard.sweep.processes import run_in_processes
from regard.training import stackable


@dataclass(frozen=True)
class Local:
    """This machine, with one single-threaded process for each core."""

    def run(self, jobs: Sequence[JobT], tell: Callable[[str], None]) -> Iterator[tuple[JobT, Any]]:
        """Yield each job with its measurement (see `Backend`)."""
        for group, measurements in run_in_processes(_measure, _group_jobs(jobs)):
            yield from zip(group, measurements, strict=True)


def _measure(jobs: Sequence[Any]) -> list[Any]:
    return [jobs[0].measure()] if len(jobs) == 1 else measure_together(jobs)


def _group_jobs(jobs: Sequence[JobT]) -> list[list[JobT]]:
    """Group jobs that can be trained as one stacked model, if a GPU is available. On a CPU, stacking is not
    faster.

    The jobs of a group differ only in their seed. Interrupted jobs and models that cannot be stacked form
    groups of one (measured in docs/dev/benchmarks.md).
    """
    by_config: dict[str, list[JobT]] = {}
    groups: list[list[JobT]] = []
    for job in jobs:
        if isinstance(job, Job) and torch.cuda.is_available() and stackable(job.config) and not job.run.exists():
            flags: dict[str, Any] = {**job.config.flags(), "seed": None}
            by_config.setdefault(repr(flags), []).append(job)
        else:
            groups.append([job])
    return [*groups, *by_config.values()]
