"""The explorer's HTTP interface (Starlette).

    GET  /                 the page, with its script, style and view
    GET  /api/run          what the run is
    POST /api/attend       {input, seed, interventions}: the prediction and records, and those of the original
    POST /api/playback     {input}: the same for each snapshot of the training
    GET  /api/importance   by how much the loss rises when a head is off

Errors are `{"error": one line}` with a status: 400 for what is no JSON object, 411 and 413 for a body without
length or above `BODY`, 415 for another content type, 422 for what does not fit the run, 503 where `WAITING`
requests wait already. One request works at a time, for interventions are made in the one model; the others wait
their turn.
"""

import asyncio
import json
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import numpy as np
import orjson
from anyio import to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.errors import InputError
from regard.inspection.bundle import modules
from regard.serving.explorer import Explorer

BODY = 256 * 1024
"""Bytes of a request's body, at most."""
WAITING = 256
"""Requests that may wait for their turn."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}
LOCAL = ("127.0.0.1", "localhost", "[::1]")
"""Names that a browser on this machine uses; another one would be a page elsewhere that reaches in."""

PAGES = {
    "/": ("regard.serving", "page/explorer.html", "text/html"),
    "/explorer.js": ("regard.serving", "page/explorer.js", "text/javascript"),
    "/tour.js": ("regard.serving", "page/tour.js", "text/javascript"),
    "/explorer.css": ("regard.serving", "page/explorer.css", "text/css"),
    **{f"/view/{name}": ("regard.inspection", f"view/{name}", "text/javascript") for name in modules()},
}


class RefusedError(Exception):
    """A request that is not answered; `status` says why to programs, the message to people."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def make_app(explorer: Explorer, *, hosts: tuple[str, ...] = LOCAL) -> Starlette:
    """Return the application; `hosts`: names under which it answers, "*" for any."""
    turn = asyncio.Lock()
    waiting = 0

    async def work(ask: Callable[..., Any], *given: Any) -> Response:
        """Wait for the turn, and ask the run in a thread, so that others are told to wait meanwhile."""
        nonlocal waiting
        if waiting >= WAITING:
            raise RefusedError(503, "too many requests are waiting: try again in a moment")
        waiting += 1
        try:
            async with turn:
                found = await to_thread.run_sync(lambda: _encoded(ask(*given)))
        except InputError as error:
            raise RefusedError(422, str(error)) from error
        finally:
            waiting -= 1
        return Response(found, media_type="application/json")

    async def about(request: Request) -> Response:
        return JSONResponse(explorer.about())

    async def attend(request: Request) -> Response:
        return await work(explorer.attend, await _body(request))

    async def playback(request: Request) -> Response:
        return await work(explorer.playback, await _body(request))

    async def importance(request: Request) -> Response:
        return await work(explorer.importance)

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, RefusedError)
        headers = {"retry-after": "1"} if error.status == 503 else None
        return JSONResponse({"error": str(error)}, error.status, headers)

    return Starlette(
        routes=[
            *(Route(path, _file(*page)) for path, page in PAGES.items()),
            Route("/api/run", about),
            Route("/api/attend", attend, methods=["POST"]),
            Route("/api/playback", playback, methods=["POST"]),
            Route("/api/importance", importance),
        ],
        middleware=[
            Middleware(_Headers),
            Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False),
        ],
        exception_handlers={RefusedError: refused},
    )


def _encoded(found: Any) -> bytes:
    # `default` is asked for views with gaps, which a mechanism may record as its weights.
    return orjson.dumps(found, default=np.ndarray.tolist, option=orjson.OPT_SERIALIZE_NUMPY)


async def _body(request: Request) -> dict[str, Any]:
    """Return a request's JSON object; raises `RefusedError`, as soon as a body is seen to be too large."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # which a page elsewhere could not send without asking first
        raise RefusedError(415, f"content type {kind or 'none'!r} is not taken: send application/json")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY:
            raise RefusedError(413, f"body is larger than {BODY:,} bytes")
    try:
        found = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise RefusedError(400, "body is not a JSON object")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _file(package: str, path: str, kind: str) -> Callable[[Request], Any]:
    content = files(package).joinpath(path).read_bytes()

    async def send(request: Request) -> Response:
        return Response(content, media_type=kind)

    return send


class _Headers:
    """Adds to every response what a browser is to keep to."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *added]
            await send(message)

        await self.app(scope, receive, sending)
