"""Run jobs in parallel worker processes that shut down cleanly.

A stopped worker does not start further jobs. Workers end when their parent process ends. If a worker is killed,
only its current job is lost.
"""

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar, cast

import torch

from regard.errors import MachineError
from regard.machine import available_cores
from regard.training.signals import SIGNALS

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")


class EndedError(Exception):
    """Raised if a worker process was terminated from outside."""


class Worker(Generic[JobT, ResultT]):
    """A process that runs one job after another.

    `work`: the function that runs a job. The function, the jobs and the results must be picklable. `threads`:
    number of PyTorch threads of the process.
    """

    def __init__(self, work: Callable[[JobT], ResultT], *, threads: int = 1) -> None:
        # Forking a process that has used threads may hang, so workers are spawned.
        context = multiprocessing.get_context("spawn")
        self.pipe, child_pipe = context.Pipe()
        self._process = context.Process(target=_run_jobs, args=(work, child_pipe, threads))
        self._process.start()
        child_pipe.close()  # otherwise the end of the child would not be noticed

    def begin(self, job: JobT) -> None:
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


def run_in_processes(work: Callable[[JobT], ResultT], jobs: Sequence[JobT]) -> Iterator[tuple[JobT, ResultT]]:
    """Run jobs in one single-threaded process for each core. Yield each job with its result when the job is
    done.

    Raises any error of `work`, and `MachineError` after all other jobs are done if a process was terminated from
    outside.
    """
    cores, left, lost = available_cores(), deque(jobs), 0
    busy: dict[Connection, Worker[JobT, ResultT]] = {}

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
    if lost:
        raise MachineError(
            f"{lost} of {len(jobs)} processes were terminated during training, for example for lack of "
            f"memory; the other runs are done: repeat the command to train the missing runs"
        )


@contextlib.contextmanager
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


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay signals, so that every started worker is registered before a signal is handled."""
    received: list[int] = []
    try:
        with handle_signals(lambda number, _: received.append(number), SIGNALS):
            yield
    finally:
        for number in received:
            signal.raise_signal(number)


def _run_jobs(work: Callable[[JobT], ResultT], pipe: Connection, threads: int) -> None:
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
        with contextlib.suppress(OSError):
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


@dataclass(frozen=True)
class Local:
    """This machine, with one single-threaded process for each core."""

    def run(self, jobs: Sequence[JobT], tell: Callable[[str], None]) -> Iterator[tuple[JobT, Any]]:
        yield from run_in_processes(_measure, jobs)


def _measure(job: Any) -> Any:
    return job.measure()
