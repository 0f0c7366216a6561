"""The interface of the backends that run the training jobs of a sweep.

The backends are `local` (this machine), `ray` (a Ray cluster) and `slurm` (a Slurm cluster). Each backend
writes runs and measurements to the folders of the jobs, so the result does not depend on the backend.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from regard.errors import plural
from regard.progress import print_status


class SweepJob(Protocol):
    """Interface of a training job. A job can be pickled."""

    @property
    def folder(self) -> Path:
        """Folder of the job, two levels below the folder of the sweep."""

    @property
    def label(self) -> str:
        """Name of the job for messages."""

    @property
    def stored(self) -> dict[str, Any]:
        """Config of the training, as plain data; names the custom code that the job needs."""

    @property
    def saved_state(self) -> str:
        """What is stored of an unfinished job, such as "step 120"."""

    def absolute(self) -> Self:
        """Return the same job with an absolute folder."""

    def measure(self, *, trust_code: bool = False) -> Any:
        """Train or resume the job, store its measurement, and return it. The result is not None."""


JobT = TypeVar("JobT", bound=SweepJob)


def say_reused(count: int, of: int, folder: Path, *, show: bool) -> None:
    if count:
        print_status(f"{count} of {plural(of, 'measurement')} are stored in {folder} and used again", show=show)


class Backend(Protocol):
    """Interface of a backend, which runs training jobs."""

    def run(self, jobs: Sequence[JobT], tell: Callable[[str], None]) -> Iterator[tuple[JobT, Any]]:
        """Yield each job with its measurement when the job is done. The measurement is then stored.

        `tell`: function that is called with messages for the user. If the iteration ends early, for example
        after Ctrl-C, all training jobs save their state and stop.

        Raises `InputError` before the start if the backend is not available. Raises the error of a training
        job that fails, and `MachineError`, after all other jobs are done, if jobs were lost.
        """
