"""The page of a puzzle, which follows the learner's file. The page names a text, and never sends code."""

import asyncio
import html
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from regard.errors import InputError
from regard.models.base import TaskModel
from regard.server.access import AccessControl
from regard.server.app import LOCAL
from regard.server.serve import check_port, check_server, serve
from regard_course.course_app import asset_routes, send_json
from regard_course.pages import MARKDOWN, make_page
from regard_course.program_tables import WrittenProgram
from regard_course.puzzles.models import (
    LEAST_SIMILARITY,
    STEPS,
    CompiledPuzzle,
    HeadMatch,
    compile_puzzle,
    match_heads,
    show_place,
    train_beside,
)
from regard_course.puzzles.puzzle import Puzzle, show_answer
from regard_course.puzzles.verdict import AnswersError, PuzzleReport, answers_of, check_program, load_program
from regard_course.sandbox import ForkServer
from regard_course.translated import ENGLISH
from regard_lab.programs.language import Expression

CELL = 22
"""Side of a cell of a heatmap in pixels."""
BLUE, GREEN = "var(--blue, #1a5fb4)", "var(--green, #26805a)"


class WritingPage:
    """The state of a puzzle's page: the file as it was last read, and the models."""

    def __init__(self, path: Path, puzzle: Puzzle, server: ForkServer) -> None:
        self.path, self.puzzle, self._server = path, puzzle, server
        self._lock = threading.Lock()
        self._changed = -1
        self.program: WrittenProgram | None = None
        self.report: PuzzleReport | None = None
        self.trouble = ""
        self.compiled: CompiledPuzzle | None = None
        self.trained: tuple[TaskModel, list[HeadMatch]] | None = None
        self.progress: float | None = None
        """Fraction of the training that is done, None while nothing is trained."""

    def version(self, text: str) -> str:
        changed = self.path.stat().st_mtime_ns if self.path.exists() else 0
        return f"{changed} {text} {self.progress} {self.trained is not None}"

    def static(self) -> str:
        """Return the page without the part that changes."""
        puzzle, hints = self.puzzle, self.puzzle.hints
        closed = "".join(
            f"<details><summary>{heading}</summary>\n{MARKDOWN.render(hint)}</details>\n"
            for heading, hint in zip(("Hint 1", "Hint 2", "Hint 3", "A solution"), hints, strict=True)
        )
        answers = [show_answer(value) for value in puzzle.solve(puzzle.example)]
        body = (
            f"<header><h1><small>Puzzle {puzzle.number}</small> {html.escape(puzzle.title.capitalize())}</h1>"
            f"</header>\n<main>"
            f"<p>{html.escape(puzzle.sentences)}</p>\n{_table([('text', puzzle.example), ('answer', answers)])}"
            f"<p>Write in <code>{html.escape(str(self.path))}</code>. When you save it, this page changes.</p>\n"
            f'<p><label>Text <input id="text" value="{html.escape(puzzle.example)}" '
            f'maxlength="{puzzle.longest}" autocomplete="off" spellcheck="false"></label> '
            f"<small>{html.escape(puzzle.texts)}</small></p>\n"
            f'<div id="live" aria-live="polite">reading …</div>\n<h2>Hints</h2>\n{closed}</main>'
        )
        return make_page(f"{puzzle.name} · Regard", body, ENGLISH, script="write.js")

    def live(self, text: str) -> str:
        """Return the HTML of the part that follows the file, for a text."""
        with self._lock:
            self._read()
            parts = [self._verdict()]
            if self.program is not None and self._fits(text):
                parts += [self._values(self.program, text), self._heatmaps(self.program, text)]
            elif self.program is not None:
                parts.append(f'<p class="wrong">The text does not fit. {html.escape(self.puzzle.texts)}</p>')
            if self.compiled is not None and self._fits(text):
                parts.append(self._models(self.compiled, text))
            return "\n".join(parts)

    def train(self) -> None:
        """Train the model beside the compiled one, and match their heads."""
        compiled = self.compiled
        if compiled is None or self.progress is not None:
            return

        def show(metrics: dict[str, float]) -> None:
            self.progress = metrics["step"] / STEPS

        self.progress = 0.0
        try:
            model = train_beside(compiled, progress=show)
            self.trained = (model, match_heads(compiled, model)) if compiled is self.compiled else None
        finally:
            self.progress = None

    def _read(self) -> None:
        """Check the file if it has changed."""
        changed = self.path.stat().st_mtime_ns if self.path.exists() else 0
        if changed == self._changed:
            return
        self._changed = changed
        self.program, self.report, self.trouble, self.compiled, self.trained = None, None, "", None, None
        try:
            self.program = load_program(self.path, self.puzzle.alphabet, self.puzzle.longest, self._server)
            self.report = check_program(self.program, self.puzzle)
            if self.report.right:
                self.compiled = compile_puzzle(self.puzzle, self.program)
        except InputError as error:
            self.trouble = str(error)

    def _fits(self, text: str) -> bool:
        return 0 < len(text) <= self.puzzle.longest and set(text) <= set(self.puzzle.alphabet)

    def _verdict(self) -> str:
        if self.report is None:
            return f'<p class="wrong">{html.escape(self.trouble)}</p>'
        if self.report.right:
            return f'<p class="right">✓ Right for all {self.report.inputs} inputs.</p>'
        report = self.report
        rows = [(report.text_label, report.text), ("right answer", report.expected)]
        rows += [("your answer", report.given)] if report.given else []
        words = [report.trouble] if report.trouble else []
        items = "".join(f"<li>{html.escape(str(mistake))}</li>" for mistake in [*words, *report.mistakes])
        missing = "" if items else "<p>None of the known mistakes gives these answers.</p>"
        return (
            f'<p class="wrong">✗ Wrong: {report.correct} of {report.inputs} inputs are right.</p>'
            f"{_table(rows)}<ul>{items}</ul>{missing}"
        )

    def _values(self, program: WrittenProgram, text: str) -> str:
        """Return a table with the values of each expression that has a name."""
        rows: list[tuple[str, Sequence[str]]] = [("text", text)]
        for name, part in program.named.items():
            if isinstance(part, Expression):
                try:
                    rows.append((name, answers_of(program, part, self.puzzle, text)))
                except AnswersError as error:
                    rows.append((name, [str(error)]))
        solution = [show_answer(value) for value in self.puzzle.solve(text)] if text in self.puzzle.expected else []
        return f"<h2>Values at each step</h2>\n{_table([*rows, ('right answer', solution)])}"

    def _heatmaps(self, program: WrittenProgram, text: str) -> str:
        evaluation, figures = self.puzzle.evaluation(text), []
        for name, selector in program.selectors.items():
            weights = np.zeros((len(text), len(text)))
            try:
                for step, chosen in enumerate(evaluation.selected(selector)):
                    weights[step, chosen] = 1.0
            except (InputError, TypeError):
                continue
            line = "" if " in line " in name else f"line {program.lines[selector]}"
            figures.append(_figure(name, line, _heatmap(weights, text, text)))
        note = "<p>Rows are queries, columns are keys: a blue key is selected.</p>"
        return f'<h2>Selectors</h2>\n{note}<div class="maps">{"".join(figures)}</div>' if figures else ""

    def _models(self, compiled: CompiledPuzzle, text: str) -> str:
        """Return the compiled model, and the trained model beside it."""
        model, total = compiled.compiled.model, len(self.puzzle.inputs)
        size = sum(parameter.numel() for parameter in model.parameters())
        begin = (
            f"<h2>The program as a model</h2>\n<p>Your program is compiled to the weights of a model with "
            f"{size:,} parameters. It is right for {compiled.count_right(model)} of {total} inputs. Each of your "
            f'selectors is a head. The column "^" is a step before the text: a head that selects nothing attends '
            f"to it, and a head that counts steps measures with it.</p>"
        )
        if self.trained is None:
            state = "" if self.progress is None else f"training: {self.progress:.0%}"
            disabled = "" if self.progress is None else " disabled"
            maps = compiled.attention(model, text)
            figures = [
                _figure(name, show_place(place), _heatmap(maps[place], text, f"^{text}"))
                for place, name in compiled.heads.items()
            ]
            return (
                f'{begin}<div class="maps">{"".join(figures)}</div>\n<p>A model with as many layers and heads '
                f'can learn the task from examples. Does it find your selectors?</p>\n<p><button type="button" '
                f'id="train"{disabled}>Train a model</button> <span>{state}</span></p>'
            )
        other, matches = self.trained
        own, learned = compiled.attention(model, text), compiled.attention(other, text)
        pairs = []
        for match in matches:
            pictures = [
                _heatmap(own[match.head], text, f"^{text}"),
                _heatmap(learned[match.trained], text, f"^{text}", color=GREEN),
            ]
            verdict = "matches" if match.matches else "no head matches; the nearest is"
            words = f"{verdict} {show_place(match.trained)}: similarity {match.similarity:.2f}"
            pairs.append(_figure(match.selector, f"{words} (uniform attention {match.uniform:.2f})", *pictures))
        return (
            f"{begin}<p>The trained model is right for {compiled.count_right(other)} of {total} inputs. Left, in "
            f"blue: the head of your selector. Right, in green: the trained head with the most similar attention "
            f"over all inputs. From a similarity of {LEAST_SIMILARITY} it matches.</p>"
            f'<div class="maps">{"".join(pairs)}</div>'
        )


def _table(rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Return a table whose rows have a name and a value for each step."""
    lines = (
        f'<tr><th scope="row">{html.escape(name)}</th>'
        + "".join(f"<td>{html.escape(value)}</td>" for value in values)
        + "</tr>"
        for name, values in rows
    )
    return f'<table class="steps">{"".join(lines)}</table>'


def _heatmap(weights: Any, rows: Sequence[str], columns: Sequence[str], *, color: str = BLUE) -> str:
    """Return the picture of attention weights (Tq, Tk) as SVG: cells that are more opaque for larger weights."""

    def text(x: float, y: float, name: str, anchor: str) -> str:
        attributes = f'x="{x:.1f}" y="{y + 3.85:.1f}" font-size="11" text-anchor="{anchor}" fill="currentColor"'
        return f"<text {attributes}>{html.escape(name)}</text>"

    shapes = [text(20 + (number + 0.5) * CELL, 11, name, "middle") for number, name in enumerate(columns)]
    for row, line in enumerate(weights):
        shapes.append(text(14, 20 + (row + 0.5) * CELL, rows[row], "end"))
        shapes += [
            f'<rect x="{20 + column * CELL:.1f}" y="{20 + row * CELL:.1f}" width="{CELL:.1f}" '
            f'height="{CELL:.1f}" rx="3" fill="{color}" fill-opacity="{0.62 * min(max(weight, 0), 1):.2f}" '
            f'stroke="{color}" stroke-opacity=".55"/>'
            for column, weight in enumerate(line.tolist())
        ]
    height, width = (CELL * len(side) + 24 for side in (rows, columns))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" viewBox="0 0 {width} {height}" width="{width}" '
        'role="img" font-family="system-ui, sans-serif" '
        f'aria-label="attention: rows are queries, columns are keys">{"".join(shapes)}</svg>'
    )


def _figure(title: str, caption: str, *pictures: str) -> str:
    return (
        f"<figure><figcaption><b>{html.escape(title)}</b><br>{html.escape(caption)}</figcaption>"
        f"{' '.join(pictures)}</figure>"
    )


# The page of a puzzle as a web application (Starlette).
#
# GET  /                                   the page; /write.js, /learn.css, /notes.js: its files
# GET  /api/program?text=ABC&version=...   the part that follows the file, unless it has this version
# POST /api/train                          train a model beside the compiled one


def make_write_app(page: WritingPage, *, hosts: Sequence[str] | None = LOCAL, token: str | None = None) -> Starlette:
    """Return the application; `hosts` and `token` as in `AccessControl`."""

    async def index(request: Request) -> Response:
        return HTMLResponse(page.static())

    async def program(request: Request) -> Response:
        text = request.query_params.get("text", "")[: page.puzzle.longest + 1]
        version = page.version(text)
        if version == request.query_params.get("version"):
            return send_json({"version": version, "html": None})
        content = await asyncio.to_thread(page.live, text)
        return send_json({"version": version, "html": content})

    async def train(request: Request) -> Response:
        threading.Thread(target=page.train, daemon=True).start()
        return Response(status_code=204)

    app = Starlette(
        routes=[
            Route("/", index),
            *asset_routes("learn.css", "notes.js", "write.js"),
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
