"""Request queues: requests of one kind are answered in order, independently of other kinds.

Each request runs in a thread with its own copy of the explorer. A request that takes minutes therefore delays
only requests of the same kind, and the interventions of one user do not affect other users.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue

from regard.libraries import message_of
from regard.server.explorer import Explorer
from regard.server.messages import RequestError

Job = Callable[[Explorer], bytes]

STOP_SECONDS = 5.0  # for a cancelled job to stop; a library call cannot be interrupted and is abandoned
MAX_ABANDONED = 4  # per queue, since each abandoned job may occupy a core forever


class StoppedError(BaseException):
    """Raised in a cancelled job; derived from `BaseException`, so that libraries do not catch it."""


class RequestQueue:
    """Runs up to `parallel` jobs at once, in the order in which they arrive."""

    def __init__(self, explorer: Explorer, parallel: int) -> None:
        self._explorer = explorer
        self._slots = asyncio.Semaphore(parallel)
        self._idle: list[_Worker] = []
        self._workers: list[_Worker] = []
        self._abandoned: list[_Worker] = []

    @property
    def busy(self) -> bool:
        return any(worker.busy for worker in self._workers)

    async def run(self, job: Job) -> bytes:
        """Wait for a free slot, run `job` and return its result; exceptions of the job propagate.

        A cancelled call leaves the queue, or stops the job and waits up to `STOP_SECONDS` until it has stopped.
        After a second cancellation, the call does not wait.
        """
        async with self._slots:
            self._idle += [worker for worker in self._abandoned if not worker.busy]
            self._abandoned = [worker for worker in self._abandoned if worker.busy]
            if len(self._abandoned) >= MAX_ABANDONED:
                raise RequestError(
                    503, f"{MAX_ABANDONED} cancelled requests are still running: restart the explorer"
                )
            worker = self._idle.pop() if self._idle else self._add_worker()
            result = worker.start(job)
            try:
                return await asyncio.shield(result)
            except asyncio.CancelledError:
                worker.stop.set()
                await asyncio.wait([result], timeout=STOP_SECONDS)
                raise
            finally:
                if result.done():
                    result.exception()  # marks it as retrieved, or asyncio would log it
                (self._idle if result.done() else self._abandoned).append(worker)

    def _add_worker(self) -> "_Worker":
        self._workers.append(_Worker(self._explorer))
        return self._workers[-1]


class _Worker:
    """A thread with its own explorer, which runs jobs one after another.

    The thread is a daemon thread, so that a running model does not delay the end of the process. Threads of
    `concurrent.futures` would be joined at exit.
    """

    def __init__(self, explorer: Explorer) -> None:
        self.busy = False
        self.stop = threading.Event()
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._shared_explorer = explorer
        self._explorer: Explorer | None = None
        threading.Thread(target=self._run, name="explorer", daemon=True).start()

    def start(self, job: Job) -> "asyncio.Future[bytes]":
        """Start a job and return its result as a future; the previous job must have ended."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[bytes] = loop.create_future()
        self.busy = True
        self.stop.clear()

        def call() -> None:
            setter, value = self._outcome(job, result)
            self.busy = False
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(setter, value)

        self._calls.put(call)
        return result

    def _run(self) -> None:
        while True:
            self._calls.get()()

    def _outcome(self, job: Job, result: "asyncio.Future[bytes]") -> tuple[Callable[..., None], object]:
        """Run a job; return the method of the future that sets its result or exception, and the argument."""
        try:
            self._check()
            self._explorer = self._explorer or self._shared_explorer.copy(self._check)
            return result.set_result, job(self._explorer)
        except BaseException as error:
            return result.set_exception, _as_exception(error)

    def _check(self) -> None:
        if self.stop.is_set():
            raise StoppedError


def _as_exception(error: BaseException) -> Exception:
    """Wrap errors that a future cannot hold: `StopIteration`, and panics that are not an `Exception`."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RequestError(500, f"the model failed: {message_of(error)}; try another input")
