"""Jobs side by side, in processes that end in good order.

A process that is told to stop begins no other job, and none outlives the one that started it.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

import torch

from regard.errors import MachineError

Job = TypeVar("Job")
Result = TypeVar("Result")

_stopped = threading.Event()
"""Set where this process was told to stop: the pool would hand it the next job."""


def in_processes(work: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[Job, Result]]:
    """Yield each of one or more jobs with what `work` made of it, as they are done: a process for each core, with
    one thread.

    `work`, jobs and results can be pickled, as they go from process to process. Raises what `work` raises, and
    `MachineError` where a process was ended from outside.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # Forking a process that has used threads may hang, so processes start afresh.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(cores, len(jobs)), mp_context=context, initializer=_follow) as pool:
        try:
            futures = {pool.submit(_work, work, job): job for job in jobs}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as error:
            raise MachineError(
                "a process was ended from outside while it trained, as where memory is short: "
                "the same command goes on where it stopped"
            ) from error
        except BaseException as error:
            if not isinstance(error, Exception):  # stopped, or nobody asks for more
                # Ctrl-C reaches all processes, a signal to this one does not; twice does no harm.
                for process in multiprocessing.active_children():
                    process.terminate()
            pool.shutdown(cancel_futures=True)
            raise


def _follow() -> None:
    """Stop this process when the one that started it is gone, whatever that died of."""
    starter = multiprocessing.parent_process()
    assert starter is not None, "the pool's processes are started by another"

    def wait() -> None:
        starter.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def _work(work: Callable[[Job], Result], job: Job) -> Result:
    """Do a job in a process of the pool, unless that was told to stop."""
    if _stopped.is_set():
        raise KeyboardInterrupt
    torch.set_num_threads(1)
    try:
        return work(job)
    except (KeyboardInterrupt, SystemExit):
        _stopped.set()
        starter = multiprocessing.parent_process()
        if starter is not None and not starter.is_alive():
            os._exit(1)  # else it would wait for another job forever
        raise KeyboardInterrupt from None
