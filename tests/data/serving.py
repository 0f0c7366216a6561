"""A server on this machine whose connections break when they are told to."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@dataclass
class Serving:
    """What is served, and what was asked for."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    """From path to content."""
    answers: dict[str, bytes] = field(default_factory=dict)
    """From a part of a query to what it is answered with."""
    tag: str = '"one"'
    """The mark of what is served now."""
    breaks: list[int] = field(default_factory=list)
    """Of the next answers, after how many bytes each breaks off."""
    asked: list[str] = field(default_factory=list)
    """Paths of the files fetched."""
    ranges: list[str | None] = field(default_factory=list)
    """From where, in each of these."""


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    """Serve on a port of 127.0.0.1."""
    served = Serving()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, *, body: bool) -> None:
            path, _, query = self.path.partition("?")
            content = next((text for part, text in served.answers.items() if query and part in query), None)
            if content is None and path not in served.files:
                self.send_error(404)
                return
            content = served.files[path] if content is None else content
            begin, asked = 0, self.headers["Range"]
            if body:
                served.asked.append(path)
                served.ranges.append(asked)
            if asked and self.headers["If-Range"] == served.tag:
                begin = int(asked.removeprefix("bytes=").removesuffix("-"))
            self.send_response(416 if begin >= len(content) > 0 else 206 if begin else 200)
            span = f"{begin}-{len(content) - 1}" if begin < len(content) else "*"
            self.send_header("Content-Range", f"bytes {span}/{len(content)}")
            self.send_header("ETag", served.tag)
            rest = content[begin:]
            self.send_header("Content-Length", str(len(rest)))
            self.end_headers()
            if body:
                self.wfile.write(rest[: served.breaks.pop(0)] if served.breaks else rest)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.address = f"http://127.0.0.1:{server.server_port}"
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
