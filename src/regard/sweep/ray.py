"""Run trainings on a Ray cluster, in parallel on all its cores.

A Ray actor supervises each training on its machine. The machines need no shared disk: every few seconds the saved
files are fetched and written to the job's folder on this machine. If a machine is lost, its trainings resume on
another machine from the files here and lose only the steps since their last checkpoint.
"""

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, chdir, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import InputError, MachineError, check_range
from regard.io.reading import is_file, read_text
from regard.libraries import import_library, library_errors
from regard.sweep.file_transfer import claim_run, collect_code, pack, read_last_step, unpack
from regard.sweep.job import Job, Measured
from regard.sweep.processes import exit_on_signal
from regard.sweep.trainer import Trainer, TrainingUpdate
from regard.version import __version__

POLL_INTERVAL = 2.0
"""Seconds between two requests for the saved files of a training."""
QUEUED = 4
"""Number of trainings submitted beyond the number of cores, so that no core is idle between two trainings."""
PATIENCE = 15.0
"""Seconds without any started training after which the user gets a message."""
GRACE = 60.0
"""Seconds in which stopped trainings save and return their files."""
ATTEMPTS = 3
"""Number of times that a training may be lost without a new checkpoint."""
WAIT = 0.5
"""Seconds to wait for replies in one loop."""
START = "start a cluster with `ray start --head`, or give the address of a cluster with --address"


@dataclass(frozen=True, kw_only=True)
class Ray:
    """A running Ray cluster."""

    address: str | None = None
    """host:port of the cluster's head; default $RAY_ADDRESS, else the cluster of this machine."""
    cpus: int = 1
    """Cores and threads of each training."""

    def __post_init__(self) -> None:
        """Raise `InputError` if a value is out of range."""
        check_range("cpus", self.cpus, 1, 1024)

    def run(self, jobs: Sequence[Job], tell: Callable[[str], None]) -> Iterator[tuple[Job, Measured]]:
        """Yield each job with its measurement (see `Backend`)."""
        left, busy, lost = deque(_RemoteTraining(job) for job in jobs), list[_RemoteTraining](), 0
        with _connected(self.address) as ray, ExitStack() as stack:
            stack.callback(_stop, ray, busy)
            tell(_describe_cluster(ray))
            idle_since, warned = time.monotonic(), False
            while left or busy:
                cores = int(ray.cluster_resources().get("CPU", 0))
                while left and len(busy) < cores // self.cpus + QUEUED:
                    busy.append(left.popleft())
                    busy[-1].begin(ray, self.cpus)
                if any(training.started for training in busy):
                    idle_since = time.monotonic()
                elif time.monotonic() > idle_since + PATIENCE and not warned:
                    tell(f"no machine of the cluster has {self.cpus} free cores yet: trainings wait")
                    warned = True
                pending = [training.reply for training in busy]
                ready, _ = ray.wait(pending, num_returns=len(pending), timeout=WAIT)
                for training in [training for training in busy if training.reply in ready]:
                    update = training.receive(ray)
                    if update.error is not None:
                        raise update.error
                    if update.measured is None and not update.ended:
                        training.request_update()
                        continue
                    busy.remove(training)
                    training.release(ray)
                    if update.measured is not None:
                        yield training.job, update.measured
                    elif training.losses < ATTEMPTS:
                        step = read_last_step(training.job.run)
                        tell(f"{training.job.label}: process or machine lost; resumes from step {step}")
                        left.appendleft(training)
                    else:
                        lost += 1
        if lost:
            raise MachineError(
                f"{lost} of {len(jobs)} trainings were lost {ATTEMPTS} times without a new checkpoint, for "
                f"example for lack of memory; the others are done: run the same command to train the missing ones"
            )


class _RemoteTraining:
    """A training that runs on the cluster, or waits there."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.started = False
        """Whether the training runs on a machine."""
        self.losses = 0
        """Number of times that the training was lost since its last checkpoint."""
        self._claims = ExitStack()
        self._trainer: Any = None

    def begin(self, ray: Any, cpus: int) -> None:
        """Submit the training with its saved files."""
        self.started = False
        self._claims.enter_context(claim_run(self.job))
        files, _ = pack(self.job.folder, {})
        self._trainer = ray.remote(Trainer).options(num_cpus=cpus).remote()
        self.reply = self._trainer.begin.remote(__version__, self.job.stored, files, collect_code(self.job), cpus)

    def request_update(self) -> None:
        """Request the next update."""
        self.reply = self._trainer.poll.remote(POLL_INTERVAL)

    def stop(self) -> Any:
        """Ask the training to stop; return a reference to its last update."""
        return self._trainer.stop.remote()

    def receive(self, ray: Any, seconds: float | None = None) -> TrainingUpdate:
        """Return the requested update and write its files; the update has `ended` set if the machine does not
        reply.
        """
        try:
            update: TrainingUpdate = ray.get(self.reply, timeout=seconds)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayError as error:
            if "No module named 'regard" in str(error):
                raise InputError(
                    f"a machine of the cluster lacks Regard {__version__}: install it there"
                ) from None
            update = TrainingUpdate(ended=True)
        self.started = True
        unpack(update.files, self.job)
        self.losses = 0 if update.files else self.losses + update.ended
        return update

    def release(self, ray: Any) -> None:
        """Free the cores and the lock of the training."""
        if self._trainer is not None:
            ray.kill(self._trainer)
        self._claims.close()


def _stop(ray: Any, busy: Sequence[_RemoteTraining]) -> None:
    """Stop running trainings, which save first, and fetch their files; drop waiting ones."""
    until = time.monotonic() + GRACE
    running = [training for training in busy if training.started]
    last_replies = [training.stop() for training in running]
    for training, reply in zip(running, last_replies, strict=True):
        with suppress(Exception):  # an error of one training must not keep the others from saving
            training.receive(ray, max(until - time.monotonic(), 0))
            training.reply = reply
            training.receive(ray, max(until - time.monotonic(), 0))
    for training in busy:
        training.release(ray)


@contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """Yield the connected Ray module; raises `InputError` if Ray is not installed or no cluster runs."""
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
        raise InputError(f"no Ray cluster runs on this machine: {START}") from None
    try:
        with redirect_stdout(sys.stderr), _exit_on_signals():  # Ray reports lost machines on stdout
            yield ray
    finally:
        ray.shutdown()


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Stop trainings cleanly on SIGTERM and SIGHUP: Ray's own handlers abort the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
    handlers = {number: signal.signal(number, exit_on_signal) for number in numbers}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _last_address() -> str | None:
    """Return the address of the last cluster of this machine, if Ray has stored an address."""
    note = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")
    return read_text(note, "start Ray anew").strip() if is_file(note) else None


def _check_reachable(address: str) -> None:
    """Raise `InputError` if nothing listens at host:port: Without this check, Ray would wait for minutes."""
    host, colon, port = address.rpartition(":")
    if address == "auto":
        return
    if not (colon and host and port.isdigit()):
        raise InputError(
            f"address {address!r} is not of the form host:port: give an address such as 10.0.0.1:6379"
        )
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"no Ray cluster answers at {address} ({error}): {START}") from None


def _describe_cluster(ray: Any) -> str:
    """Return the address and the size of the cluster."""
    machines = sum(node["Alive"] for node in ray.nodes())
    cores = int(ray.cluster_resources().get("CPU", 0))
    size = f"{machines} machine{'s' * (machines != 1)}, {cores} core{'s' * (cores != 1)}"
    return f"Ray cluster at {ray.get_runtime_context().gcs_address}: {size}"
