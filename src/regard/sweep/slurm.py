"""Trainings on a Slurm cluster, by submitit: a job array with a task for each.

The machines share the disk that a comparison is kept on, so each training writes into its folder itself. One
whose time is over, or that makes way for others, saves and is put into the queue again. Whoever leaves without
stopping the trainings, as when a connection breaks, finds them again by the same command.
"""

import getpass
import logging
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import InputError, MachineError, check_range
from regard.io import make_folder, remove_quietly, write_file
from regard.io.reading import is_file, read_text
from regard.libraries import import_library
from regard.sweep.job import Job, Measured, measure
from regard.sweep.processes import EndedError, Worker

LARGEST_ARRAY = 1000
"""Tasks of an array; Slurm's own limit is 1001 by default."""
RESTARTS = 1000
"""Times that a training may run out of time."""
EVERY = 2.0
"""Seconds between two looks at the queue and at results."""
GRACE = 120.0
"""Seconds in which Slurm ends a job whose training it has told to stop."""
NOTE = "slurm-job"
"""File in a job's folder with the number under which Slurm knows it, while it does."""


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """A Slurm cluster, asked from a machine on which one may submit to it."""

    partition: str | None = None
    """Where trainings queue; None: the cluster's default."""
    time: int = 60
    """Minutes after which a training that is not done saves, and is put into the queue again."""
    memory: int = 4
    """Memory of each training, in GB."""
    cpus: int = 1
    """Cores, and threads, of each training."""
    executor: str = "slurm"
    """What submitit submits to: slurm, or, to try it without a cluster, local."""

    def __post_init__(self) -> None:
        """Raise `InputError` where a value is out of range."""
        check_range("time", self.time, 2, 60 * 24 * 365)
        check_range("memory", self.memory, 1, 10_000)
        check_range("cpus", self.cpus, 1, 1024)

    def run(self, jobs: Sequence[Job], tell: Callable[[str], None]) -> Iterator[tuple[Job, Measured]]:
        """Yield each job with what was measured (see `Backend`)."""
        submitit = _submitit(self.executor)
        folder = jobs[0].folder.parent.parent / "slurm"
        waiting = self._found_again(submitit, folder, jobs)
        known = [job.folder for job, _ in waiting]
        lost: list[Path] = []
        try:
            left = [job for job in jobs if job.folder not in known]
            for start in range(0, len(left), LARGEST_ARRAY):
                waiting += self._submit(submitit, folder, left[start : start + LARGEST_ARRAY])
            tell(f"Slurm: in the queue or running: {len(waiting)}; logs are in {folder}")
            while waiting:
                time.sleep(EVERY)
                alive = self._alive([task for _, task in waiting])
                there = {each.name for each in folder.iterdir()}  # which asks a shared disk anew
                for job, task in list(waiting):
                    done = task.paths.result_pickle.name in there
                    if not done and task.job_id in alive:
                        continue
                    waiting.remove((job, task))
                    remove_quietly(job.folder / NOTE)
                    error, measured = task.result() if done else (None, None)
                    if error is not None:
                        raise error
                    if measured is None:
                        lost.append(task.paths.stderr)
                    else:
                        yield job, measured
        finally:
            self._cancel(waiting)
        if lost:
            raise MachineError(
                f"{len(lost)} of {len(jobs)} trainings were ended from outside, as where memory is short: see "
                f"{lost[0]}; the others are done: the same command goes on with what is missing"
            )

    def _found_again(self, submitit: Any, folder: Path, jobs: Sequence[Job]) -> list[tuple[Job, Any]]:
        """Return the jobs that wait or run since an earlier command, with their tasks."""
        noted = [job for job in jobs if is_file(job.folder / NOTE)]
        numbers = [read_text(job.folder / NOTE, "delete it to submit anew").strip() for job in noted]
        tasks = [submitit.SlurmJob(folder, number) for number in numbers]
        alive = self._alive(tasks) if tasks else set()
        return [(job, task) for job, task in zip(noted, tasks, strict=True) if task.job_id in alive]

    def _submit(self, submitit: Any, folder: Path, jobs: Sequence[Job]) -> list[tuple[Job, Any]]:
        """Put jobs into the queue as one array; returns each with its task, whose number is noted."""
        executor = submitit.AutoExecutor(
            folder,
            cluster=self.executor,
            **{
                f"{self.executor}_max_num_timeout": RESTARTS,
                f"{self.executor}_python": f"{shlex.quote(sys.executable)} -P",
            },
        )
        executor.update_parameters(
            name=f"regard-{folder.parent.name}",
            timeout_min=self.time,
            mem_gb=self.memory,
            cpus_per_task=self.cpus,
            slurm_partition=self.partition,
            slurm_array_parallelism=LARGEST_ARRAY,
            slurm_additional_parameters={"requeue": True},
        )
        try:
            tasks = executor.map_array(_Training(self.cpus), jobs)
        except submitit.core.utils.FailedJobError as error:
            raise InputError(f"Slurm takes no job: {' '.join(str(error).split())}") from None
        for job, task in zip(jobs, tasks, strict=True):
            make_folder(job.folder)
            write_file(job.folder / NOTE, task.job_id.encode())
        return list(zip(jobs, tasks, strict=True))

    def _alive(self, tasks: Sequence[Any]) -> set[str]:
        """Return the numbers of the tasks that wait or run."""
        if self.executor != "slurm":
            return {task.job_id for task in tasks if not task.done()}
        asked = ["squeue", "--noheader", "--array", "--format=%i", "--user", getpass.getuser()]
        said = subprocess.run(asked, capture_output=True, text=True, check=False)
        # Where Slurm does not answer, as while it restarts, they are as they were.
        return {task.job_id for task in tasks} if said.returncode else set(said.stdout.split())

    def _cancel(self, waiting: Sequence[tuple[Job, Any]]) -> None:
        """Stop the tasks, which save."""
        if waiting and self.executor == "slurm":
            subprocess.run(["scancel", *(task.job_id for _, task in waiting)], capture_output=True, check=False)
        for job, task in waiting:
            if self.executor != "slurm":
                task.cancel()
            remove_quietly(job.folder / NOTE)


def _submitit(executor: str) -> Any:
    """Return submitit; raises `InputError` where it is not installed, or nothing can be submitted from here."""
    submitit = import_library("submitit", "training on Slurm", "cluster")
    if executor == "slurm" and (shutil.which("srun") is None or shutil.which("sbatch") is None):
        raise InputError("this machine has no sbatch and srun: compare on one from which jobs go to Slurm")
    logging.getLogger("submitit").setLevel(logging.ERROR)
    return submitit


class _Training:
    """What submitit calls on the machine: it trains in a process of its own, so that it can be stopped."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._worker: Worker[Job, Measured] | None = None

    def __call__(self, job: Job) -> tuple[Exception | None, Measured | None]:
        """Measure a job; returns what it has raised, or what was measured."""
        self._worker = Worker(_measure, threads=self._threads)
        self._worker.begin(job)
        try:
            return None, self._worker.result()
        except EndedError:
            # Slurm tells all processes of a job to stop before it ends them: what is ended is not done.
            if self._worker.join() == 128 + signal.SIGTERM:
                time.sleep(GRACE)
            raise
        except Exception as error:  # whatever it is, it is raised where the training was asked for
            return error, None
        finally:
            self._stop()

    def checkpoint(self, job: Job) -> Any:
        """Save, and return what goes on when the job's turn comes again: submitit asks before time is over."""
        from submitit.helpers import DelayedSubmission

        self._stop()
        return DelayedSubmission(_Training(self._threads), job)

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()
            self._worker.join()

    def __getstate__(self) -> dict[str, Any]:
        return {"_threads": self._threads, "_worker": None}


def _measure(job: Job) -> Measured:
    """Measure a job in a process that leaves the signal that time is short to the one which started it."""
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    return measure(job)
