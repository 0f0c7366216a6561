"""The course in the explorer's server (Starlette).

GET  /                      the lessons; /NAME.html one of them
GET  /api/lessons/NAME      how far its run has come, and what it came to
POST /api/lessons/NAME      train it, in a process of its own
GET  /explore/NAME/         the explorer on its run
"""

import asyncio
import atexit
import contextlib
import subprocess
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import orjson
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from regard.course.lesson_training import forget_result, load_run, training_state
from regard.course.lessons import Lesson, find_lesson, lessons
from regard.course.pages import index_page, lesson_page, style
from regard.errors import RegardError
from regard.io import open_regular, refuse_links
from regard.server.app import LOCAL, make_app
from regard.server.explorer import Explorer
from regard.server.guard import Guard
from regard.server.refusing import refusal

TRAINING = "from regard.course.lesson_training import main; main()"
SEE = """<p><button type="button" id="train">Train it</button> <span id="state" role="status"></span></p>
<progress id="progress" max="1" value="0" aria-label="Training" hidden></progress>
<ul id="words"></ul>
<p><a id="explore" href="explore/{name}/{asked}" target="_blank" hidden>Look at it in the explorer</a></p>"""


class Classroom:
    """The trainings of a course, one process for each lesson that is being tried."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.trainings: dict[str, subprocess.Popen[bytes]] = {}

    def begin(self, lesson: Lesson) -> None:
        """Train a lesson's run, unless that is being done."""
        if self.busy(lesson):
            return
        self.home.mkdir(parents=True, exist_ok=True)
        forget_result(lesson, self.home)
        argv = [sys.executable, "-P", "-c", TRAINING, str(self.home), lesson.name]
        refuse_links(self.home / lesson.name)
        file = self.home / f"{lesson.name}.log"
        file.unlink(missing_ok=True)
        with open_regular(file, "xb") as log:
            self.trainings[lesson.name] = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def busy(self, lesson: Lesson) -> bool:
        """Whether a lesson's run is being trained."""
        training = self.trainings.get(lesson.name)
        return training is not None and training.poll() is None

    def state(self, lesson: Lesson) -> dict[str, Any]:
        """Return how far a lesson has come."""
        training = self.trainings.get(lesson.name)
        failed = training is not None and training.poll() not in (None, 0)
        why = (self.home / f"{lesson.name}.log").read_text(errors="replace").strip()[-300:] if failed else ""
        return {**training_state(lesson, self.home), "busy": self.busy(lesson), "failed": why}

    def end(self) -> None:
        """End all trainings."""
        for training in self.trainings.values():
            with contextlib.suppress(OSError):
                training.kill()


def make_classroom(home: Path, *, hosts: Sequence[str] | None = LOCAL, token: str | None = None) -> Starlette:
    """Return the application; `home`: where the runs are kept; `hosts` and `token` as in `make_app`."""
    room = Classroom(home)

    async def ask(request: Request) -> Response:
        lesson = find_lesson(request.path_params["name"])
        if request.method == "POST":
            room.begin(lesson)
        return Response(orjson.dumps(room.state(lesson)), media_type="application/json")

    async def page(request: Request) -> Response:
        name = request.path_params["name"]
        if name == "index":
            return _html(index_page())
        lesson = find_lesson(name)
        asked = lesson.runs[0].input
        place = "" if asked is None else f"#{urlencode({'input': asked})}"
        see = SEE.format(name=name, asked=place)
        return _html(lesson_page(lesson, see=see, script="learn.js", home=home.absolute()))

    async def first(request: Request) -> Response:
        return _html(index_page())

    async def failed(request: Request, error: Exception) -> Response:
        return refusal(404, str(error))

    script = files("regard.server").joinpath("page/learn.js").read_text(encoding="utf-8")
    app = Starlette(
        routes=[
            Route("/", first),
            Route("/learn.css", _sending(style(), "text/css")),
            Route("/learn.js", _sending(script, "text/javascript")),
            Route("/{name}.html", page),
            Route("/api/lessons/{name}", ask, methods=["GET", "POST"]),
            *(Mount(f"/explore/{each.name}", _Exploring(each, home)) for each in lessons()),
        ],
        middleware=[Middleware(Guard, hosts=hosts, token=token)],
        exception_handlers={RegardError: failed},
    )
    atexit.register(room.end)
    app.state.lanes = []
    app.state.room = room
    return app


class _Exploring:
    """The explorer on a lesson's run, loaded when somebody looks, and again when it was trained anew."""

    def __init__(self, lesson: Lesson, home: Path) -> None:
        self.lesson, self.home = lesson, home
        self.made: tuple[Any, Starlette] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            app = await asyncio.to_thread(self._app)
        except RegardError as error:
            await refusal(404, str(error))(scope, receive, send)
            return
        await app(scope, receive, send)

    def _app(self) -> Starlette:
        run = load_run(self.lesson, self.home)
        trained = (run.folder / "model.safetensors").stat().st_mtime_ns
        if self.made is None or self.made[0] != trained:
            back = (f"Lesson: {self.lesson.title}", f"../../{self.lesson.name}.html")
            self.made = trained, make_app(Explorer(run, back=back), hosts=None)
        return self.made[1]


def _html(text: str) -> Response:
    return Response(text, media_type="text/html")


def _sending(text: str, kind: str) -> Any:
    async def send(request: Request) -> Response:
        return Response(text, media_type=kind)

    return send
