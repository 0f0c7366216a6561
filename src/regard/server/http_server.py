"""HTTP/1.1 as uvicorn speaks it, with an end to patience: who sends or takes nothing does not stay.

uvicorn waits for the head of a request, and for the rest of what it has refused, as long as a client likes.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.server.refusing import error_body

CONNECTIONS = 400
"""At once, at most; below the number of files that a process may usually have open."""
HEAD_SECONDS = 10.0
"""Time in which the head of a request is to come."""
LINGER_SECONDS = 5.0
"""Time for which what was refused may still be sent, so that the client comes to read why."""
TAKE_SECONDS = 120.0
"""Time in which an answer is to be taken, once it piles up."""


class _Patience:
    """Something that happens after a while, unless it is stopped."""

    _timer: asyncio.TimerHandle | None = None

    def begin(self, seconds: float, then: Callable[[], object]) -> None:
        """Wait for so long from now on."""
        self.end()
        self._timer = asyncio.get_running_loop().call_later(seconds, then)

    def end(self) -> None:
        """Wait no longer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    @property
    def lasts(self) -> bool:
        """Whether it is being waited for."""
        return self._timer is not None


class Protocol(H11Protocol):
    """One connection."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._head, self._rest, self._taking = _Patience(), _Patience(), _Patience()

    def connection_made(self, transport: Any) -> None:
        """Begin; or refuse, where there are too many."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            self._refuse(429, "too many connections are open: try again in a moment")
        else:
            self._head.begin(HEAD_SECONDS, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        for patience in (self._head, self._rest, self._taking):
            patience.end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read, unless the connection is being closed."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._head.end()
        elif not self._head.lasts:  # the next request has begun to come
            self._rest.end()
            self._head.begin(HEAD_SECONDS, self._head_is_late)

    def on_response_complete(self) -> None:
        """Go on with the next request; the rest of one that was refused may come for a while."""
        if self.conn.their_state is h11.SEND_BODY:
            self._rest.begin(LINGER_SECONDS, self.transport.abort)
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Close what nobody uses, also where the last answer was never taken."""
        super().timeout_keep_alive_handler()
        self._rest.begin(LINGER_SECONDS, self.transport.abort)

    def pause_writing(self) -> None:
        """The answer piles up."""
        super().pause_writing()
        self._taking.begin(TAKE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """The answer has been taken."""
        super().resume_writing()
        self._taking.end()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP."""
        self._refuse(400, "this is no HTTP/1.1 request: open the address in a browser")

    def shutdown(self) -> None:
        """Close at once, or after the answer that is being made."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def _head_is_late(self) -> None:
        self._refuse(408, f"the request did not come within {HEAD_SECONDS:g} seconds: send it at once")

    def _refuse(self, status: int, message: str) -> None:
        """Close; with an answer of our own, unless the application has begun one."""
        answered = self.cycle is None or self.cycle.response_complete
        if answered or not self.cycle.response_started:
            body = error_body(message)
            head = f"HTTP/1.1 {status} Refused\r\ncontent-type: application/json\r\nconnection: close\r\n"
            self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        if not answered:  # whatever is at work on it need not answer
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.conn.send_failed()
        self.transport.close()
        self._rest.begin(LINGER_SECONDS, self.transport.abort)
