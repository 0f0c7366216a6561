"""Start the explorer or the course: open a socket, a server and a browser."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ipaddress
import os
import signal
import socket
import sys
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.arguments import public
from regard.errors import MachineError, check_range
from regard.libraries import import_library
from regard.server.messages import error_body
from regard.training.signals import delay_signals, exit_by_signal
from regard.viz.subject import Subject, check_comparable

if TYPE_CHECKING:
    from regard.server.app import RequestQueue

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

    Errors caused by a client are reported only to this client. With REGARD_DEBUG=1, client errors are also logged
    on standard error.
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


DEFAULT_PORT = 8137
ALL_INTERFACES = ("0.0.0.0", "::")


@public
def show(
    subject: Subject[Any],
    *,
    port: int | None = None,
    host: str = "127.0.0.1",
    browser: bool = True,
    beside: Sequence[Subject[Any]] = (),
) -> None:
    """Serve a page that shows the attention of a model, until interrupted.

    `port`: 1 to 65535; None for 8137, or any free port if 8137 is in use. `host`: the address to listen on.
    Other machines can reach the page only if `host` is not a loopback address, and only with the token in the
    printed address. The token is the value of the environment variable REGARD_TOKEN, or a random token.
    `browser`: open the page in a browser. `beside`: other models whose attention on the same inputs can be
    compared.

    Returns after Ctrl-C; other signals end the process as usual. Raises `InputError` if the extra `serve` is not
    installed, the token is unsuitable, or a model in `beside` has no matching layer, and `MachineError` if the
    address is not available.
    """
    from regard.server.explorer import Explorer

    check_port(port)
    check_comparable(subject, beside)
    check_server("the explorer")
    import torch

    from regard.server.app import make_app

    explorer = Explorer(subject, beside)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # an explorer runs one input at a time, too small to gain from several threads
    try:
        serve(lambda **access: make_app(explorer, **access), subject.where, host, port, browser=browser)
    finally:
        torch.set_num_threads(threads)


def serve(make: Callable[..., Any], title: str, host: str, port: int | None, *, browser: bool) -> None:
    """Serve the application that `make` returns for a list of host names and a token."""
    from regard.server.access import make_token
    from regard.server.app import LOCAL
    from regard.server.serve import Server

    token = None if is_this_machine(host) else make_token()
    with delay_signals() as signals, _listen(host, port) as listener:
        hosts = (*LOCAL, _url_host(host).lower()) if token is None else None
        app = make(hosts=hosts, token=token)
        shown = "127.0.0.1" if host in (*ALL_INTERFACES, "localhost") else _url_host(host)
        address = f"http://{shown}:{listener.getsockname()[1]}/{f'?token={token}' if token else ''}"
        sys.stdout.write(f"Showing {title} at {address} (Ctrl-C ends it)\n")
        sys.stdout.flush()
        if browser:
            webbrowser.open(address)
        Server(app, signals).run(sockets=[listener])
    ended_by = signals[0] if signals else signal.SIGINT
    # A model that still runs in a thread would delay the end of the process, or crash the process during
    # finalization.
    atexit.register(_exit_if_busy, app.state.queues, 128 + ended_by)
    if ended_by != signal.SIGINT:
        exit_by_signal(ended_by)


def check_server(purpose: str) -> None:
    """Raise `InputError` if a library of the extra `serve` is missing or broken."""
    for module in ("orjson", "starlette.applications", "uvicorn.protocols.http.h11_impl"):
        import_library(module, purpose, "serve")


def check_port(port: int | None) -> None:
    """Raise `InputError` for an invalid port."""
    if port is not None:
        check_range("port", port, 1, 65_535)


def is_this_machine(host: str) -> bool:
    """Return whether only this machine can reach an address to listen on.

    >>> is_this_machine("127.0.0.1"), is_this_machine("0.0.0.0")
    (True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _exit_if_busy(queues: Sequence[RequestQueue], status: int) -> None:
    if any(queue.busy for queue in queues):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


def _listen(host: str, port: int | None) -> socket.socket:
    """Return a listening socket; raises `MachineError` if the address is not available."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in (DEFAULT_PORT, 0) if port is None else (port,):
        # asyncio disables Nagle's algorithm, a delay of 40 ms, only for sockets with an explicit IPPROTO_TCP.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, candidate))
            listener.listen(1024)  # at once, since the browser may connect before the server runs
        except (OSError, TypeError, UnicodeError, ValueError) as error:
            listener.close()
            if port is None and candidate and isinstance(error, OSError):
                continue
            reason = getattr(error, "strerror", None) or "no such address"
            raise MachineError(f"cannot listen on {host!r} port {candidate}: {reason}") from error
        return listener
    raise AssertionError("port 0 is always free")
