"""Run the explorer as a process or in this process, and send it raw requests."""

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from regard.cli import main
from tests.processes import Started, start


class Answer(NamedTuple):
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> str:
        """The error message, in one line."""
        data = json.loads(self.body)
        assert list(data) == ["error"] and "\n" not in data["error"]
        return str(data["error"])


@contextmanager
def showing(
    *argv: str | Path, env: Mapping[str, str] | None = None, program: Callable[[], Any] = main
) -> Iterator[tuple[Started, str]]:
    """Start the explorer in another process; yield its process and address."""
    with TemporaryDirectory() as output:
        started = start(Path(output), "show", *argv, "--no-browser", env=env, program=program)
        try:
            while not (address := re.search(r"http://\S+(?=\s)", started.out)):
                assert started.process.is_alive(), started.err
                time.sleep(0.02)
            yield started, address[0]
        finally:
            started.process.kill()
            started.process.join()


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve an application in this process; yield its address."""
    from regard.server.http_server import Server

    signals: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = Server(app, signals)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        signals.append(1)
        thread.join()


def connect(address: str, seconds: float = 30.0) -> socket.socket:
    """Open a connection."""
    url = urlsplit(address)
    assert url.hostname is not None and url.port is not None
    return socket.create_connection((url.hostname, url.port), timeout=seconds)


def request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """Return the bytes of a request; `_` in the name of a header becomes `-`."""
    renamed = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {"host": "127.0.0.1", **({"content-length": str(len(body))} if body else {}), **renamed}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def asked(body: Any, path: str = "/api/attend", **headers: str) -> bytes:
    """Return a POST request with a JSON body."""
    return request("POST", path, json.dumps(body).encode(), content_type="application/json", **headers)


def send(address: str, data: bytes, seconds: float = 30.0) -> Answer:
    """Send bytes on a new connection and read one response."""
    with connect(address, seconds) as connection:
        connection.sendall(data)
        return receive(connection)


def receive(connection: socket.socket) -> Answer:
    """Read one response; raises `ConnectionError` if the connection ends before the response."""
    read = bytearray()
    while True:
        while (end := read.find(b"\r\n\r\n")) < 0:
            read += _more(connection)
        lines = read[:end].decode("latin-1").split("\r\n")
        del read[: end + 4]
        if (status := int(lines[0].split(" ")[1])) >= 200:  # 1xx responses precede the final one
            break
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    length = int(headers.get("content-length", "0"))
    while len(read) < length:
        read += _more(connection)
    return Answer(status, headers, bytes(read[:length]))


def _more(connection: socket.socket) -> bytes:
    data = connection.recv(2**20)
    if not data:
        raise ConnectionError("the connection ended before the response")
    return data


def memory(process: Started) -> float:
    """Return the resident memory of a process in megabytes (Linux)."""
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * 4096 / 2**20
