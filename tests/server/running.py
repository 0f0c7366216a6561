"""An explorer as a process, and connections to it that say what no browser would."""

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import environ
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> str:
        """The one line that says what is wrong."""
        found = json.loads(self.body)
        assert list(found) == ["error"] and "\n" not in found["error"]
        return str(found["error"])


@contextmanager
def showing(
    *argv: str | Path, env: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start the explorer; yields its process and address."""
    command = [sys.executable, "-m", "regard", "show", *map(str, argv), "--no-browser"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**environ, **(env or {})}
    )
    try:
        assert process.stdout is not None
        address = re.search(r"http://\S+", process.stdout.readline())
        assert address is not None
        yield process, address[0]
    finally:
        process.kill()
        process.communicate()


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve an application in this process; yields its address."""
    from regard.server.server import Server

    stopped: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = Server(app, stopped)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        stopped.append(1)
        thread.join()


def connect(address: str, seconds: float = 30.0) -> socket.socket:
    """Open a connection."""
    found = urlsplit(address)
    assert found.hostname is not None and found.port is not None
    return socket.create_connection((found.hostname, found.port), timeout=seconds)


def request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """Return a request as it goes over the wire; `_` in a header's name stands for `-`."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {"host": "127.0.0.1", **({"content-length": str(len(body))} if body else {}), **given}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def asked(body: Any, path: str = "/api/attend", **headers: str) -> bytes:
    """Return a question."""
    return request("POST", path, json.dumps(body).encode(), content_type="application/json", **headers)


def send(address: str, given: bytes, seconds: float = 30.0) -> Answer:
    """Send bytes on a connection of their own, and read one answer."""
    with connect(address, seconds) as connection:
        connection.sendall(given)
        return receive(connection)


def receive(connection: socket.socket) -> Answer:
    """Read one answer from a connection; raises `ConnectionError` where it ends before."""
    read = bytearray()
    while True:
        while (end := read.find(b"\r\n\r\n")) < 0:
            read += _more(connection)
        lines = read[:end].decode("latin-1").split("\r\n")
        del read[: end + 4]
        if (status := int(lines[0].split(" ")[1])) >= 200:  # before, there is more to come
            break
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    length = int(headers.get("content-length", "0"))
    while len(read) < length:
        read += _more(connection)
    return Answer(status, headers, bytes(read[:length]))


def _more(connection: socket.socket) -> bytes:
    found = connection.recv(2**20)
    if not found:
        raise ConnectionError("the connection ended before its answer")
    return found


def memory(process: "subprocess.Popen[str]") -> float:
    """Return the megabytes that a process holds (Linux)."""
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * 4096 / 2**20
