"""A failed or stuck job does not block the next job."""

import asyncio
import re
import threading
from typing import Any

import pytest

from regard.server import app
from regard.server.app import RequestQueue, StoppedError
from regard.server.messages import RequestError
from tests.test_libraries import PANICS, SLOW_PATTERN


class FakeExplorer:
    """The methods of an explorer that a queue uses."""

    def copy(self, check: Any) -> "FakeExplorer":
        self.check = check
        return self


def make_queue() -> RequestQueue:
    return RequestQueue(FakeExplorer(), 1)  # type: ignore[arg-type]


def panics(explorer: Any) -> bytes:
    SLOW_PATTERN.pre_tokenize_str(PANICS)
    return b"never"


def fails(error: BaseException) -> Any:
    def ask(explorer: Any) -> bytes:
        raise error

    return ask


def answer(explorer: Any) -> bytes:
    return b"answer"


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (panics, RequestError),
        *((fails(error), RequestError) for error in (StopIteration(), SystemExit(2), GeneratorExit())),
        (fails(MemoryError()), MemoryError),
        (fails(RecursionError("deep")), RecursionError),
    ],
)
def test_errors_end_one_job(ask: Any, error: type[Exception]) -> None:
    """Errors that are not exceptions become an error of the request."""

    async def both() -> None:
        queue = make_queue()
        with pytest.raises(error) as caught:
            await asyncio.wait_for(queue.run(ask), 20)
        if isinstance(caught.value, RequestError):
            assert caught.value.status == 500 and re.fullmatch("the model failed: .*", str(caught.value))
        assert await asyncio.wait_for(queue.run(answer), 20) == b"answer"

    asyncio.run(both())


def test_stuck_jobs_are_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "STOP_SECONDS", 0.05)
    end = threading.Event()

    def stuck(explorer: Any) -> bytes:
        end.wait(60)
        return b"late"

    async def several() -> None:
        queue = make_queue()
        for _ in range(app.MAX_ABANDONED):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(queue.run(stuck), 0.05)
            assert len(queue._abandoned) == app.MAX_ABANDONED or await queue.run(answer) == b"answer"
        with pytest.raises(RequestError, match="are still running"):
            await queue.run(answer)
        end.set()
        while queue.busy:
            await asyncio.sleep(0.01)
        assert await queue.run(answer) == b"answer"  # the abandoned jobs have ended

    asyncio.run(several())


def test_libraries_that_catch_exceptions_are_stopped() -> None:
    def ask(explorer: Any) -> bytes:
        while True:
            try:
                explorer.check()
            except Exception:  # some libraries do this around hooks
                continue

    async def one() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(make_queue().run(ask), 0.2)

    assert not issubclass(StoppedError, Exception)
    asyncio.run(asyncio.wait_for(one(), 20))
