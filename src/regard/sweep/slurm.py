"""Run training jobs on a Slurm cluster through submitit: a job array with one task for each training job.

The machines share a disk, so each training job writes to its own folder. A training job that reaches its time
limit or is preempted saves its state and is queued again. If the submitting process ends without stopping the
jobs, for example after a lost connection, the same command finds the jobs again.
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
from typing import Annotated, Any

from regard.arguments import Limits, check_fields
from regard.errors import InputError, MachineError
from regard.io import is_file, make_folder, read_text, remove_quietly, write_file
from regard.libraries import import_library
from regard.sweep.job import JobT, SweepJob
from regard.sweep.processes import EndedError, Worker

LARGEST_ARRAY = 1000
"""Maximum number of tasks in a job array. Slurm's default limit is 1001."""
RESTARTS = 1000
"""Number of times that a training job may reach its time limit."""
POLL_INTERVAL = 2.0
"""Seconds between two queries of the queue and the results."""
GRACE = 120.0
"""Seconds from the stop signal of Slurm to the end of a job."""
NOTE = "slurm-job"
"""Name of the file with a job's Slurm ID, which exists in the job's folder while the job is queued or running."""


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """A Slurm cluster, used from a machine that can submit jobs to it."""

    partition: str | None = None
    """The partition. Default: the cluster's default partition."""
    time: Annotated[int, Limits(2, 60 * 24 * 365)] = 60
    """Time limit in minutes, after which an unfinished training job saves its state and is queued again."""
    memory: Annotated[int, Limits(1, 10_000)] = 4
    """Memory of each training job in GB."""
    cpus: Annotated[int, Limits(1, 1024)] = 1
    """Number of cores and threads of each training job."""
    executor: str = "slurm"
    """Executor of submitit: slurm, or local for a test without a cluster."""

    def __post_init__(self) -> None:
        """Raise `InputError` if a value is out of range."""
        check_fields(self)

    def run(self, jobs: Sequence[JobT], tell: Callable[[str], None]) -> Iterator[tuple[JobT, Any]]:
        """Yield each job with its measurement (see `Backend`)."""
        submitit = _submitit(self.executor)
        folder = jobs[0].folder.parent.parent / "slurm"
        waiting = self._find_submitted(submitit, folder, jobs)
        submitted = [job.folder for job, _ in waiting]
        lost: list[Path] = []
        try:
            left = [job for job in jobs if job.folder not in submitted]
            for start in range(0, len(left), LARGEST_ARRAY):
                waiting += self._submit(submitit, folder, left[start : start + LARGEST_ARRAY])
            tell(f"Slurm: {len(waiting)} training jobs queued or running; logs are in {folder}")
            while waiting:
                time.sleep(POLL_INTERVAL)
                alive = self._alive([task for _, task in waiting])
                names = {path.name for path in folder.iterdir()}  # listing refreshes a shared disk
                for job, task in list(waiting):
                    done = task.paths.result_pickle.name in names
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
                f"{len(lost)} of {len(jobs)} training jobs were terminated, for example for lack of memory: "
                f"see {lost[0]}; the other runs are done: repeat the command to train the missing runs"
            )

    def _find_submitted(self, submitit: Any, folder: Path, jobs: Sequence[JobT]) -> list[tuple[JobT, Any]]:
        """Return the jobs of an earlier command that are queued or running, with their tasks."""
        noted = [job for job in jobs if is_file(job.folder / NOTE)]
        numbers = [read_text(job.folder / NOTE, "delete it to submit the job again").strip() for job in noted]
        tasks = [submitit.SlurmJob(folder, number) for number in numbers]
        alive = self._alive(tasks) if tasks else set()
        return [(job, task) for job, task in zip(noted, tasks, strict=True) if task.job_id in alive]

    def _submit(self, submitit: Any, folder: Path, jobs: Sequence[JobT]) -> list[tuple[JobT, Any]]:
        """Submit jobs as one array and store their Slurm IDs. Return each job with its task."""
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
            raise InputError(f"Slurm refused the jobs: {' '.join(str(error).split())}") from None
        for job, task in zip(jobs, tasks, strict=True):
            make_folder(job.folder)
            write_file(job.folder / NOTE, task.job_id.encode())
        return list(zip(jobs, tasks, strict=True))

    def _alive(self, tasks: Sequence[Any]) -> set[str]:
        """Return the Slurm IDs of the tasks that are queued or running."""
        if self.executor != "slurm":
            return {task.job_id for task in tasks if not task.done()}
        command = ["squeue", "--noheader", "--array", "--format=%i", "--user", getpass.getuser()]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        # If Slurm does not respond, for example during a restart, all tasks count as running.
        return {task.job_id for task in tasks} if result.returncode else set(result.stdout.split())

    def _cancel(self, waiting: Sequence[tuple[SweepJob, Any]]) -> None:
        """Stop the tasks. Training jobs save their state first."""
        if waiting and self.executor == "slurm":
            subprocess.run(["scancel", *(task.job_id for _, task in waiting)], capture_output=True, check=False)
        for job, task in waiting:
            if self.executor != "slurm":
                task.cancel()
            remove_quietly(job.folder / NOTE)


def _submitit(executor: str) -> Any:
    """Return the submitit module. Raises `InputError` if submitit or the commands of Slurm are missing."""
    submitit = import_library("submitit", "training on Slurm", "cluster")
    if executor == "slurm" and (shutil.which("srun") is None or shutil.which("sbatch") is None):
        raise InputError("this machine has no sbatch and srun: use a machine that can submit jobs to Slurm")
    logging.getLogger("submitit").setLevel(logging.ERROR)
    return submitit


class _Training:
    """The function that submitit calls on the machine. Training runs in a child process, so that it can be
    stopped."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._worker: Worker[SweepJob, Any] | None = None

    def __call__(self, job: SweepJob) -> tuple[Exception | None, Any]:
        """Measure a job, and return its error or its measurement."""
        self._worker = Worker(_measure, threads=self._threads)
        self._worker.begin(job)
        try:
            return None, self._worker.result()
        except EndedError:
            # Slurm signals all processes of a job before it kills them. Wait for the signal, so that the task
            # does not count as finished.
            if self._worker.join() == 128 + signal.SIGTERM:
                time.sleep(GRACE)
            raise
        except Exception as error:  # the submitting process raises it
            return error, None
        finally:
            self._stop()

    def checkpoint(self, job: SweepJob) -> Any:
        """Save the state, and return the continuation for the requeued job. submitit calls this method before
        the time limit."""
        from submitit.helpers import DelayedSubmission

        self._stop()
        return DelayedSubmission(_Training(self._threads), job)

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()
            self._worker.join()

    def __getstate__(self) -> dict[str, Any]:
        return {"_threads": self._threads, "_worker": None}


def _measure(job: SweepJob) -> Any:
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    return job.measure()
