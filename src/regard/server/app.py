"""The explorer's HTTP interface (Starlette).

`PAGES` are its files, and `ENDPOINTS` its requests; docs/reference/explorer.md describes their fields, answers and
errors. Each route has its own queue (`RequestQueue`).

An answer is JSON, compressed with gzip if the client accepts it. For a client that accepts
application/octet-stream, an answer with packed weights is binary: the length of the JSON text (4 bytes,
little-endian), the text, and the weights; `packed` in the text is the start and the end of its weights.
"""

import asyncio
import contextlib
import gzip
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from importlib.resources import files
from queue import SimpleQueue
from typing import Any, NamedTuple

import msgspec
import numpy as np
import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.errors import RegardError
from regard.libraries import message_of
from regard.server.access import SHOWN, AccessControl
from regard.server.explorer import Explorer
from regard.server.messages import RequestError, call_method, error_response, make_body_type, read_request
from regard.viz.page import zlib_text

Job = Callable[[Explorer], Any]

STOP_SECONDS = 5.0  # for a cancelled job to stop; a library call cannot be interrupted and is abandoned
MAX_ABANDONED = 4  # per queue, since each abandoned job may occupy a core forever


class StoppedError(BaseException):
    """Raised in a cancelled job; derived from `BaseException`, so that libraries do not catch it."""


class RequestQueue:
    """Runs up to `parallel` jobs at once, in the order in which they arrive."""

    def __init__(self, explorer: Explorer, parallel: int) -> None:
        self._explorer = explorer
        self._slots = asyncio.Semaphore(parallel)
        self._idle: list[_Worker] = []
        self._workers: list[_Worker] = []
        self._abandoned: list[_Worker] = []

    @property
    def busy(self) -> bool:
        return any(worker.busy for worker in self._workers)

    async def run(self, job: Job) -> Any:
        """Wait for a free slot, run `job` and return its result; exceptions of the job propagate.

        A cancelled call leaves the queue, or stops the job and waits up to `STOP_SECONDS` until it has stopped.
        After a second cancellation, the call does not wait.
        """
        async with self._slots:
            self._idle += [worker for worker in self._abandoned if not worker.busy]
            self._abandoned = [worker for worker in self._abandoned if worker.busy]
            if len(self._abandoned) >= MAX_ABANDONED:
                raise RequestError(503, f"{MAX_ABANDONED} cancelled requests are still running: restart the explorer")
            if not self._idle:
                self._idle.append(_Worker(self._explorer))
                self._workers += self._idle
            worker = self._idle.pop()
            result = worker.start(job)
            try:
                return await asyncio.shield(result)
            except asyncio.CancelledError:
                worker.stop.set()
                await asyncio.wait([result], timeout=STOP_SECONDS)
                raise
            finally:
                if result.done():
                    result.exception()  # marks it as retrieved, or asyncio would log it
                (self._idle if result.done() else self._abandoned).append(worker)


class _Worker:
    """A thread with its own explorer, which runs jobs one after another.

    The thread is a daemon thread, so that a running model does not delay the end of the process. Threads of
    `concurrent.futures` would be joined at exit.
    """

    def __init__(self, explorer: Explorer) -> None:
        self.busy = False
        self.stop = threading.Event()
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._shared_explorer = explorer
        self._explorer: Explorer | None = None
        threading.Thread(target=self._run, name="explorer", daemon=True).start()

    def start(self, job: Job) -> "asyncio.Future[Any]":
        """Start a job and return its result as a future; the previous job must have ended."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Any] = loop.create_future()
        self.busy = True
        self.stop.clear()

        def call() -> None:
            try:
                self._check()
                self._explorer = self._explorer or self._shared_explorer.copy(self._check)
                end = partial(result.set_result, job(self._explorer))
            except BaseException as error:
                # A future cannot hold `StopIteration`, or a panic, which is not an `Exception`.
                failure = RequestError(500, f"the model failed: {message_of(error)}; try another input")
                held = isinstance(error, Exception) and not isinstance(error, StopIteration)
                end = partial(result.set_exception, error if held else failure)
            self.busy = False
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(end)

        self._calls.put(call)
        return result

    def _run(self) -> None:
        while True:
            self._calls.get()()

    def _check(self) -> None:
        if self.stop.is_set():
            raise StoppedError


BINARY = "application/octet-stream"
SMALL = 1000  # bytes of an answer up to which it is not compressed
FAST = 2  # level of compression of an answer
MAX_BODY = 256 * 1024  # bytes
MAX_PICTURE = 12 * 1024 * 1024  # bytes of a body with an image: 9 MiB in base64
BODY_SECONDS = 10.0  # for the body to arrive
MAX_WAITING = 256  # requests that wait for an answer
LOCAL = ("127.0.0.1", "localhost", "[::1]")
"""Host names of this machine; a page with another host name belongs to another site."""

PAGES = {
    "/": ("regard.server", "page/explorer.html", "text/html"),
    "/explorer.css": ("regard.server", "page/explorer.css", "text/css"),
    "/explorer.js": ("regard.viz", "built/explorer.js", "text/javascript"),
    "/view.js": ("regard.viz", "built/view.js", "text/javascript"),
}


class Endpoint(NamedTuple):
    """A route that calls a method of the explorer."""

    method: Callable[..., Any]
    parallel: int = 1  # requests answered at once
    also_get: bool = False  # whether a GET request without a body is accepted too
    max_body: int = MAX_BODY

    @property
    def body(self) -> type[msgspec.Struct] | None:
        """Type of the request's body; None for a GET request."""
        return make_body_type(self.method)


ENDPOINTS = {
    "/api/run": Endpoint(Explorer.about),
    "/api/attend": Endpoint(Explorer.attend),
    "/api/picture": Endpoint(Explorer.picture, max_body=MAX_PICTURE),
    "/api/layers": Endpoint(Explorer.layers),
    "/api/row": Endpoint(Explorer.row),
    "/api/explain": Endpoint(Explorer.explain),
    "/api/why": Endpoint(Explorer.why),
    "/api/next_tokens": Endpoint(Explorer.next_tokens),
    "/api/logit_lens": Endpoint(Explorer.logit_lens),
    "/api/logit_attribution": Endpoint(Explorer.logit_attribution),
    "/api/value_norms": Endpoint(Explorer.value_norms),
    "/api/tree": Endpoint(Explorer.tree),
    "/api/playback": Endpoint(Explorer.playback, parallel=4),
    "/api/importance": Endpoint(Explorer.importance, also_get=True),
    "/api/roles": Endpoint(Explorer.roles, also_get=True),
    "/api/samples": Endpoint(Explorer.samples),
    "/api/progress": Endpoint(Explorer.progress),
}


def make_app(explorer: Explorer, *, hosts: Sequence[str] | None = LOCAL, token: str | None = None) -> Starlette:
    """Return the application; `hosts` and `token` as in `AccessControl`."""
    queues = {path: RequestQueue(explorer, endpoint.parallel) for path, endpoint in ENDPOINTS.items()}
    places = asyncio.Semaphore(MAX_WAITING)

    def route(path: str, endpoint: Endpoint) -> Route:
        body = endpoint.body

        async def answer(request: Request) -> Response:
            content: msgspec.Struct | None = None
            if body is not None and request.method == "GET":
                content = body()
            elif body is not None:
                content = read_request(await _read_body(request, endpoint.max_body), body)
            if places.locked():  # a request that waited here too would hold its body in memory
                raise RequestError(429, "too many requests are waiting: try again in a moment")
            async with places:
                job = queues[path].run(
                    lambda copy: _encode(call_method(endpoint.method, copy, content), request.headers)
                )
                return await _run_while_connected(request, job)

        methods = ["GET"] if body is None else ["POST", "GET"] if endpoint.also_get else ["POST"]
        return Route(path, answer, methods=methods)

    app = Starlette(
        routes=[
            *(Route(path, send_text(*page)) for path, page in PAGES.items()),
            *(route(path, endpoint) for path, endpoint in ENDPOINTS.items()),
        ],
        middleware=[Middleware(AccessControl, hosts=hosts, token=token)],
        exception_handlers={RequestError: _rejected, RegardError: _rejected, HTTPException: _unknown_route},
    )
    app.router.redirect_slashes = False
    app.state.queues = list(queues.values())
    return app


async def _run_while_connected(request: Request, job: Coroutine[Any, Any, Response]) -> Response:
    """Return the result of `job`, which is cancelled if the client disconnects."""
    running = asyncio.ensure_future(job)
    disconnected = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((running, disconnected), return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise RequestError(408, "the client has disconnected")
        return running.result()
    finally:
        running.cancel()
        disconnected.cancel()
        await asyncio.gather(running, disconnected, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _encode(result: Any, accepted: Mapping[str, str]) -> Response:
    """Return a result as the module's docstring describes; `accepted`: headers of the request."""
    binary = BINARY in accepted.get("accept", "")
    parts: list[bytes] = []

    def plain(value: Any) -> Any:
        # orjson passes only arrays that are not contiguous; some recorded weights are not contiguous.
        if isinstance(value, np.ndarray):
            return value.tolist()
        if not binary:
            return zlib_text(value)
        start = sum(map(len, parts))
        parts.append(value)
        return [start, start + len(value)]

    text = orjson.dumps(result, default=plain, option=orjson.OPT_SERIALIZE_NUMPY)
    body = b"".join([len(text).to_bytes(4, "little"), text, *parts]) if parts else text
    headers = {"vary": "accept, accept-encoding"}
    if len(body) > SMALL and "gzip" in accepted.get("accept-encoding", ""):
        body = gzip.compress(body, FAST, mtime=0)
        headers["content-encoding"] = "gzip"
    return Response(body, headers=headers, media_type=BINARY if parts else "application/json")


async def _read_body(request: Request, limit: int) -> bytes:
    """Return the body of a request; raises `RequestError` as soon as the body is too large or late."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # browsers let pages of other sites send simpler types without asking first
        raise RequestError(415, f"content type {kind[:SHOWN] or 'none'!r} is not accepted: send application/json")
    too_large = RequestError(413, f"body is larger than {limit:,} bytes: send a smaller body")
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or len(length) > len(str(limit)) or int(length) > limit:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > limit:
                    raise too_large
    except TimeoutError:
        message = f"the body did not arrive within {BODY_SECONDS:g} seconds: send the body at once"
        raise RequestError(408, message) from None
    return bytes(body)


async def _rejected(request: Request, error: Exception) -> Response:
    status = error.status if isinstance(error, RequestError) else 422
    return error_response(status, str(error), {"retry-after": "1"} if status == 429 else None)


async def _unknown_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.scope["path"][:SHOWN]
    if error.status_code != 405:
        message = f"{path!r} does not exist: choose / or {', '.join(ENDPOINTS)}"
        return error_response(error.status_code, message)
    allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
    message = f"{request.method[:SHOWN]} is not accepted by {path!r}: send {allowed}"
    return error_response(405, message, {"allow": allowed})


def send_text(package: str, path: str, media_type: str) -> Callable[[Request], Any]:
    """Return a route handler that sends a file of a package."""
    content = files(package).joinpath(path).read_bytes()

    async def send(request: Request) -> Response:
        return Response(content, media_type=media_type)

    return send
