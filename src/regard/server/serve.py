"""Start the explorer or the course: open a socket, a server and a browser."""

from __future__ import annotations

import atexit
import ipaddress
import os
import signal
import socket
import sys
import webbrowser
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from regard.arguments import public
from regard.errors import MachineError, check_range
from regard.libraries import import_library
from regard.machine import one_thread
from regard.progress import stop_status_lines
from regard.training.trainer import delay_signals, exit_by_signal
from regard.viz.subject import ViewedSubject, check_comparable

if TYPE_CHECKING:
    from regard.server.app import RequestQueue

DEFAULT_PORT = 8137
ALL_INTERFACES = ("0.0.0.0", "::")


@public
def show(
    subject: ViewedSubject[Any],
    *,
    port: int | None = None,
    host: str = "127.0.0.1",
    browser: bool = True,
    compare_with: Sequence[ViewedSubject[Any]] = (),
) -> None:
    """Serve a page that shows the attention of a model, until interrupted.

    `port`: 1 to 65535; None for 8137, or any free port if 8137 is in use. `host`: the address to listen on. Other
    machines can reach the page only if `host` is not a loopback address, and only with the token in the printed
    address. The token is the value of the environment variable REGARD_TOKEN, or a random token. `browser`: open the
    page in a browser. `compare_with`: other models whose attention on the same inputs can be compared.

    Returns after Ctrl-C; other signals end the process as usual. Raises `InputError` if the extra `serve` is not
    installed, the token is unsuitable, or a model in `compare_with` has no matching layer, and `MachineError` if the
    address is not available.
    """
    from regard.server.explorer import Explorer

    check_port(port)
    check_comparable(subject, compare_with)
    check_server("the explorer")
    from regard.server.app import make_app

    explorer = Explorer(subject, compare_with)
    with one_thread():  # an explorer runs one input at a time, too small to gain from several threads
        serve(lambda **access: make_app(explorer, **access), subject.where, host, port, browser=browser)


def serve(make: Callable[..., Any], title: str, host: str, port: int | None, *, browser: bool) -> None:
    """Serve the application that `make` returns for a list of host names and a token."""
    from regard.server.access import make_token
    from regard.server.app import LOCAL
    from regard.server.http_server import Server

    token = None if is_this_machine(host) else make_token()
    with delay_signals() as signals, _listen(host, port) as listener:
        hosts = (*LOCAL, _url_host(host).lower()) if token is None else None
        app = make(hosts=hosts, token=token)
        shown = "127.0.0.1" if host in (*ALL_INTERFACES, "localhost") else _url_host(host)
        address = f"http://{shown}:{listener.getsockname()[1]}/{f'?token={token}' if token else ''}"
        stop_status_lines()
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
