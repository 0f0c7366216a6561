"""Trainings on this machine: side by side over the cores; on a GPU, all seeds of a query model together."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regard.sweep.job import Job, Measured, measure_together
from regard.sweep.processes import run_in_processes
from regard.training import stackable


@dataclass(frozen=True)
class Local:
    """This machine: a process for each core, with one thread each."""

    def run(self, jobs: Sequence[Job], tell: Callable[[str], None]) -> Iterator[tuple[Job, Measured]]:
        """Yield each job with what was measured (see `Backend`)."""
        for group, found in run_in_processes(measure_together, _groups(jobs)):
            yield from zip(group, found, strict=True)


def _groups(jobs: Sequence[Job]) -> list[list[Job]]:
    """Put jobs together that can be trained as one, where that is faster: on a GPU (docs/benchmarks.md).

    They differ in their seed alone. What was interrupted, and models with parts that cannot be stacked, go
    alone.
    """
    together: dict[str, list[Job]] = {}
    groups = []
    for job in jobs:
        if torch.cuda.is_available() and stackable(job.config) and not job.run.exists():
            others: dict[str, Any] = {**job.config.flags(), "seed": None}
            together.setdefault(repr(others), []).append(job)
        else:
            groups.append([job])
    return [*groups, *together.values()]
