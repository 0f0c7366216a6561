"""Lanes: questions of one kind take turns among themselves, and wait for no other kind.

Whoever answers has a thread and an explorer of its own. So a question that takes minutes keeps nobody waiting
but those that ask the same, and what one user does to a layer no other one can see.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue

from regard.libraries import message_of
from regard.server.explorer import Explorer
from regard.server.refusing import RequestError

Ask = Callable[[Explorer], bytes]


GRACE = 5.0
"""Seconds that a stopped question may still take; one that is stuck in a library is left alone after that."""
MOST_STUCK = 4
"""Stuck questions of a lane, above which it answers no more: each of them takes a core for ever."""


class StoppedError(BaseException):
    """Nobody waits for the answer any more; no `except Exception` in a library holds it."""


class RequestQueue:
    """Answers `most` questions at once, in the order in which they come."""

    def __init__(self, explorer: Explorer, most: int) -> None:
        self._explorer = explorer
        self._turn = asyncio.Semaphore(most)
        self._idle: list[_Worker] = []
        self._workers: list[_Worker] = []
        self._stuck: list[_Worker] = []

    @property
    def busy(self) -> bool:
        """Whether a model is still at work, be it for nobody."""
        return any(worker.busy for worker in self._workers)

    async def run(self, ask: Ask) -> bytes:
        """Wait for a turn and return what `ask` finds; raises what it raises.

        Cancelled, it leaves the line, or stops the model and waits until it has, `GRACE` seconds at most;
        cancelled again, it does not wait.
        """
        async with self._turn:
            self._idle += [worker for worker in self._stuck if not worker.busy]
            self._stuck = [worker for worker in self._stuck if worker.busy]
            if len(self._stuck) >= MOST_STUCK:
                raise RequestError(503, f"{MOST_STUCK} questions never ended: start the explorer anew")
            worker = self._idle.pop() if self._idle else self._another()
            working = worker.begin(ask)
            try:
                return await asyncio.shield(working)
            except asyncio.CancelledError:
                worker.stop.set()
                await asyncio.wait([working], timeout=GRACE)
                raise
            finally:
                if working.done():
                    working.exception()  # or asyncio complains that nobody has looked
                (self._idle if working.done() else self._stuck).append(worker)

    def _another(self) -> "_Worker":
        self._workers.append(_Worker(self._explorer))
        return self._workers[-1]


class _Worker:
    """A thread that answers one question after the other, with an explorer of its own.

    It is a daemon: no end of the process waits for a model that does not stop.
    """

    def __init__(self, explorer: Explorer) -> None:
        self.busy = False
        self.stop = threading.Event()
        self._given: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._origin = explorer
        self._own: Explorer | None = None
        threading.Thread(target=self._work, name="explorer", daemon=True).start()

    def begin(self, ask: Ask) -> "asyncio.Future[bytes]":
        """Have a question answered; whoever asks waits for the last one to be done."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[bytes] = loop.create_future()
        self.busy = True
        self.stop.clear()

        def answer() -> None:
            tell, outcome = self._outcome(ask, found)
            self.busy = False
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(tell, outcome)

        self._given.put(answer)
        return found

    def _work(self) -> None:
        while True:
            self._given.get()()

    def _outcome(self, ask: Ask, found: "asyncio.Future[bytes]") -> tuple[Callable[..., None], object]:
        """Return how the answer is told, and what it is."""
        try:
            self._check()
            self._own = self._own or self._origin.apart(self._check)
            return found.set_result, ask(self._own)
        except BaseException as error:
            return found.set_exception, _failure(error)

    def _check(self) -> None:
        if self.stop.is_set():
            raise StoppedError


def _failure(error: BaseException) -> Exception:
    """Return an error as a future takes it: a panic is no `Exception`, and `StopIteration` none that it takes."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RequestError(500, f"the model failed: {message_of(error)}; ask for something else")
