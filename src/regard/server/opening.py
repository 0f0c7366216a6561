"""Opening the explorer: a socket, a server, a browser."""

from __future__ import annotations

import atexit
import ipaddress
import os
import signal
import socket
import sys
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard import server
from regard.errors import MachineError, check_range
from regard.libraries import import_library
from regard.server.tokens import make_token
from regard.training.signals import delay_signals, exit_by_signal
from regard.viz import Subject
from regard.viz.alike import check_beside

if TYPE_CHECKING:
    from regard.server.explorer import Explorer
    from regard.server.lanes import Lane

USUAL_PORT = 8137
EVERYWHERE = ("0.0.0.0", "::")


def show(
    subject: Subject[Any],
    *,
    port: int | None = None,
    host: str = "127.0.0.1",
    browser: bool = True,
    beside: Sequence[Subject[Any]] = (),
) -> None:
    """Serve a page on which one sees what a subject attends to, until interrupted.

    `port`: 1 to 65535; None: 8137, or another one where that is taken. `host`: the address to listen on; others
    than this machine can reach the page only where that is another one, and only by the address with a token
    that is printed: that of the environment variable REGARD_TOKEN, or one that is drawn. `browser`: open the
    page in one. `beside`: others that answer the same inputs, to be looked at beside it. Raises `InputError`
    where the extra `serve` is not installed, a token cannot be used or none of another's layers can stand beside
    one, `MachineError` where nothing can listen there. Returns after Ctrl-C; other signals end the process as
    usual.
    """
    check_port(port)
    check_beside(subject, beside)
    check_server("the explorer")
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # one input at a time: more threads would only wait for each other
    try:
        _serve(server.Explorer(subject, beside), host, port, browser=browser)
    finally:
        torch.set_num_threads(threads)


def teach(home: Path, *, port: int | None = None, host: str = "127.0.0.1", browser: bool = True) -> None:
    """Serve the course, whose runs are kept under `home`, until interrupted; the rest is as in `show`."""
    check_port(port)
    check_server("the course")
    from regard.server.classroom import make_classroom

    _listen(lambda **who: make_classroom(home, **who), "the course", host, port, browser=browser)


def _serve(explorer: Explorer, host: str, port: int | None, *, browser: bool) -> None:
    """Listen and answer until a signal comes."""
    from regard.server.app import make_app

    _listen(lambda **who: make_app(explorer, **who), explorer.subject.where, host, port, browser=browser)


def _listen(make: Callable[..., Any], what: str, host: str, port: int | None, *, browser: bool) -> None:
    """Serve the application that `make` returns for the names and the token that it is to answer to."""
    from regard.server.app import LOCAL
    from regard.server.server import Server

    token = None if is_this_machine(host) else make_token()
    with delay_signals() as stopped, _listening(host, port) as listening:
        names = (*LOCAL, _in_address(host).lower()) if token is None else None
        app = make(hosts=names, token=token)
        shown = "127.0.0.1" if host in (*EVERYWHERE, "localhost") else _in_address(host)
        address = f"http://{shown}:{listening.getsockname()[1]}/{f'?token={token}' if token else ''}"
        sys.stdout.write(f"Showing {what} at {address} (Ctrl-C ends it)\n")
        sys.stdout.flush()
        if browser:
            webbrowser.open(address)
        Server(app, stopped).run(sockets=[listening])
    ended_by = stopped[0] if stopped else signal.SIGINT
    # A model that is still at work, in a thread, holds up no process that ends, nor tears it when it does.
    atexit.register(_leave_if_busy, app.state.lanes, 128 + ended_by)
    if ended_by != signal.SIGINT:
        exit_by_signal(ended_by)


def check_server(what: str) -> None:
    """Raise `InputError` where a library of the extra serve is missing or broken."""
    for module in ("orjson", "starlette.applications", "uvicorn.protocols.http.h11_impl"):
        import_library(module, what, "serve")


def check_port(port: int | None) -> None:
    """Raise `InputError` for a port that does not exist."""
    if port is not None:
        check_range("port", port, 1, 65_535)


def is_this_machine(host: str) -> bool:
    """Whether only this machine can reach an address to listen on."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _in_address(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _leave_if_busy(lanes: Sequence[Lane], status: int) -> None:
    if any(lane.busy for lane in lanes):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


def _listening(host: str, port: int | None) -> socket.socket:
    """Return a socket that listens; raises `MachineError` where the port is taken or the host is not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for each in (USUAL_PORT, 0) if port is None else (port,):
        # Named TCP, for only then does asyncio send answers at once, and not 40 ms later.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, each))
            listening.listen(1024)  # at once, for the browser may be faster than the server
        except (OSError, TypeError, UnicodeError, ValueError) as error:
            listening.close()
            if port is None and each and isinstance(error, OSError):
                continue
            reason = getattr(error, "strerror", None) or "no such address"
            raise MachineError(f"cannot listen on {host!r} port {each}: {reason}") from error
        return listening
    raise AssertionError("port 0 is always free")
