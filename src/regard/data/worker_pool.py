"""Processes that work beside this one, on jobs that come one after the other.

    python -m regard.data.worker_pool     reads jobs from its standard input, and writes what came of them

They are no processes of `multiprocessing`, which would run the script again that asked for a training. They end
with the one that started them, whatever it died of: their input ends then.
"""

import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, islice
from queue import SimpleQueue
from typing import Any, TypeVar

from regard.errors import InputError, MachineError, RegardError

Job = TypeVar("Job")
Result = TypeVar("Result")
WORTH = 4
"""Jobs from which on it is worth to start processes, which takes them half a second."""


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_in_processes(work: Callable[[Job], Result], jobs: Iterable[Job], *, processes: int) -> Iterator[Result]:
    """Yield what `work` makes of each job, in their order: by so many processes, or here where there are few
    jobs.

    `work`, jobs and results can be pickled. Jobs are taken as they are needed, one more than there are
    processes at most. Raises what `work` raises for the first of them that fails, and `MachineError` where a
    process has died.
    """
    jobs = iter(jobs)
    first = list(islice(jobs, WORTH))
    if processes < 2 or len(first) < WORTH:
        yield from map(work, chain(first, jobs))
        return
    idle: SimpleQueue[_Worker] = SimpleQueue()
    workers = [_Worker(work) for _ in range(processes)]
    try:
        for worker in workers:
            idle.put(worker)
        threads = ThreadPoolExecutor(processes)
        pending: deque[Future[Any]] = deque()
        try:
            for job in chain(first, jobs):
                pending.append(threads.submit(_in_one, idle, job))
                if len(pending) > processes:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            threads.shutdown(cancel_futures=True)
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """A process that does one job after the other."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        path = os.pathsep.join(each for each in sys.path if each)
        # Threads of the tokenizers library would be more than there are cores.
        environment = {
            **os.environ,
            "PYTHONPATH": path,
            "TOKENIZERS_PARALLELISM": "false",
            "OMP_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "regard.data.worker_pool"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self._send(work)

    def do(self, job: Any) -> Any:
        """Return what comes of a job; raises what it raises."""
        try:
            self._send(job)
            failed, found = pickle.load(self._process.stdout)  # type: ignore[arg-type]
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise MachineError(
                f"a process that prepares the text has ended (status {self._process.wait()}), as where memory is "
                f"short: the same command goes on with what is missing"
            ) from error
        if failed:
            raise found
        return found

    def end(self) -> None:
        """Let the process end; what it works on is finished first."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):  # it has ended before
                    pipe.close()
        self._process.wait()

    def _send(self, content: Any) -> None:
        assert self._process.stdin is not None
        pickle.dump(content, self._process.stdin, pickle.HIGHEST_PROTOCOL)
        self._process.stdin.flush()


def _in_one(idle: "SimpleQueue[_Worker]", job: Any) -> Any:
    worker = idle.get()
    try:
        return worker.do(job)
    finally:
        idle.put(worker)


def _serve() -> None:
    """Do what comes in, until no more comes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the one that started this process, too
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is no answer
    try:
        work = pickle.load(sys.stdin.buffer)
        while True:
            job = pickle.load(sys.stdin.buffer)
            try:
                answer = (False, work(job))
            except RegardError as error:
                answer = (True, (InputError if isinstance(error, InputError) else MachineError)(str(error)))
            pickle.dump(answer, output, pickle.HIGHEST_PROTOCOL)
            output.flush()
    except (EOFError, OSError):
        sys.exit()


if __name__ == "__main__":
    _serve()
