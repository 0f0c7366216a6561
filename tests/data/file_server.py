"""A local HTTP server whose connections break on request."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@dataclass
class FileServer:
    """The files of a server, and its requests."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)  # The content of each path
    breaks: list[int] = field(default_factory=list)
    """The number of bytes after which the connection breaks, for each of the next responses."""
    requests: list[str] = field(default_factory=list)  # The paths of all requests


@contextmanager
def run_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """Run a server on a port of 127.0.0.1."""
    state = FileServer()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            state.requests.append(self.path)
            content = state.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: state.breaks.pop(0)] if state.breaks else content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.address = f"http://127.0.0.1:{server.server_port}"
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
