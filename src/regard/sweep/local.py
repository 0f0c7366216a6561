"""Run training jobs on this machine, in parallel on its cores."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from regard.sweep.backends import JobT
from regard.sweep.processes import run_in_processes


@dataclass(frozen=True)
class Local:
    """This machine, with one single-threaded process for each core."""

    def run(self, jobs: Sequence[JobT], tell: Callable[[str], None]) -> Iterator[tuple[JobT, Any]]:
        yield from run_in_processes(_measure, jobs)


def _measure(job: Any) -> Any:
    return job.measure()
