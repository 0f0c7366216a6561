"""The interface of the backends that run the training jobs of a sweep.

The backends are `local` (this machine), `ray` (a Ray cluster) and `slurm` (a Slurm cluster). Each backend
writes runs and measurements to the folders of the jobs, so the result does not depend on the backend.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from regard.sweep.job import Job, Measured


class Backend(Protocol):
    """Interface of a backend, which runs training jobs."""

    def run(self, jobs: Sequence[Job], tell: Callable[[str], None]) -> Iterator[tuple[Job, Measured]]:
        """Yield each job with its measurement when the job is done. The job's folder then contains the run and
        the measurement.

        `tell`: function that is called with messages for the user. If the iteration ends early, for example
        after Ctrl-C, all training jobs save their state and stop.

        Raises `InputError` before the start if the backend is not available. Raises the error of a training
        job that fails, and `MachineError`, after all other jobs are done, if jobs were lost.
        """
