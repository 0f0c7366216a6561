"""Run training jobs on a Ray cluster, in parallel on all its cores.

Each training job is a Ray task that writes to its own folder, so all machines must share the disk of that
folder. If a process or a machine is lost, its job resumes on another machine from the last checkpoint.
"""

import logging
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch

from regard.arguments import Limits, check_fields
from regard.errors import InputError, MachineError, RegardError
from regard.io import BusyError, is_file, make_folder, read_text, remove_quietly, temporary_path, write_file
from regard.libraries import import_library, library_errors
from regard.sweep.job import JobT, SweepJob
from regard.sweep.processes import exit_on_signal, handle_signals
from regard.training.trust_code import code_digests, trust
from regard.version import __version__

GRACE = 60.0
"""Seconds in which stopped training jobs must save their state."""
ATTEMPTS = 3
"""Number of times that a training job may be lost without a new checkpoint."""
WAIT = 0.5
"""Seconds to wait for results in each iteration."""
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
                    ray.wait(list(running), num_returns=len(running), timeout=GRACE)
        lost = sum(count == ATTEMPTS for count in losses.values())
        if lost:
            raise MachineError(
                f"{lost} of {len(jobs)} training jobs were lost {ATTEMPTS} times without a new checkpoint, "
                f"for example for lack of memory; the other runs are done: repeat the command to train the "
                f"missing runs"
            )


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
    """The process that submits the tasks. Other machines compare their installation and disk with this
    process."""

    version: str
    host: str
    marker: Path
    """A file with a unique name in the folder of the comparison, visible to machines that share the folder."""
    working_folder: Path
    path: list[str]
    """Python's import path, which includes the user's modules."""
    threads: int
    """Number of PyTorch threads of each training job."""


def measure_on_machine(driver: Driver, job: SweepJob, code: dict[str, str], again: bool) -> Any:
    """Measure a job in a Ray task.

    `code`: digests of the user's code. `again`: whether another process with this job was lost. Raises
    `InputError`, with the name of this machine, if its version of Regard, its disk or its code differs from the
    driver's.
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
    target = address or os.environ.get("RAY_ADDRESS") or _last_address() or "auto"
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


def _last_address() -> str | None:
    """Return the address of the last cluster of this machine, if Ray has stored one."""
    note = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")
    return read_text(note, "start Ray anew").strip() if is_file(note) else None


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
