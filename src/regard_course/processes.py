"""Processes that run a learner's code: forks of a server for files, or of this process for objects in memory."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from regard.errors import MachineError

Descriptors = tuple[int, int, int]
"""Open files of a process: its output, the socket for its events, and the traceback of a crash."""
SOURCE = Path(__file__).parents[1]
"""Folder of the package, for processes that do not run in its environment."""


class Process(Protocol):
    """A running process."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit status (negative for a signal), or None while the process runs."""
        ...


Start = Callable[[dict[str, Any], Descriptors], Process]
"""Function that starts a process for a job."""


class ForkedProcess:
    """A fork of this process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.exit_status: int | None = None

    def poll(self) -> int | None:
        """Return the exit status (negative for a signal), or None while the process runs."""
        if self.exit_status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.exit_status = os.waitstatus_to_exitcode(status) if pid else None
        return self.exit_status


class ServedProcess:
    """A fork of a server's process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.pid = self._receive()
        self.exit_status: int | None = None

    def poll(self) -> int | None:
        """Return the exit status (negative for a signal), or None while the process runs."""
        if self.exit_status is None and self._connection.poll():
            self.exit_status = self._receive()
        return self.exit_status

    def _receive(self) -> int:
        try:
            return int(self._connection.recv())
        except (EOFError, ConnectionError) as error:
            raise MachineError("the process that runs your code was ended: try again") from error


class ForkServer:
    """Processes that fork for each file: one for files that use PyTorch and one for the others.

    Use it as `with ForkServer() as server: run_file(..., server)`. The processes start when they are needed.
    """

    def __init__(self) -> None:
        self._servers: dict[str, tuple[Connection, subprocess.Popen[bytes]]] = {}

    def __enter__(self) -> "ForkServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection, process in self._servers.values():
            connection.close()  # ends the process
            process.wait()
        self._servers.clear()

    def start(self, job: dict[str, Any], descriptors: Descriptors) -> Process:
        """Start a process that runs a learner's file."""
        uses_torch = re.search(rb"\btorch\b", Path(job["file"]).read_bytes())
        connection = self._connect("torch" if uses_torch else "")
        with socket.socket(fileno=os.dup(connection.fileno())) as channel:
            socket.send_fds(channel, [b"."], descriptors)
        connection.send(job)
        return ServedProcess(connection)

    def _connect(self, preload: str) -> Connection:
        if preload in self._servers:
            return self._servers[preload][0]
        ours, theirs = socket.socketpair()
        inherited = os.environ.get("PYTHONPATH")
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(SOURCE), *([inherited] if inherited else [])]),
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "TORCHDYNAMO_DISABLE": "1",  # compilers start processes, so functions run uncompiled
        }
        code = f"from regard_course.worker import serve; serve({theirs.fileno()}, {preload!r})"
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", code],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env=environment,
            )
        self._servers[preload] = Connection(ours.detach()), process
        return self._servers[preload][0]
