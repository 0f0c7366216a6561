"""Opening the explorer: a socket, a server, a browser."""

import contextlib
import socket
import sys
import webbrowser
from typing import Any

from regard.errors import InputError, MachineError, check_range
from regard.inspection import Subject
from regard.serving.explorer import Explorer

USUAL_PORT = 8137
LOCAL = ("127.0.0.1", "localhost", "::1")
EVERYWHERE = ("0.0.0.0", "::")


def show(
    subject: Subject[Any], *, port: int | None = None, host: str = "127.0.0.1", browser: bool = True
) -> None:
    """Serve a page on which one sees what a subject attends to, until interrupted.

    `port`: 1 to 65535; None: 8137, or another one where that is taken. `host`: the address to listen on; others
    than this machine can reach the page only where that is another one. `browser`: open the page in one. Raises
    `InputError` where the extra `serve` is not installed, `MachineError` where nothing can listen there.
    """
    check_port(port)
    try:
        import regard.serving.app  # noqa: F401 (which brings the server)
    except ImportError:
        raise InputError("the explorer needs a server: pip install 'regard[serve]'") from None
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # one input at a time: more threads would only wait for each other
    try:
        _serve(Explorer(subject), host, port, browser=browser)
    finally:
        torch.set_num_threads(threads)


def _serve(explorer: Explorer, host: str, port: int | None, *, browser: bool) -> None:
    import uvicorn

    from regard.serving.app import make_app

    with _listening(host, port) as listening:
        shown = "127.0.0.1" if host in (*EVERYWHERE, "localhost") else host
        address = f"http://{shown}:{listening.getsockname()[1]}/"
        app = make_app(explorer) if host in LOCAL else make_app(explorer, hosts=("*",))
        sys.stdout.write(f"Showing {explorer.subject.where} at {address} (Ctrl-C ends it)\n")
        sys.stdout.flush()
        if browser:
            webbrowser.open(address)
        config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_keep_alive=30)
        with contextlib.suppress(KeyboardInterrupt):  # which is how one ends it
            uvicorn.Server(config).run(sockets=[listening])


def check_port(port: int | None) -> None:
    """Raise `InputError` for a port that does not exist."""
    if port is not None:
        check_range("port", port, 1, 65_535)


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
        except OSError as error:
            listening.close()
            if port is None and each:
                continue
            raise MachineError(f"cannot listen on {host} port {each}: {error.strerror}") from error
        return listening
    raise AssertionError("port 0 is always free")
