"""The page of a puzzle as a web application (Starlette).

GET  /                                   the page; /write.js, /learn.css, /notes.js: its files
GET  /api/program?text=ABC&version=...   the part that follows the file, unless it has this version
POST /api/train                          train a model beside the compiled one
"""

import asyncio
import threading
from collections.abc import Sequence

import orjson
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from regard.server.access import AccessControl
from regard.server.app import LOCAL, send_text
from regard.server.serve import check_port, check_server, serve
from regard_course.pages import read_asset
from regard_course.puzzles.writing_page import WritingPage


def make_write_app(
    page: WritingPage, *, hosts: Sequence[str] | None = LOCAL, token: str | None = None
) -> Starlette:
    """Return the application; `hosts` and `token` as in `AccessControl`."""

    async def index(request: Request) -> Response:
        return HTMLResponse(page.static())

    async def asset(request: Request) -> Response:
        name = request.url.path[1:]
        return Response(read_asset(name), media_type="text/css" if name.endswith("css") else "text/javascript")

    async def program(request: Request) -> Response:
        text = request.query_params.get("text", "")[: page.puzzle.longest + 1]
        version = page.version(text)
        if version == request.query_params.get("version"):
            return Response(orjson.dumps({"version": version, "html": None}), media_type="application/json")
        content = await asyncio.to_thread(page.live, text)
        return Response(orjson.dumps({"version": version, "html": content}), media_type="application/json")

    async def train(request: Request) -> Response:
        threading.Thread(target=page.train, daemon=True).start()
        return Response(status_code=204)

    app = Starlette(
        routes=[
            Route("/", index),
            Route("/learn.css", asset),
            Route("/notes.js", asset),
            Route("/write.js", send_text("regard.server", "page/write.js", "text/javascript")),
            Route("/api/program", program),
            Route("/api/train", train, methods=["POST"]),
        ],
        middleware=[Middleware(AccessControl, hosts=hosts, token=token)],
    )
    app.state.queues = []
    return app


def write(page: WritingPage, *, port: int | None = None, host: str = "127.0.0.1", browser: bool = True) -> None:
    check_port(port)
    check_server("the page")
    serve(lambda **access: make_write_app(page, **access), page.path.name, host, port, browser=browser)
