"""Apply a function to a sequence of jobs in worker processes of `concurrent.futures`."""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from types import ModuleType
from typing import Any, TypeVar

from regard.errors import MachineError

Job = TypeVar("Job")
Result = TypeVar("Result")
MIN_JOBS = 4  # The smallest number of jobs for which worker processes are started, which takes half a second
_function: Callable[[Any], Any]  # The function of a worker process


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
    # Workers are spawned, because a fork is unsafe beside PyTorch's threads.
    context, arguments = multiprocessing.get_context("spawn"), (pickle.dumps(function),)
    pool = ProcessPoolExecutor(processes, context, _begin_worker, arguments)
    pending: deque[Future[Any]] = deque()
    try:
        for job in chain(first, jobs):
            pending.append(_submit(pool, job))
            # Yield results in order. The limit on the number of waiting jobs bounds memory.
            if len(pending) > processes:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise MachineError(
            f"a process that {purpose} died, possibly for lack of memory: run the same command again for the rest"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _submit(pool: ProcessPoolExecutor, job: Any) -> Future[Any]:
    """Submit a job. A process that this starts would run the user's script again, so the script is hidden."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        return pool.submit(_run_job, job)
    finally:
        sys.modules["__main__"] = script


def _begin_worker(function: bytes) -> None:
    global _function
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C also reaches the parent, which ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # One thread per worker, because separate thread pools would use more threads than cores. The libraries read
    # the variables when the function is unpickled.
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    _function = pickle.loads(function)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run_job(job: Any) -> Any:
    return _function(job)
