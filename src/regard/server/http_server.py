"""The HTTP server: uvicorn with timeouts for slow clients, a connection limit, and an immediate shutdown.

uvicorn by default waits without a limit for the head of a request, for the rest of a rejected body, and for a client
that does not read its response. uvicorn's `limit_concurrency` rejects requests while too many connections are open, so
idle connections would block all requests. This server rejects connections beyond the limit instead.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.server.messages import error_body

CONNECTIONS = 400  # below the usual limit of open files of a process
IDLE_SECONDS = 30  # for a connection without a request
HEAD_SECONDS = 10.0  # for the head of a request
LINGER_SECONDS = 5.0  # for the rest of a rejected request: clients that send a body read the response afterwards
READ_SECONDS = 120.0  # for a client to read a response that fills the buffer


class Protocol(H11Protocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: Any) -> None:
        """Start the timeout for the head, or reject the connection if too many connections are open."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            self._reject(429, "too many connections are open: try again in a moment")
        else:
            self._start_timer("head", HEAD_SECONDS, self._reject_late_head)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        self._stop_timers("head", "linger", "read")
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process data, unless the connection is closing."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_timers("head")
        elif "head" not in self._timers:  # the first bytes of the next request
            self._stop_timers("linger")
            self._start_timer("head", HEAD_SECONDS, self._reject_late_head)

    def on_response_complete(self) -> None:
        """Continue with the next request; limit the time for the rest of a rejected request."""
        if self.conn.their_state is h11.SEND_BODY:
            self._start_timer("linger", LINGER_SECONDS, self.transport.abort)
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, even if the client has not read its last response."""
        super().timeout_keep_alive_handler()
        self._start_timer("linger", LINGER_SECONDS, self.transport.abort)

    def pause_writing(self) -> None:
        """Start the timeout for the client's reading, because the buffer is full."""
        super().pause_writing()
        self._start_timer("read", READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the timeout for the client to read."""
        super().resume_writing()
        self._stop_timers("read")

    def send_400_response(self, msg: str) -> None:
        """Reject data that is not HTTP."""
        self._reject(400, "this is not an HTTP/1.1 request: open the address in a browser")

    def shutdown(self) -> None:
        """Close the connection after the current response."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def _reject_late_head(self) -> None:
        self._reject(408, f"the request did not arrive within {HEAD_SECONDS:g} seconds: send the request at once")

    def _reject(self, status: int, message: str) -> None:
        """Close the connection, with an error response unless the application has started one."""
        complete = self.cycle is None or self.cycle.response_complete
        if complete or not self.cycle.response_started:
            body = error_body(message)
            head = f"HTTP/1.1 {status} Refused\r\ncontent-type: application/json\r\nconnection: close\r\n"
            self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        if not complete:  # tell the application that the client has disconnected
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.conn.send_failed()
        self.transport.close()
        self._start_timer("linger", LINGER_SECONDS, self.transport.abort)

    def _start_timer(self, name: str, seconds: float, callback: Callable[[], object]) -> None:
        self._stop_timers(name)
        self._timers[name] = self.loop.call_later(seconds, callback)

    def _stop_timers(self, *names: str) -> None:
        for name in names:
            if (handle := self._timers.pop(name, None)) is not None:
                handle.cancel()


class Server(uvicorn.Server):
    """A server that runs until `signals` contains a signal; running requests do not delay the shutdown.

    Errors of a client are reported only to it. With REGARD_DEBUG=1, they are also logged on standard error.
    """

    def __init__(self, app: Starlette, signals: Sequence[int]) -> None:
        self._quiet = not os.environ.get("REGARD_DEBUG")
        config = uvicorn.Config(
            app,
            http=Protocol,
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical" if self._quiet else "debug",
            access_log=False,
            server_header=False,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=0,
        )
        super().__init__(config)
        self._signals = signals

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start serving; errors inside asyncio are ignored unless REGARD_DEBUG is set."""
        if self._quiet:
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        await super().startup(sockets)

    async def on_tick(self, counter: int) -> bool:
        return bool(self._signals) or await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in list(self.server_state.tasks):
            task.cancel()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
