"""The course as a web application (Starlette).

GET  /                      the list of lessons; /NAME.html: a lesson
GET  /api/lessons/NAME      progress and results of its run
POST /api/lessons/NAME      train the run in a separate process
GET  /explore/NAME/         the explorer for the run
"""

import asyncio
import atexit
import contextlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import orjson
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from regard.course.lesson_training import forget_result, load_run, training_state
from regard.course.lessons import Lesson, find_lesson, lessons
from regard.course.pages import index_page, lesson_page, style
from regard.errors import RegardError
from regard.io import open_regular, refuse_links
from regard.server.access import AccessControl
from regard.server.app import LOCAL, make_app, send_text
from regard.server.explorer import Explorer
from regard.server.messages import error_response

TRAIN = "from regard.course.lesson_training import main; main()"
CONTROLS = """<p><button type="button" id="train">Train it</button> <span id="state" role="status"></span></p>
<progress id="progress" max="1" value="0" aria-label="Training" hidden></progress>
<ul id="words"></ul>
<p><a id="explore" href="explore/{name}/{fragment}" target="_blank" hidden>Open it in the explorer</a></p>"""


class TrainingProcesses:
    """The training processes of a course, one for each lesson."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, lesson: Lesson) -> None:
        """Train the run of a lesson, unless its training is already running."""
        if self.busy(lesson):
            return
        self.home.mkdir(parents=True, exist_ok=True)
        forget_result(lesson, self.home)
        argv = [sys.executable, "-P", "-c", TRAIN, str(self.home), lesson.name]
        refuse_links(self.home / lesson.name)
        file = self.home / f"{lesson.name}.log"
        file.unlink(missing_ok=True)
        with open_regular(file, "xb") as log:
            self.processes[lesson.name] = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def busy(self, lesson: Lesson) -> bool:
        """Return whether the training of a lesson's run is running."""
        process = self.processes.get(lesson.name)
        return process is not None and process.poll() is None

    def state(self, lesson: Lesson) -> dict[str, Any]:
        """Return the progress of a lesson's run, and the end of its log if training failed."""
        process = self.processes.get(lesson.name)
        failed = process is not None and process.poll() not in (None, 0)
        log = (self.home / f"{lesson.name}.log").read_text(errors="replace").strip()[-300:] if failed else ""
        return {**training_state(lesson, self.home), "busy": self.busy(lesson), "failed": log}

    def kill(self) -> None:
        """End all training processes."""
        for process in self.processes.values():
            with contextlib.suppress(OSError):
                process.kill()


def make_course_app(home: Path, *, hosts: Sequence[str] | None = LOCAL, token: str | None = None) -> Starlette:
    """Return the application; `home`: folder of the runs; `hosts` and `token` as in `AccessControl`."""
    processes = TrainingProcesses(home)

    async def training(request: Request) -> Response:
        lesson = find_lesson(request.path_params["name"])
        if request.method == "POST":
            processes.start(lesson)
        return Response(orjson.dumps(processes.state(lesson)), media_type="application/json")

    async def page(request: Request) -> Response:
        name = request.path_params.get("name", "index")
        if name == "index":
            return HTMLResponse(index_page())
        lesson = find_lesson(name)
        text = lesson.runs[0].input
        controls = CONTROLS.format(name=name, fragment="" if text is None else f"#{urlencode({'input': text})}")
        return HTMLResponse(lesson_page(lesson, see=controls, script="learn.js", home=home.absolute()))

    async def stylesheet(request: Request) -> Response:
        return Response(style(), media_type="text/css")

    async def failed(request: Request, error: Exception) -> Response:
        return error_response(404, str(error))

    app = Starlette(
        routes=[
            Route("/", page),
            Route("/learn.css", stylesheet),
            Route("/learn.js", send_text("regard.server", "page/learn.js", "text/javascript")),
            Route("/{name}.html", page),
            Route("/api/lessons/{name}", training, methods=["GET", "POST"]),
            *(Mount(f"/explore/{lesson.name}", _LessonExplorer(lesson, home)) for lesson in lessons()),
        ],
        middleware=[Middleware(AccessControl, hosts=hosts, token=token)],
        exception_handlers={RegardError: failed},
    )
    atexit.register(processes.kill)
    app.state.queues = []
    app.state.processes = processes
    return app


class _LessonExplorer:
    """The explorer for a lesson's run, which is loaded on the first request and reloaded after each training
    run."""

    def __init__(self, lesson: Lesson, home: Path) -> None:
        self.lesson, self.home = lesson, home
        self.loaded: tuple[int, Starlette] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            app = await asyncio.to_thread(self._app)
        except RegardError as error:
            await error_response(404, str(error))(scope, receive, send)
            return
        await app(scope, receive, send)

    def _app(self) -> Starlette:
        run = load_run(self.lesson, self.home)
        trained = (run.folder / "model.safetensors").stat().st_mtime_ns
        if self.loaded is None or self.loaded[0] != trained:
            back = (f"Lesson: {self.lesson.title}", f"../../{self.lesson.name}.html")
            self.loaded = trained, make_app(Explorer(run, back=back), hosts=None)
        return self.loaded[1]
