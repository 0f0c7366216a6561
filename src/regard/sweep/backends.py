"""Backends of a sweep, which run training jobs in parallel: on this machine, a Ray cluster or a Slurm cluster.

Worker processes shut down cleanly. A stopped worker does not start further jobs. Workers end when their parent
process ends. If a worker is killed, only its current job is lost.
"""

import getpass
import logging
import multiprocessing
import os
import pickle
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from operator import methodcaller
from pathlib import Path
from typing import Annotated, Any, Generic, Protocol, Self, TypeVar, cast

import torch

from regard.arguments import Limits, check_fields
from regard.errors import InputError, MachineError, RegardError, plural
from regard.io import BusyError, is_file, make_folder, read_text, remove_quietly, temporary_path, write_file
from regard.libraries import import_library, library_errors
from regard.machine import available_cores
from regard.progress import print_status
from regard.training.trainer import SIGNALS
from regard.training.trust_code import code_digests, trust
from regard.version import __version__

WorkT = TypeVar("WorkT")
ResultT = TypeVar("ResultT")


class EndedError(Exception):
    """Raised if a worker process was terminated from outside."""


class Worker(Generic[WorkT, ResultT]):
    """A process that runs one job after another.

    `work`: the function that runs a job. The function, the jobs and the results must be picklable. `threads`:
    number of PyTorch threads of the process.
    """

    def __init__(self, work: Callable[[WorkT], ResultT], *, threads: int = 1) -> None:
        # Forking a process that has used threads may hang, so workers are spawned.
        context = multiprocessing.get_context("spawn")
        self.pipe, child_pipe = context.Pipe()
        self._process = context.Process(target=_run_jobs, args=(work, child_pipe, threads))
        self._process.start()
        child_pipe.close()  # otherwise the end of the child would not be noticed

    def begin(self, job: WorkT) -> None:
        self.job = job
        self.pipe.send(job)

    def result(self) -> ResultT:
        """Wait for the result of the job.

        Raises any error of the job, and `EndedError` if the process was terminated from outside.
        """
        try:
            failed, result = self.pipe.recv()
        except (EOFError, ConnectionError) as error:
            raise EndedError from error
        if failed:
            raise result
        return cast("ResultT", result)

    def stop(self) -> None:
        """Request that the process stops, if it is alive. Training saves its state first."""
        self._process.terminate()

    def join(self) -> int | None:
        self.pipe.close()
        self._process.join()
        return self._process.exitcode


def run_in_processes(work: Callable[[WorkT], ResultT], jobs: Sequence[WorkT]) -> Iterator[tuple[WorkT, ResultT]]:
    """Run jobs in one single-threaded process for each core. Yield each job with its result when the job is done.

    Raises any error of `work`, and `MachineError` after all other jobs if a process was terminated from outside.
    """
    cores, left, lost = available_cores(), deque(jobs), 0
    busy: dict[Connection, Worker[WorkT, ResultT]] = {}

    def start_worker() -> None:
        with _uninterrupted():
            worker = Worker(work)
            busy[worker.pipe] = worker
        worker.begin(left.popleft())

    try:
        while left and len(busy) < cores:
            start_worker()
        while busy:
            for pipe in wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]
                try:
                    result = worker.result()
                except EndedError:
                    lost += 1
                    busy.pop(worker.pipe).join()
                    if left:
                        start_worker()
                    continue
                job = worker.job
                if left:
                    worker.begin(left.popleft())
                else:
                    busy.pop(worker.pipe).join()
                yield job, result
    finally:
        for worker in busy.values():
            worker.stop()  # Ctrl-C reaches all processes, other signals only this one; stopping twice is harmless
        for worker in busy.values():
            worker.join()
    _check_lost(lost, len(jobs), "processes were terminated during training")


def _check_lost(count: int, jobs: int, problem: str, hint: str = "") -> None:
    if count:
        raise MachineError(
            f"{count} of {jobs} {problem}, for example for lack of memory{hint}; the other runs are done: repeat "
            f"the command to train the missing runs"
        )


@contextmanager
def handle_signals(handler: Callable[[int, object], object], numbers: Sequence[int]) -> Iterator[None]:
    """Return a context manager that handles signals with `handler`, except for ignored signals (`nohup`) and in
    threads, which cannot handle signals.

    >>> with handle_signals(exit_on_signal, [signal.SIGTERM]):
    ...     signal.getsignal(signal.SIGTERM) is exit_on_signal
    True
    """
    main = threading.current_thread() is threading.main_thread()
    handled = [number for number in numbers if main and signal.getsignal(number) is not signal.SIG_IGN]
    before = [(number, signal.signal(number, handler)) for number in handled]
    try:
        yield
    finally:
        for number, former in before:
            signal.signal(number, former or signal.SIG_DFL)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay signals, so that every started worker is registered before a signal is handled."""
    received: list[int] = []
    try:
        with handle_signals(lambda number, _: received.append(number), SIGNALS):
            yield
    finally:
        for number in received:
            signal.raise_signal(number)


def _run_jobs(work: Callable[[WorkT], ResultT], pipe: Connection, threads: int) -> None:
    """Run one job after another in a worker process, until the pipe closes or a signal stops the process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in SIGNALS:
        if number != signal.SIGINT:
            signal.signal(number, exit_on_signal)  # a clean exit between two jobs too
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    try:
        while True:
            job = pipe.recv()
            try:
                outcome: tuple[bool, object] = (False, work(job))
            except Exception as error:  # the parent raises it
                outcome = (True, error)
            try:
                pipe.send(outcome)
            except (TypeError, AttributeError, pickle.PicklingError):  # not every error can be pickled
                pipe.send((True, RuntimeError(str(outcome[1]))))
    except (EOFError, ConnectionError):
        pass
    except KeyboardInterrupt as stop:  # Ctrl-C reaches all processes; the parent may have closed the pipe
        with suppress(OSError):
            pipe.send((True, stop))


def exit_on_signal(number: int, frame: object) -> None:
    """Exit because of a signal, with the usual cleanup of `sys.exit`; a second signal does not interrupt that."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def _stop_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has a parent process"
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


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


@dataclass(frozen=True)
class Local:
    """This machine, with one single-threaded process for each core."""

    def run(self, jobs: Sequence[JobT], tell: Callable[[str], None]) -> Iterator[tuple[JobT, Any]]:
        yield from run_in_processes(methodcaller("measure"), jobs)


# Run training jobs on a Ray cluster, in parallel on all its cores.
#
# Each training job is a Ray task that writes to its own folder, so all machines must share the disk of that
# folder. If a process or a machine is lost, its job resumes on another machine from the last checkpoint.


RAY_GRACE = 60.0  # Seconds in which stopped training jobs must save their state
ATTEMPTS = 3  # Number of times that a training job may be lost without a new checkpoint
WAIT = 0.5  # Seconds to wait for results in each iteration
LEASE = 120.0
"""Seconds to wait for the lock of a lost training job. NFS releases the locks of a lost machine after 90
seconds (the default lease of Linux)."""
SHARE = "start the command on storage that all machines share, with --savepath on the same storage"
START = "start a cluster with `ray start --head`, or give its address with --address"


@dataclass(frozen=True, kw_only=True)
class Ray:
    """A running Ray cluster whose machines share the disk of the comparison."""

    address: str | None = None
    """host:port of the head node. Default: $RAY_ADDRESS, else the cluster of this machine."""
    cpus: Annotated[int, Limits(1, 1024)] = 1
    """Number of cores and threads of each training job."""

    def __post_init__(self) -> None:
        """Raise `InputError` if a value is out of range."""
        check_fields(self)

    def run(self, jobs: Sequence[JobT], tell: Callable[[str], None]) -> Iterator[tuple[JobT, Any]]:
        """Yield each job with its measurement (see `Backend`)."""
        running: dict[Any, JobT] = {}
        losses: Counter[tuple[Path, str]] = Counter()
        """Number of times that a job was lost, by the job's folder and saved state."""
        marker = temporary_path(jobs[0].folder.parent.parent / "ray").absolute()
        with _connected(self.address) as ray:
            try:
                make_folder(marker.parent)
                write_file(marker, b"")
                _describe_cluster(ray, self.cpus, tell)
                # Retries by Ray are disabled: Ray does not report retries, and retries tasks that were killed
                # for lack of memory without a limit.
                task = ray.remote(measure_on_machine).options(num_cpus=self.cpus, max_retries=0)
                driver = Driver(__version__, socket.gethostname(), marker, Path.cwd(), sys.path, self.cpus)

                def submit(job: JobT, *, again: bool) -> None:
                    trust(job.stored)  # naming code counts as trust, as for a local training
                    running[task.remote(driver, job.absolute(), code_digests(job.stored), again)] = job

                for job in jobs:
                    submit(job, again=False)
                while running:
                    for reference in ray.wait(list(running), timeout=WAIT)[0]:
                        job = running.pop(reference)
                        if (measured := _result(ray, reference)) is not None:
                            yield job, measured
                            continue
                        state = job.saved_state
                        losses[job.folder, state] += 1
                        if losses[job.folder, state] < ATTEMPTS:
                            tell(f"{job.label}: process or machine lost; resumes from {state}")
                            submit(job, again=True)
            finally:
                remove_quietly(marker)
                for reference in running:
                    ray.cancel(reference)  # acts like Ctrl-C in the task: the training saves
                if running:
                    ray.wait(list(running), num_returns=len(running), timeout=RAY_GRACE)
        lost = sum(count == ATTEMPTS for count in losses.values())
        _check_lost(lost, len(jobs), f"training jobs were lost {ATTEMPTS} times without a new checkpoint")


def _result(ray: Any, reference: Any) -> Any:
    """Return the measurement of a task or raise its error. Return None if its process or machine was lost."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayError as error:
        if "failed to import on the worker" in str(error):
            reason = str(error).strip().splitlines()[-1]
            raise InputError(
                f"a machine of the cluster cannot import Regard {__version__} ({reason}): install it there"
            ) from None
        # A task that was canceled from outside also counts as lost.
        lost = isinstance(error, ray.exceptions.TaskCancelledError)
        if isinstance(error, ray.exceptions.RayTaskError) and not lost:
            raise error.cause from None
        return None


@dataclass(frozen=True)
class Driver:
    """The process that submits the tasks. Other machines compare their installation and disk with this process."""

    version: str
    host: str
    marker: Path  # A file with a unique name in the folder of the comparison, visible to machines that share the folder
    working_folder: Path
    path: list[str]  # Python's import path, which includes the user's modules
    threads: int  # Number of PyTorch threads of each training job


def measure_on_machine(driver: Driver, job: SweepJob, code: dict[str, str], again: bool) -> Any:
    """Measure a job in a Ray task.

    `code`: digests of the user's code. `again`: whether another process with this job was lost. Raises `InputError`,
    with the name of this machine, if its version of Regard, its disk or its code differs from the driver's.
    """
    try:
        if driver.version != __version__:
            raise InputError(f"Regard {__version__} is installed, but {driver.version} is required: install that")
        for folder, path in ((driver.marker.parent, driver.marker), (driver.working_folder,) * 2):
            if not path.exists():
                raise InputError(f"the folder {str(folder)!r} of {driver.host} is not visible: {SHARE}")
        sys.path += [entry for entry in driver.path if entry not in sys.path]
        torch.set_num_threads(driver.threads)
        with chdir(driver.working_folder):  # relative paths of text and code start there
            here = code_digests(job.stored)
            for name in code:
                if here.get(name) != code[name]:
                    raise InputError(f"{name} is missing, or differs from the code on {driver.host}: {SHARE}")
            return _measure_unlocked(job, LEASE if again else 0)
    except RegardError as error:
        error.args = (f"on {socket.gethostname()}: {error}",)
        raise


def _measure_unlocked(job: SweepJob, patience: float) -> Any:
    """Measure a job. If another process has locked the run, wait up to `patience` seconds."""
    until = time.monotonic() + patience
    while True:
        try:
            return job.measure(trust_code=True)  # the driver trusts the code
        except BusyError:
            if time.monotonic() > until:
                raise
            time.sleep(WAIT)


@contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """Yield the connected Ray module. Raises `InputError` if Ray is not installed or no cluster is running."""
    ray = import_library("ray", "training on Ray", "cluster")
    if ray.is_initialized():  # for example in a notebook that uses Ray for other work
        yield ray
        return
    target = address or os.environ.get("RAY_ADDRESS")
    note = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")
    if not target and is_file(note):  # the address of the last cluster of this machine
        target = read_text(note, "start Ray anew").strip()
    target = target or "auto"
    _check_reachable(target)
    try:
        with (
            chdir(Path(__file__).parents[2]),  # Ray puts the current directory on the path of its workers
            library_errors(
                "ray", f"cannot connect to the Ray cluster at {target}", "use its version of Ray and Python"
            ),
        ):
            ray.init(address=target, log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError:
        raise InputError(f"no Ray cluster is running on this machine: {START}") from None
    try:
        # Ray reports lost machines on stdout, and its signal handlers abort the process.
        with redirect_stdout(sys.stderr), handle_signals(exit_on_signal, (signal.SIGTERM, signal.SIGHUP)):
            yield ray
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raise `InputError` if no process listens at host:port. Otherwise Ray would wait for minutes."""
    host, colon, port = address.rpartition(":")
    if address == "auto":
        return
    if not (colon and host and port.isdigit()):
        raise InputError(f"address {address!r} is not of the form host:port: give one such as 10.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"no Ray cluster answers at {address} ({error}): {START}") from None


def _describe_cluster(ray: Any, cpus: int, tell: Callable[[str], None]) -> None:
    """Report the address and the size of the cluster, and whether training jobs have to wait for cores."""
    machines = [node for node in ray.nodes() if node["Alive"]]
    cores = int(ray.cluster_resources().get("CPU", 0))
    size = f"{len(machines)} machine{'s' * (len(machines) != 1)}, {cores} core{'s' * (cores != 1)}"
    tell(f"Ray cluster at {ray.get_runtime_context().gcs_address}: {size}")
    largest = max((node["Resources"].get("CPU", 0) for node in machines), default=0)
    if min(ray.available_resources().get("CPU", 0), largest) < cpus:
        tell(f"no machine of the cluster has {cpus} free cores yet: training jobs wait")


# Run training jobs on a Slurm cluster through submitit: a job array with one task for each training job.
#
# The machines share a disk, so each training job writes to its own folder. A training job that reaches its time
# limit or is preempted saves its state and is queued again. If the submitting process ends without stopping the
# jobs, for example after a lost connection, the same command finds the jobs again.


LARGEST_ARRAY = 1000  # Maximum number of tasks in a job array. Slurm's default limit is 1001.
RESTARTS = 1000  # Number of times that a training job may reach its time limit
POLL_INTERVAL = 2.0  # Seconds between two queries of the queue and the results
SLURM_GRACE = 120.0  # Seconds from the stop signal of Slurm to the end of a job
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
        submitit = import_library("submitit", "training on Slurm", "cluster")
        if self.executor == "slurm" and (shutil.which("srun") is None or shutil.which("sbatch") is None):
            raise InputError("this machine has no sbatch and srun: use a machine that can submit jobs to Slurm")
        logging.getLogger("submitit").setLevel(logging.ERROR)
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
        _check_lost(len(lost), len(jobs), "training jobs were terminated", f": see {lost[0]}" if lost else "")

    def _find_submitted(self, submitit: Any, folder: Path, jobs: Sequence[JobT]) -> list[tuple[JobT, Any]]:
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


class _Training:
    """The function that submitit calls on the machine. Training runs in a child process, so that it can be stopped."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._worker: Worker[SweepJob, Any] | None = None

    def __call__(self, job: SweepJob) -> tuple[Exception | None, Any]:
        """Measure a job, and return its error or its measurement."""
        self._worker = Worker(_measure_on_slurm, threads=self._threads)
        self._worker.begin(job)
        try:
            return None, self._worker.result()
        except EndedError:
            # Slurm signals all processes of a job before it kills them. Wait for the signal, so that the task
            # does not count as finished.
            if self._worker.join() == 128 + signal.SIGTERM:
                time.sleep(SLURM_GRACE)
            raise
        except Exception as error:  # the submitting process raises it
            return error, None
        finally:
            self._stop()

    def checkpoint(self, job: SweepJob) -> Any:
        """Save the state, and return the continuation of the job. submitit calls this before the time limit."""
        from submitit.helpers import DelayedSubmission

        self._stop()
        return DelayedSubmission(_Training(self._threads), job)

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()
            self._worker.join()

    def __getstate__(self) -> dict[str, Any]:
        return {"_threads": self._threads, "_worker": None}


def _measure_on_slurm(job: SweepJob) -> Any:
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    return job.measure()
