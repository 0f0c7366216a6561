"""Jobs side by side, in processes that end in good order.

A process that is told to stop begins no other job, none outlives the one that started it, and one that is killed
takes nothing with it but its own job.
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
from multiprocessing.context import SpawnProcess
from typing import Any, Generic, TypeVar

import torch

from regard.errors import MachineError

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What tells a process to end."""
Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass
class _Worker(Generic[Job]):
    """A process that does one job after the other."""

    process: SpawnProcess
    pipe: Connection
    job: Job


def in_processes(work: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[Job, Result]]:
    """Yield each of one or more jobs with what `work` made of it, as they are done: a process for each core, with
    one thread.

    `work`, jobs and results can be pickled, as they go from process to process. Raises what `work` raises, and,
    once all others are done, `MachineError` where a process was ended from outside.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    left, lost = deque(jobs), 0
    busy: dict[Connection, _Worker[Job]] = {}
    try:
        while left and len(busy) < cores:
            _begin(work, left.popleft(), busy)
        while busy:
            for pipe in wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]
                try:
                    failed, found = worker.pipe.recv()
                except (EOFError, ConnectionError):  # it has died
                    lost += 1
                    _end(worker, busy)
                    if left:
                        _begin(work, left.popleft(), busy)
                    continue
                if failed:
                    raise found
                job = worker.job
                if left:
                    worker.job = left.popleft()
                    worker.pipe.send(worker.job)
                else:
                    _end(worker, busy)
                yield job, found
    finally:
        for worker in busy.values():
            # Ctrl-C reaches all processes, a signal to this one does not; twice does no harm.
            worker.process.terminate()
        for worker in busy.values():
            worker.process.join()
    if lost:
        raise MachineError(
            f"{lost} of {len(jobs)} processes ended from outside while they trained, as where memory is short; "
            f"the others are done: the same command goes on with what is missing"
        )


def _begin(work: Callable[[Job], Result], job: Job, busy: dict[Connection, _Worker[Job]]) -> None:
    """Start a process with its first job."""
    # Forking a process that has used threads may hang, so processes start afresh.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(work, theirs))
    with _uninterrupted():
        process.start()
        busy[ours] = _Worker(process, ours, job)
    theirs.close()  # so that its end is seen here
    ours.send(job)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let signals come after the block: none may leave a process that nobody knows of yet."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {each: signal.signal(each, lambda number, _: came.append(number)) for each in STOPPING}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler or signal.SIG_DFL)
        for number in came:
            signal.raise_signal(number)


def _end(worker: _Worker[Any], busy: dict[Connection, _Worker[Any]]) -> None:
    """Let a process go that has no other job to do."""
    del busy[worker.pipe]
    worker.pipe.close()
    worker.process.join()


def _work(work: Callable[[Job], Result], pipe: Connection) -> None:
    """Do one job after the other, in a process of its own, until there is none or it is told to stop."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, _leave)  # between two trainings too, nothing half done stays
    threading.Thread(target=_follow, daemon=True).start()
    torch.set_num_threads(1)
    try:
        while True:
            job = pipe.recv()
            try:
                found: tuple[bool, object] = (False, work(job))
            except Exception as error:  # whatever it is, it is raised where the job came from
                found = (True, error)
            try:
                pipe.send(found)
            except (TypeError, AttributeError, pickle.PicklingError):  # not every error can be handed on
                pipe.send((True, RuntimeError(str(found[1]))))
    except (EOFError, ConnectionError):
        pass
    except KeyboardInterrupt as stop:  # Ctrl-C reaches all processes; whoever started this one may not listen
        with contextlib.suppress(OSError):
            pipe.send((True, stop))


def _leave(number: int, frame: object) -> None:
    sys.exit(128 + number)


def _follow() -> None:
    """Stop this process when the one that started it is gone, whatever that died of."""
    starter = multiprocessing.parent_process()
    assert starter is not None, "another process starts this one"
    starter.join()
    os.kill(os.getpid(), signal.SIGTERM)
