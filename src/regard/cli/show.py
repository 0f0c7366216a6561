"""`regard show RUN`: the explorer, a page on which one types an input and sees what a run attends to."""

import contextlib
import socket
import sys
import webbrowser
from dataclasses import dataclass
from pathlib import Path

from regard.api import SAVEPATH, load
from regard.cli.parsing import parse_of_run
from regard.errors import InputError, MachineError, check_range

PROG = "regard show"
DESCRIPTION = (
    "Open a page on which you type an input and see prediction, truth and attention at once, switch heads off, "
    "and change weights. RUN: a task's name, or a run's folder. Needs the extra serve. Ctrl-C ends it."
)
SHOWN_PORT = 8137


@dataclass(frozen=True, kw_only=True)
class ShowFlags:
    """All flags of the command."""

    port: int | None = None
    """Port of the page, 1 to 65535. None: 8137, or another one where that is taken."""
    host: str = "127.0.0.1"
    """Address to listen on. Others than this machine can reach the page only if you name another one, such as
    0.0.0.0: it asks nobody for a password."""
    browser: bool = True
    """Open the page in a browser."""
    savepath: Path = Path(SAVEPATH)
    """Folder of runs."""


def run(argv: list[str]) -> None:
    """Serve the page until interrupted."""
    name, flags = parse_of_run(ShowFlags(), argv, prog=PROG, description=DESCRIPTION)
    if flags.port is not None:
        check_range("port", flags.port, 1, 65_535)
    try:
        import uvicorn

        from regard.serving import make_app
        from regard.serving.explorer import Explorer
    except ImportError:
        raise InputError("the explorer needs a server: pip install 'regard[serve]'") from None
    import torch

    explorer = Explorer(load(name, savepath=flags.savepath))
    torch.set_num_threads(1)  # one input at a time: more threads would only wait for each other
    with _listening(flags.host, flags.port) as listening:
        port = listening.getsockname()[1]
        local = flags.host in ("127.0.0.1", "localhost", "::1")
        address = f"http://{'127.0.0.1' if flags.host in ('0.0.0.0', '::', 'localhost') else flags.host}:{port}/"
        app = make_app(explorer) if local else make_app(explorer, hosts=("*",))
        sys.stdout.write(f"Showing {explorer.run.folder} at {address} (Ctrl-C ends it)\n")
        sys.stdout.flush()
        if flags.browser:
            webbrowser.open(address)
        config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_keep_alive=30)
        with contextlib.suppress(KeyboardInterrupt):  # which is how one ends it
            uvicorn.Server(config).run(sockets=[listening])


def _listening(host: str, port: int | None) -> socket.socket:
    """Return a socket that listens; raises `MachineError` where the port is taken or the host is not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for each in (SHOWN_PORT, 0) if port is None else (port,):
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
