"""Trainings on a Ray cluster, side by side on all its cores.

Each is watched by an actor of Ray's on the machine that it runs on. Whatever it has saved is asked for every few
seconds and written into its job's folder here, since the machines need share no disk. So a machine that is lost
costs its trainings what they did since, and nothing else: they go on elsewhere with what is here.
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
from regard.libraries import calling, import_library
from regard.sweep.file_transfer import claim_run, collect_code, pack, read_last_step, unpack
from regard.sweep.job import Job, Measured
from regard.sweep.processes import exit_on_signal
from regard.sweep.trainer import Trainer, TrainingUpdate
from regard.version import __version__

EVERY = 2.0
"""Seconds between two questions for what a training has saved."""
AHEAD = 4
"""Trainings that wait in the cluster beyond those that it has cores for, so that none of its cores does."""
PATIENCE = 15.0
"""Seconds in which no training has begun, after which the user is told."""
GRACE = 60.0
"""Seconds in which trainings that are stopped save and hand on what they have."""
ATTEMPTS = 3
"""Times that a training may be lost with nothing new saved."""
SLICE = 0.5
"""Seconds for which answers are gathered."""
START = "start one with `ray start --head`, or say where one is by --address"


@dataclass(frozen=True, kw_only=True)
class Ray:
    """A Ray cluster, which its user has started."""

    address: str | None = None
    """host:port of the cluster's head; None: $RAY_ADDRESS, or the cluster of this machine."""
    cpus: int = 1
    """Cores, and threads, of each training."""

    def __post_init__(self) -> None:
        """Raise `InputError` where a value is out of range."""
        check_range("cpus", self.cpus, 1, 1024)

    def run(self, jobs: Sequence[Job], tell: Callable[[str], None]) -> Iterator[tuple[Job, Measured]]:
        """Yield each job with what was measured (see `Backend`)."""
        left, busy, lost = deque(_Sent(job) for job in jobs), list[_Sent](), 0
        with _connected(self.address) as ray, ExitStack() as stack:
            stack.callback(_stop, ray, busy)
            tell(_said(ray))
            idle_since, told = time.monotonic(), False
            while left or busy:
                cores = int(ray.cluster_resources().get("CPU", 0))
                while left and len(busy) < cores // self.cpus + AHEAD:
                    busy.append(left.popleft())
                    busy[-1].begin(ray, self.cpus)
                if any(sent.began for sent in busy):
                    idle_since = time.monotonic()
                elif time.monotonic() > idle_since + PATIENCE and not told:
                    tell(f"no machine of the cluster has had {self.cpus} free cores yet: trainings wait")
                    told = True
                asked = [sent.answer for sent in busy]
                answers, _ = ray.wait(asked, num_returns=len(asked), timeout=SLICE)
                for sent in [each for each in busy if each.answer in answers]:
                    news = sent.hear(ray)
                    if news.error is not None:
                        raise news.error
                    if news.measured is None and not news.ended:
                        sent.ask()
                        continue
                    busy.remove(sent)
                    sent.exit_on_signal(ray)
                    if news.measured is not None:
                        yield sent.job, news.measured
                    elif sent.losses < ATTEMPTS:
                        step = read_last_step(sent.job.run)
                        tell(f"{sent.job.said}: ended, as where a machine is lost; goes on from step {step}")
                        left.appendleft(sent)
                    else:
                        lost += 1
        if lost:
            raise MachineError(
                f"{lost} of {len(jobs)} trainings were lost {ATTEMPTS} times with nothing new saved, as where "
                f"memory is short; the others are done: the same command goes on with what is missing"
            )


class _Sent:
    """A training that has been sent to the cluster."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.began = False
        """Whether it has found a machine."""
        self.losses = 0
        """How often it was lost since something new was saved."""
        self._held = ExitStack()
        self._trainer: Any = None

    def begin(self, ray: Any, cpus: int) -> None:
        """Send it off, with what there is of it."""
        self.began = False
        self._held.enter_context(claim_run(self.job))
        files, _ = pack(self.job.folder, {})
        self._trainer = ray.remote(Trainer).options(num_cpus=cpus).remote()
        self.answer = self._trainer.begin.remote(
            __version__, self.job.stored, files, collect_code(self.job), cpus
        )

    def ask(self) -> None:
        """Ask what has become of it."""
        self.answer = self._trainer.news.remote(EVERY)

    def stop(self) -> Any:
        """Tell it to stop; returns what will be its last answer."""
        return self._trainer.stop.remote()

    def hear(self, ray: Any, seconds: float | None = None) -> TrainingUpdate:
        """Return the answer, what it brings written down; `ended` where its machine no longer answers."""
        try:
            news: TrainingUpdate = ray.get(self.answer, timeout=seconds)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayError as error:
            if "No module named 'regard" in str(error):
                raise InputError(
                    f"a machine of the cluster has no Regard {__version__}: install it there"
                ) from None
            news = TrainingUpdate(ended=True)
        self.began = True
        unpack(news.files, self.job)
        self.losses = 0 if news.files else self.losses + news.ended
        return news

    def exit_on_signal(self, ray: Any) -> None:
        """Free the cores that it was on."""
        if self._trainer is not None:
            ray.kill(self._trainer)
        self._held.close()


def _stop(ray: Any, busy: Sequence[_Sent]) -> None:
    """Stop what trains, which saves, and take what it has saved; what has found no machine yet is forgotten."""
    until = time.monotonic() + GRACE
    began = [sent for sent in busy if sent.began]
    last = [sent.stop() for sent in began]
    for sent, answer in zip(began, last, strict=True):
        with suppress(Exception):  # whatever it is: all others save too
            sent.hear(ray, max(until - time.monotonic(), 0))
            sent.answer = answer
            sent.hear(ray, max(until - time.monotonic(), 0))
    for sent in busy:
        sent.exit_on_signal(ray)


@contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """Yield Ray, connected to its cluster; raises `InputError` where Ray is not installed, or no cluster runs."""
    ray = import_library("ray", "training on Ray", "cluster")
    if ray.is_initialized():  # as in a notebook that uses it otherwise
        yield ray
        return
    where = address or os.environ.get("RAY_ADDRESS") or _noted() or "auto"
    _check_answers(where)
    try:
        with (
            chdir(Path(__file__).parents[2]),  # Ray puts the current directory on the path of its workers
            calling("ray", f"cannot connect to the Ray cluster at {where}", "use its version of Ray and Python"),
        ):
            ray.init(address=where, log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError:
        raise InputError(f"no Ray cluster runs on this machine: {START}") from None
    try:
        with redirect_stdout(sys.stderr), _leaving():  # Ray tells of lost machines on standard output
            yield ray
    finally:
        ray.shutdown()


@contextmanager
def _leaving() -> Iterator[None]:
    """Let SIGTERM and SIGHUP stop trainings in good order: Ray has a process abort."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) != signal.SIG_IGN]
    before = {each: signal.signal(each, exit_on_signal) for each in heard}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler or signal.SIG_DFL)


def _noted() -> str | None:
    """Return the address of the cluster that this machine has last been part of, where Ray has noted one."""
    note = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")
    return read_text(note, "start Ray anew").strip() if is_file(note) else None


def _check_answers(where: str) -> None:
    """Raise `InputError` where nobody listens at host:port, for which Ray itself would wait long."""
    host, colon, port = where.rpartition(":")
    if where == "auto":
        return
    if not (colon and host and port.isdigit()):
        raise InputError(f"address {where!r} is not of the form host:port: give it as in 10.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"no Ray cluster answers at {where} ({error}): {START}") from None


def _said(ray: Any) -> str:
    """Say which cluster it is."""
    machines = sum(node["Alive"] for node in ray.nodes())
    cores = int(ray.cluster_resources().get("CPU", 0))
    size = f"{machines} machine{'s' * (machines != 1)}, {cores} core{'s' * (cores != 1)}"
    return f"Ray cluster at {ray.get_runtime_context().gcs_address}: {size}"
