"""Lanes: whatever a question does, the next one is answered."""

import asyncio
import threading
from typing import Any

import pytest

from regard.server import lanes
from regard.server.refusing import RequestError
from regard.server.request_queue import RequestQueue, StoppedError
from tests.test_libraries import PANICS, SLOW_PATTERN


class Asked:
    """What a lane needs of an explorer."""

    def apart(self, check: Any) -> "Asked":
        self.check = check
        return self


def lane() -> RequestQueue:
    return RequestQueue(Asked(), 1)  # type: ignore[arg-type]


def panics(explorer: Any) -> bytes:
    SLOW_PATTERN.pre_tokenize_str(PANICS)
    return b"never"


def fails(error: BaseException) -> Any:
    def ask(explorer: Any) -> bytes:
        raise error

    return ask


def answer(explorer: Any) -> bytes:
    return b"answer"


@pytest.mark.parametrize("ask", [panics, fails(StopIteration()), fails(SystemExit(2)), fails(GeneratorExit())])
def test_what_is_no_exception_ends_one_question(ask: Any) -> None:
    async def both() -> None:
        line = lane()
        with pytest.raises(RequestError, match="the model failed: ") as caught:
            await asyncio.wait_for(line.run(ask), 20)
        assert caught.value.status == 500 and "\n" not in str(caught.value)
        assert await asyncio.wait_for(line.run(answer), 20) == b"answer"

    asyncio.run(both())


@pytest.mark.parametrize("error", [MemoryError(), RecursionError("deep")])
def test_errors_of_a_question_are_its_own(error: Exception) -> None:
    async def both() -> None:
        line = lane()
        with pytest.raises(type(error)):
            await asyncio.wait_for(line.run(fails(error)), 20)
        assert await asyncio.wait_for(line.run(answer), 20) == b"answer"

    asyncio.run(both())


def test_a_question_that_never_ends_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "GRACE", 0.05)
    end = threading.Event()

    def stuck(explorer: Any) -> bytes:
        end.wait(60)
        return b"late"

    async def several() -> None:
        line = lane()
        for _ in range(lanes.MOST_STUCK):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(line.run(stuck), 0.05)
            assert len(line._stuck) == lanes.MOST_STUCK or await line.run(answer) == b"answer"
        with pytest.raises(RequestError, match="never ended"):
            await line.run(answer)
        end.set()
        while line.busy:
            await asyncio.sleep(0.01)
        assert await line.run(answer) == b"answer"  # they have ended after all

    asyncio.run(several())


def test_a_library_that_catches_exceptions_does_not_go_on_when_stopped() -> None:
    def ask(explorer: Any) -> bytes:
        while True:
            try:
                explorer.check()
            except Exception:  # as some do with whatever a hook raises
                continue

    async def one() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(lane().run(ask), 0.2)

    assert not issubclass(StoppedError, Exception)
    asyncio.run(asyncio.wait_for(one(), 20))
