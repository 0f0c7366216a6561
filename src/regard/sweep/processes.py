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
from multiprocessing.connection import Connection, wait
from typing import Generic, TypeVar, cast

import torch

from regard.errors import MachineError

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What tells a process to end."""
Asked = TypeVar("Asked")
Found = TypeVar("Found")


class EndedError(Exception):
    """A process that was ended from outside."""


class Worker(Generic[Asked, Found]):
    """A process that does one job after the other.

    `work`, jobs and results can be pickled, as they go from process to process. `threads`: of PyTorch, in it.
    """

    def __init__(self, work: Callable[[Asked], Found], *, threads: int = 1) -> None:
        # Forking a process that has used threads may hang, so processes start afresh.
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(work, theirs, threads))
        self._process.start()
        theirs.close()  # so that its end is seen here

    def begin(self, job: Asked) -> None:
        """Hand it a job."""
        self.job = job
        self.pipe.send(job)

    def result(self) -> Found:
        """Wait for what it made of its job; raises what the work raises, and `EndedError` where the process
        was ended from outside."""
        try:
            failed, found = self.pipe.recv()
        except (EOFError, ConnectionError) as error:
            raise EndedError from error
        if failed:
            raise found
        return cast("Found", found)

    def stop(self) -> None:
        """Tell it to stop, if it lives: a training saves first."""
        self._process.terminate()

    def join(self) -> int | None:
        """Wait until it has ended, as it does when it was told to, or has no other job to do; returns its exit
        status, negative where a signal has ended it."""
        self.pipe.close()
        self._process.join()
        return self._process.exitcode


def run_in_processes(work: Callable[[Asked], Found], jobs: Sequence[Asked]) -> Iterator[tuple[Asked, Found]]:
    """Yield each of one or more jobs with what `work` made of it, as they are done: a process for each core, with
    one thread.

    Raises what `work` raises, and, once all others are done, `MachineError` where a process was ended from
    outside.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    left, lost = deque(jobs), 0
    busy: dict[Connection, Worker[Asked, Found]] = {}

    def another() -> None:
        with _uninterrupted():
            worker = Worker(work)
            busy[worker.pipe] = worker
        worker.begin(left.popleft())

    try:
        while left and len(busy) < cores:
            another()
        while busy:
            for pipe in wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]
                try:
                    found = worker.result()
                except EndedError:
                    lost += 1
                    busy.pop(worker.pipe).join()
                    if left:
                        another()
                    continue
                job = worker.job
                if left:
                    worker.begin(left.popleft())
                else:
                    busy.pop(worker.pipe).join()
                yield job, found
    finally:
        for worker in busy.values():
            worker.stop()  # Ctrl-C reaches all processes, a signal to this one does not; twice does no harm
        for worker in busy.values():
            worker.join()
    if lost:
        raise MachineError(
            f"{lost} of {len(jobs)} processes ended from outside while they trained, as where memory is short; "
            f"the others are done: the same command goes on with what is missing"
        )


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


def _work(work: Callable[[Asked], Found], pipe: Connection, threads: int) -> None:
    """Do one job after the other, in a process of its own, until there is none or it is told to stop."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, exit_on_signal)  # between two trainings too, nothing half done stays
    threading.Thread(target=_follow, daemon=True).start()
    torch.set_num_threads(threads)
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


def exit_on_signal(number: int, frame: object) -> None:
    """End this process because of a signal, what is to be put in order first."""
    sys.exit(128 + number)


def _follow() -> None:
    """Stop this process when the one that started it is gone, whatever that died of."""
    starter = multiprocessing.parent_process()
    assert starter is not None, "another process starts this one"
    starter.join()
    os.kill(os.getpid(), signal.SIGTERM)
