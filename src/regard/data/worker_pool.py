"""Worker processes that apply a function to a sequence of jobs.

    python -m regard.data.worker_pool     reads jobs from standard input and writes their results

`multiprocessing` is not used: its spawn and forkserver methods run the user's script again, and fork is unsafe
with PyTorch's threads. A worker ends when its parent ends for any reason, because its standard input is then
closed.
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
MIN_JOBS = 4
"""The smallest number of jobs for which worker processes are started.

Starting the processes takes half a second.
"""


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_in_processes(
    function: Callable[[Job], Result], jobs: Iterable[Job], *, processes: int, purpose: str = "works on a job"
) -> Iterator[Result]:
    """Yield the result of `function` for each job, in order, computed by worker processes.

    `function`, jobs and results must be picklable. At most `processes` + 1 jobs are read in advance. A small
    number of jobs runs in the calling process. `purpose`: what a process does, for messages. Raises the error of
    the first job that fails, and `MachineError` if a process dies.

    >>> list(map_in_processes(str.upper, ["a", "b"], processes=2))
    ['A', 'B']
    """
    jobs = iter(jobs)
    first = list(islice(jobs, MIN_JOBS))
    if processes < 2 or len(first) < MIN_JOBS:
        yield from map(function, chain(first, jobs))
        return
    idle: SimpleQueue[_Worker] = SimpleQueue()
    workers = [_Worker(function, purpose) for _ in range(processes)]
    try:
        for worker in workers:
            idle.put(worker)
        threads = ThreadPoolExecutor(processes)
        pending: deque[Future[Any]] = deque()
        try:
            for job in chain(first, jobs):
                pending.append(threads.submit(_run_job, idle, job))
                # Yield results in order. The number of waiting jobs is at most the number of processes plus 1,
                # to bound memory.
                if len(pending) > processes:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            threads.shutdown(cancel_futures=True)
    finally:
        for worker in workers:
            worker.close()


class _Worker:
    """A worker process that runs jobs one after another."""

    def __init__(self, function: Callable[[Any], Any], purpose: str) -> None:
        self._purpose = purpose
        # Use one thread per worker, because separate thread pools would use more threads than cores.
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "TOKENIZERS_PARALLELISM": "false",
            "OMP_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "regard.data.worker_pool"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self._send(function)

    def run(self, job: Any) -> Any:
        """Return the result of a job, or raise its error."""
        try:
            self._send(job)
            failed, result = pickle.load(self._process.stdout)  # type: ignore[arg-type]
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise MachineError(
                f"a process that {self._purpose} died (status {self._process.wait()}), possibly for lack of "
                f"memory: run the same command again for the rest"
            ) from error
        if failed:
            raise result
        return result

    def close(self) -> None:
        """End the process after its current job."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):  # the process has died
                    pipe.close()
        self._process.wait()

    def _send(self, content: Any) -> None:
        assert self._process.stdin is not None
        pickle.dump(content, self._process.stdin, pickle.HIGHEST_PROTOCOL)
        self._process.stdin.flush()


def _run_job(idle: "SimpleQueue[_Worker]", job: Any) -> Any:
    worker = idle.get()
    try:
        return worker.run(job)
    finally:
        idle.put(worker)


def _serve() -> None:
    """Run jobs from standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C also reaches the parent, which ends this process
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # exclude output of libraries from the results
    try:
        function = pickle.load(sys.stdin.buffer)
        while True:
            job = pickle.load(sys.stdin.buffer)
            try:
                result = (False, function(job))
            except RegardError as error:
                result = (True, (InputError if isinstance(error, InputError) else MachineError)(str(error)))
            pickle.dump(result, output, pickle.HIGHEST_PROTOCOL)
            output.flush()
    except (EOFError, OSError):
        sys.exit()


if __name__ == "__main__":
    _serve()
