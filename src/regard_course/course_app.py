"""The course as a web application (Starlette).

GET  /                             the list of lessons; /NAME.html: a lesson; /exercise-NAME.html: an exercise
GET  /NUMBER_NAME.ipynb            a lesson as a notebook
GET  /api/lessons/NAME             progress and results of its run
POST /api/lessons/NAME             train the run in a separate process
GET  /api/lessons/NAME/commands    the commands in its text
POST /api/lessons/NAME/commands/N  run command N, or the lesson's code if N is 0; GET: its output; DELETE: end it
GET  /api/progress                 what the learner has done
PUT  /api/progress/NAME/VERDICT    what the learner says about the prediction of a lesson
POST /api/exercises/NAME           check the learner's file; GET: the report; PUT: write the file to start from
GET  /explore/NAME/                the explorer for the run
"""

import asyncio
import atexit
import contextlib
import os
import shlex
import subprocess
import sys
from base64 import b64encode
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

from regard.errors import InputError, RegardError, unknown_choice
from regard.io import open_regular, refuse_links, write_new
from regard.server.access import AccessControl
from regard.server.app import LOCAL, make_app, send_text
from regard.server.explorer import Explorer
from regard.server.messages import error_response
from regard.server.serve import check_port, check_server, serve
from regard_course.exercises.course import find_exercise
from regard_course.lesson_runs import forget_result, is_unmeasured, load_run, training_state
from regard_course.lessons.lesson import Lesson, find_lesson, lessons
from regard_course.pages import (
    FOLDER,
    build_notebooks,
    exercise_page,
    fill,
    index_page,
    lesson_page,
    read_exercise,
    stub_name,
)
from regard_course.progress import begin_progress, read_progress, record_verdict
from regard_course.translated import ENGLISH

RUN_LESSON = "from regard_course.lesson_runs import main; main()"
MAX_OUTPUT = 20_000
"""Number of characters of a process's output that a page shows."""


class CourseProcesses:
    """The processes of a course: trainings, commands of the lessons, and checks of exercises. A page names a
    process, it never sends code or a command: the commands are those of the lessons' texts."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, arguments: Sequence[str]) -> None:
        """Run Python with these arguments, unless the process of this name is already running."""
        if self.busy(name):
            return
        self.home.mkdir(parents=True, exist_ok=True)
        file = self._log(name)
        file.unlink(missing_ok=True)
        with open_regular(file, "xb") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-P", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "NO_COLOR": "1", "COLUMNS": "100"},
            )

    def train(self, lesson: Lesson) -> None:
        """Train the run of a lesson, unless its training is already running."""
        if not self.busy(lesson.name):
            self.home.mkdir(parents=True, exist_ok=True)
            forget_result(lesson, self.home)
            refuse_links(self.home / lesson.name)
            self.start(lesson.name, ["-c", RUN_LESSON, "train", str(self.home), lesson.name])

    def busy(self, name: str) -> bool:
        process = self.processes.get(name)
        return process is not None and process.poll() is None

    def training_state(self, lesson: Lesson) -> dict[str, Any]:
        """Return the progress of a lesson's run, and the end of its log after an error. A new run is measured."""
        process = self.processes.get(lesson.name)
        failed = process is not None and process.poll() not in (None, 0)
        if not failed and not self.busy(lesson.name) and is_unmeasured(lesson, self.home):
            self.start(lesson.name, ["-c", RUN_LESSON, "measure", str(self.home), lesson.name])
        log = self._log(lesson.name).read_text(errors="replace").strip()[-300:] if failed else ""
        return {**training_state(lesson, self.home), "busy": self.busy(lesson.name), "failed": log}

    def state(self, name: str) -> dict[str, Any]:
        """Return whether a process is running, its exit status or None, and the end of its output."""
        process = self.processes.get(name)
        output = self._log(name).read_text(errors="replace") if process else ""
        return {"busy": self.busy(name), "status": process and process.poll(), "output": output[-MAX_OUTPUT:]}

    def control(self, method: str, name: str, arguments: Sequence[str]) -> dict[str, Any]:
        """Start a process (POST), end it (DELETE), and return its state."""
        if method == "POST":
            self.start(name, arguments)
        if method == "DELETE" and self.busy(name):
            self.processes[name].terminate()
        return self.state(name)

    def kill(self) -> None:
        for process in self.processes.values():
            with contextlib.suppress(OSError):
                process.kill()

    def _log(self, name: str) -> Path:
        return self.home / f"{name}.log"


def asset_routes(*names: str) -> list[Route]:
    """Return the routes of styles and scripts of the course."""
    kinds = {".css": "text/css", ".js": "text/javascript"}
    return [Route(f"/{name}", send_text("regard_course", name, kinds[Path(name).suffix])) for name in names]


def _page_routes(home: Path, language: str) -> list[Route]:
    """Return the routes of pages, notebooks, styles and scripts."""

    async def page(request: Request) -> Response:
        name = request.path_params.get("name", "index")
        if name == "index":
            return HTMLResponse(index_page(language, script="course-commands.js"))
        if name.startswith("exercise-"):
            item = find_exercise(name.removeprefix("exercise-"))
            return HTMLResponse(exercise_page(item.name, language, script="course-commands.js"))
        lesson = find_lesson(name, language)
        see, script = "", "course-commands.js"
        if lesson.runs:
            text = lesson.runs[0].input
            fragment = "" if text is None else f"#{urlencode({'input': text})}"
            see, script = fill("training", lesson.say, address=f"{lesson.name}/{fragment}"), "learn.js"
        return HTMLResponse(lesson_page(lesson, see=see, script=script, home=home.absolute()))

    async def notebook(request: Request) -> Response:
        built = build_notebooks(Path(), home.absolute(), language)
        notebooks = {path.name: content for path, content in built.items()}
        content = notebooks.get(f"{request.path_params['name']}.ipynb")
        if content is None:
            raise unknown_choice("notebook", request.path_params["name"], list(notebooks))
        return Response(content, media_type="application/x-ipynb+json")

    return [
        Route("/", page),
        *asset_routes("learn.css", "notes.js", "learn.js", "course-commands.js"),
        Route("/{name}.html", page),
        Route("/{name}.ipynb", notebook),
    ]


def make_course_app(
    home: Path, language: str = ENGLISH, *, hosts: Sequence[str] | None = LOCAL, token: str | None = None
) -> Starlette:
    """Return the application; `home`: folder of the runs; `hosts` and `token` as in `AccessControl`."""
    processes = CourseProcesses(home)
    begin_progress(home)

    async def progress(request: Request) -> Response:
        if request.method == "PUT":
            record_verdict(home, request.path_params["lesson"], request.path_params["verdict"])
        return send_json(read_progress(home))

    async def training(request: Request) -> Response:
        lesson = find_lesson(request.path_params["name"], language)
        if not lesson.runs:
            raise InputError(f"lesson {lesson.name} trains no model: run its commands instead")
        if request.method == "POST":
            processes.train(lesson)
        return send_json(processes.training_state(lesson))

    async def commands(request: Request) -> Response:
        lesson = find_lesson(request.path_params["name"])
        return send_json(lesson.commands(home.absolute()))

    async def command(request: Request) -> Response:
        lesson, number = find_lesson(request.path_params["name"]), request.path_params["number"]
        texts, name = lesson.commands(home.absolute()), f"{lesson.name}-{number}"
        if number > len(texts):
            raise InputError(f"lesson {lesson.name} has {len(texts)} commands: choose 0 (its code) to {len(texts)}")
        arguments = ["-m", *shlex.split(texts[number - 1])] if number else ["-c", lesson.code]
        state = processes.control(request.method, name, arguments)
        if state["status"] == 0 and "--output" in arguments:  # a figure
            figure = Path(arguments[arguments.index("--output") + 1]).read_bytes()
            state["picture"] = f"data:image/svg+xml;base64,{b64encode(figure).decode()}"
        return send_json(state)

    async def exercise(request: Request) -> Response:
        item = find_exercise(request.path_params["name"])
        file = Path(FOLDER) / stub_name(item)
        if request.method == "PUT" and not file.exists():
            write_new({file: read_exercise(item.name, language).exercise.stub.encode()})
        if request.method != "POST" or file.exists():
            arguments = ["-m", "regard", "check", str(file), item.name, "--savepath", str(home.absolute())]
            arguments += ["--language", language]
            processes.control(request.method, f"check-{item.name}", arguments)
        return send_json({**processes.state(f"check-{item.name}"), "file": str(file), "exists": file.exists()})

    async def failed(request: Request, error: Exception) -> Response:
        return error_response(404, str(error))

    app = Starlette(
        routes=[
            *_page_routes(home, language),
            Route("/api/progress", progress),
            Route("/api/progress/{lesson}/{verdict}", progress, methods=["PUT"]),
            Route("/api/lessons/{name}", training, methods=["GET", "POST"]),
            Route("/api/lessons/{name}/commands", commands),
            Route("/api/lessons/{name}/commands/{number:int}", command, methods=["GET", "POST", "DELETE"]),
            Route("/api/exercises/{name}", exercise, methods=["GET", "POST", "PUT", "DELETE"]),
            *(
                Mount(f"/explore/{lesson.name}", _LessonExplorer(lesson, home))
                for lesson in lessons(language)
                if lesson.runs
            ),
        ],
        middleware=[Middleware(AccessControl, hosts=hosts, token=token)],
        exception_handlers={RegardError: failed},
    )
    atexit.register(processes.kill)
    app.state.queues = []
    app.state.processes = processes
    return app


def send_json(value: Any) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")


class _LessonExplorer:
    """The explorer for a lesson's run, which is loaded on the first request and after each training."""

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
            back = (f"{self.lesson.say('Lesson')}: {self.lesson.title}", f"../../{self.lesson.name}.html")
            self.loaded = trained, make_app(Explorer(run, back=back), hosts=None)
        return self.loaded[1]


def teach(
    home: Path, language: str = ENGLISH, *, port: int | None = None, host: str = "127.0.0.1", browser: bool = True
) -> None:
    """Serve the course until interrupted. `home`: folder of its runs; other parameters: see `show`."""
    check_port(port)
    check_server("the course")
    serve(lambda **access: make_course_app(home, language, **access), "the course", host, port, browser=browser)
