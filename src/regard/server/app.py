"""The explorer's HTTP interface (Starlette).

    GET  /                 the page, with its script, style and view
    GET  /api/run          what the run is
    POST /api/attend       {input, seed, interventions}: the prediction and records, and those of the original
    POST /api/picture      {name, content}: a PNG or JPEG file in base64, as an input from now on
    POST /api/row          the same with layer, head, step: one row of a long input, exactly
    POST /api/explain      the same with layer, head, output, key, temperature: how a weight came about
    POST /api/tree         {input, seed, interventions, beam}: what a search tries while it answers
    POST /api/playback     {input}: the same for each snapshot of the training
    GET  /api/importance   by how much the loss rises when a head is off
    GET  /api/roles        what each head does
    POST /api/samples      {layer, head, token, wrong_first}: unseen inputs that a head weighs most
    GET  /api/progress     how far these are, while they are worked out

Errors are `{"error": one line}` with a status: 400 for what is no JSON object or another machine's name, 401
without the token, 403 for a page elsewhere, 404 and 405 for what is not there, 408 for a body that does not come,
413 for one above `BODY` (a picture: `PICTURE`), 415 for another content type, 422 for what does not fit the run,
429 where `WAITING` questions wait already. Each route is a lane (`lanes.py`).
"""

import asyncio
from collections.abc import Callable, Sequence
from importlib.resources import files
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
from regard.server.access import SHOWN, Guard
from regard.server.explorer import Explorer
from regard.server.messages import (
    AttendRequest,
    ExplainRequest,
    PictureRequest,
    PlaybackRequest,
    RowRequest,
    SamplesRequest,
    TreeRequest,
    read_request,
)
from regard.server.refusing import RequestError, error_response
from regard.server.request_queue import RequestQueue
from regard.viz.page import modules

BODY = 256 * 1024
"""Bytes of a request's body, at most."""
PICTURE = 12 * 1024 * 1024
"""Bytes of a body that brings a picture, at most: 9 MiB in base64."""
BODY_SECONDS = 10.0
"""Time in which a body is to come."""
WAITING = 256
"""Questions that may wait for an answer."""
LOCAL = ("127.0.0.1", "localhost", "[::1]")
"""Names that a browser on this machine uses; another one would be a page elsewhere that reaches in."""

PAGES = {
    "/": ("regard.server", "page/explorer.html", "text/html"),
    "/explorer.js": ("regard.server", "page/explorer.js", "text/javascript"),
    "/tree.js": ("regard.server", "page/tree.js", "text/javascript"),
    "/samples.js": ("regard.server", "page/samples.js", "text/javascript"),
    "/tour.js": ("regard.server", "page/tour.js", "text/javascript"),
    "/explorer.css": ("regard.server", "page/explorer.css", "text/css"),
    **{f"/view/{name}": ("regard.viz", f"js/{name}", "text/javascript") for name in modules()},
}


class Question(NamedTuple):
    """What one asks of an explorer under a path."""

    ask: Callable[..., Any]
    body: type[msgspec.Struct] | None
    """The shape of what is sent; None where nothing is."""
    most: int
    """How many are answered at once."""
    largest: int = BODY
    """Bytes of what is sent, at most."""


ENDPOINTS = {
    "/api/run": Question(Explorer.about, None, 1),
    "/api/attend": Question(Explorer.attend, AttendRequest, 1),
    "/api/picture": Question(Explorer.picture, PictureRequest, 1, PICTURE),
    "/api/row": Question(Explorer.row, RowRequest, 1),
    "/api/explain": Question(Explorer.explain, ExplainRequest, 1),
    "/api/tree": Question(Explorer.tree, TreeRequest, 1),
    "/api/playback": Question(Explorer.playback, PlaybackRequest, 4),
    "/api/importance": Question(Explorer.importance, None, 1),
    "/api/roles": Question(Explorer.roles, None, 1),
    "/api/samples": Question(Explorer.samples, SamplesRequest, 1),
    "/api/progress": Question(Explorer.progress, None, 1),
}


def make_app(explorer: Explorer, *, hosts: Sequence[str] | None = LOCAL, token: str | None = None) -> Starlette:
    """Return the application; `hosts`: names under which it answers, None for any. `token`: what a request has
    to show; None for nothing."""
    lanes = {path: RequestQueue(explorer, question.most) for path, question in ENDPOINTS.items()}
    waiting = 0

    def answering(path: str, question: Question) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            nonlocal waiting
            given: tuple[Any, ...] = ()
            if question.body is not None:
                given = (read_request(await _body(request, question.largest), question.body),)
            if waiting >= WAITING:
                raise RequestError(429, "too many requests are waiting: try again in a moment")
            waiting += 1
            try:
                working = lanes[path].run(lambda mine: _encoded(question.ask(mine, *given)))
                return Response(await _while_there(request, working), media_type="application/json")
            finally:
                waiting -= 1

        return answer

    app = Starlette(
        routes=[
            *(Route(path, _file(*page)) for path, page in PAGES.items()),
            *(
                Route(path, answering(path, question), methods=["GET" if question.body is None else "POST"])
                for path, question in ENDPOINTS.items()
            ),
        ],
        middleware=[Middleware(Guard, hosts=hosts, token=token)],
        exception_handlers={RequestError: _refused, RegardError: _misfit, HTTPException: _not_there},
    )
    app.router.redirect_slashes = False
    app.state.lanes = list(lanes.values())
    return app


async def _while_there(request: Request, working: Any) -> bytes:
    """Return what comes of `working`, which is cancelled when the client goes away."""
    asked = asyncio.ensure_future(working)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((asked, gone), return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            raise RequestError(408, "the client has gone")
        found: bytes = asked.result()
        return found
    finally:
        asked.cancel()
        gone.cancel()
        await asyncio.gather(asked, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _encoded(found: Any) -> bytes:
    # `default` is asked for views with gaps, which a mechanism may record as its weights.
    return orjson.dumps(found, default=np.ndarray.tolist, option=orjson.OPT_SERIALIZE_NUMPY)


async def _body(request: Request, largest: int) -> bytes:
    """Return a request's body; raises `RequestError`, as soon as it is seen to be too large or too slow."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # which a page elsewhere could not send without asking first
        raise RequestError(415, f"content type {kind[:SHOWN] or 'none'!r} is not taken: send application/json")
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or len(length) > len(str(largest)) or int(length) > largest:
        raise RequestError(413, f"body is larger than {largest:,} bytes: send less")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > largest:
                    raise RequestError(413, f"body is larger than {largest:,} bytes: send less")
    except TimeoutError:
        raise RequestError(408, f"body did not come within {BODY_SECONDS:g} seconds: send it at once") from None
    return bytes(body)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return error_response(error.status, str(error), {"retry-after": "1"} if error.status == 429 else None)


async def _misfit(request: Request, error: Exception) -> Response:
    return error_response(422, str(error))


async def _not_there(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.scope["path"][:SHOWN]
    if error.status_code == 405:
        allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
        return error_response(
            405, f"{request.method[:SHOWN]} is not taken by {path!r}: send {allowed}", {"allow": allowed}
        )
    return error_response(error.status_code, f"{path!r} is not there: choose / or {', '.join(QUESTIONS)}")


def _file(package: str, path: str, kind: str) -> Callable[[Request], Any]:
    content = files(package).joinpath(path).read_bytes()

    async def send(request: Request) -> Response:
        return Response(content, media_type=kind)

    return send
