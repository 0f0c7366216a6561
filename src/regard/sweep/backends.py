"""Where the trainings of a comparison run.

Each is a file of its own: `here`, this machine; `ray`, a Ray cluster; `slurm`, a Slurm cluster. Whatever it is,
runs and measurements end up in the folders of their jobs, and the table is the same.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from regard.sweep.job import Job, Measured


class Backend(Protocol):
    """What trainings run on."""

    def run(self, jobs: Sequence[Job], tell: Callable[[str], None]) -> Iterator[tuple[Job, Measured]]:
        """Yield each job with what was measured, as they are done; its run and its measurement are in its folder
        then.

        `tell`: what to call with a line for the user. Whatever ends the iteration early, as Ctrl-C does, stops
        all trainings, which save first. Raises `InputError` before anything is begun where there is nothing to
        run on, what a training raises, and, once all others are done, `MachineError` where some were lost.
        """
