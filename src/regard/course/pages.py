"""Lessons as HTML: the same parts for the course's server and for a folder that opens offline."""

import html
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from markdown_it import MarkdownIt

from regard.course.lesson_training import TOLD, looked_at, run_of, try_lesson
from regard.course.lessons import Lesson, lessons
from regard.course.lessons.lesson import FIGURES, HOME, in_home
from regard.errors import InputError
from regard.io import cannot_write, check_folder, write_file
from regard.io.reading import is_file
from regard.viz.page import write_page

VIEWS = 3
"""Inputs that a baked view shows."""
_MARKDOWN = MarkdownIt("commonmark", {"html": False})
ROOM = """<script>
addEventListener("message", (event) => {
  const frame = document.querySelector("iframe");
  const height = Number(event.data?.height);
  if (event.source === frame.contentWindow && height > 0) frame.style.height = `${Math.min(height, 2400) + 2}px`;
});
</script>"""
"""Makes a baked view as high as what it shows; from a folder, a page cannot look into another to see."""


def _page(title: str, body: str, *, script: str = "") -> str:
    """Return a page; `script`: the address of what acts on it, where something does."""
    code = f'<script type="module" src="{script}"></script>' if script else ""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n"
        f'<link rel="stylesheet" href="learn.css">\n<link rel="icon" href="data:,">\n</head>\n'
        f"<body>\n{body}\n{code}\n</body>\n</html>\n"
    )


def style() -> str:
    """Return the style of all pages."""
    return files("regard.course").joinpath("learn.css").read_text(encoding="utf-8")


def index_page() -> str:
    """Return the page that lists the lessons."""
    rows = "\n".join(
        f'<li><a href="{each.name}.html">{html.escape(each.title)}</a> '
        f"<small>{_MARKDOWN.renderInline(each.question)}</small></li>"
        for each in lessons()
    )
    return _page(
        "Regard: a course in attention",
        "<header><h1>Attention, from look-ups to a Transformer</h1></header>\n<main>\n<p>Thirteen lessons. Each "
        "asks you to predict something, works it by hand in numbers, trains a model on this machine, and "
        f"lets you look at what it attends to, beside what ten seeds came to. The exercises are yours to write: "
        f"<code>regard learn --stubs exercises</code> gives you what to start from, and "
        f"<code>regard check FILE.py</code> says what is wrong with it. "
        f"Run all commands of these pages in one folder.</p>\n<ol>\n{rows}\n</ol>\n</main>",
    )


def lesson_page(lesson: Lesson, *, see: str, script: str = "", home: Path = HOME) -> str:
    """Return a lesson's page.

    `see`: what stands where its run is looked at, HTML; `home`: the folder of runs that its commands name.
    """
    part = {name: in_home(_MARKDOWN.render(text), home, html.escape) for name, text in lesson.parts.items()}
    command = in_home(f"{lesson.runs[0].command} --savepath {HOME}/{lesson.name}", home)
    body = "\n".join(
        [
            f"<header>{_ways(lesson)}{_heading(lesson)}</header>",
            f'<main data-lesson="{lesson.name}">',
            f"<h2>Predict</h2>\n{part['Predict']}",
            f"<details><summary>I have made my bet</summary>\n{part['Answer']}</details>",
            f"<h2>By hand</h2>\n{part['By hand']}",
            f"<h2>Run it</h2>\n<p><code>{html.escape(command)}</code> {_took(lesson)}</p>",
            see,
            f"<h2>What to see</h2>\n{part['See']}\n{_table(lesson)}",
            f"<h2>Why</h2>\n{part['Why']}",
            f"<h2>Exercises</h2>\n{part['Exercises']}",
            "</main>",
            f"<footer>{_ways(lesson)}</footer>",
        ]
    )
    return _page(f"{lesson.title} · Regard", body, script=script)


def _took(lesson: Lesson) -> str:
    return f"took {lesson.seconds:.0f} seconds of one core where it was measured." if lesson.seconds else ""


def _heading(lesson: Lesson) -> str:
    return f"<h1><small>Lesson {lesson.number}</small> {html.escape(lesson.title)}</h1>"


def _ways(lesson: Lesson) -> str:
    every = lessons()
    before = every[lesson.number - 2] if lesson.number > 1 else None
    after = every[lesson.number] if lesson.number < len(every) else None
    ways = [f'<a href="{before.name}.html">← {html.escape(before.title)}</a>'] if before else []
    ways.append('<a href="index.html">All lessons</a>')
    ways += [f'<a href="{after.name}.html">{html.escape(after.title)} →</a>'] if after else []
    return f"<nav>{' '.join(ways)}</nav>"


def _table(lesson: Lesson) -> str:
    """Return what ten seeds came to."""
    names = [name for name in FIGURES if any(name in each for each in lesson.ranges.values())]
    if not names:
        return ""
    head = "".join(f'<th scope="col">{FIGURES[name]}</th>' for name in names)
    rows = []
    for run in lesson.runs:
        found = lesson.ranges[run.name]
        cells = "".join(f"<td>{found.get(name, '')}</td>" for name in names)
        rows.append(f'<tr><th scope="row">{html.escape(run.name)}</th>{cells}</tr>')
    return (
        "<table><caption>What ten seeds came to</caption>\n"
        f"<thead><tr><td></td>{head}</tr></thead>\n"
        f"<tbody>{''.join(rows)}</tbody></table>\n"
        f"<p><small>Measured by <code>python benchmarks/lessons.py {lesson.name}</code>.</small></p>"
    )


def check_site(folder: Path) -> None:
    """Raise `InputError` where there can be no such folder."""
    if is_file(folder):
        raise InputError(f"{str(folder)!r} is a file: choose the name of a folder")
    check_folder(folder)


def write_site(folder: Path, home: Path, *, progress: bool = True) -> list[Path]:
    """Write the course into a folder that opens offline, with the views of all runs baked in.

    Runs that are not yet under `home` are trained there first. Raises `InputError` where there is a file of that
    name already.
    """
    check_site(folder)
    found = [folder / "learn.css", folder / "index.html"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_file(found[0], style().encode())
        write_file(found[1], index_page().encode())
        for lesson in lessons():
            words = _words(lesson, home, progress=progress)
            view = folder / f"{lesson.name}-view.html"
            run = run_of(lesson, home)
            write_page(view, [run.with_sums(run.attend(each)) for each in looked_at(lesson, run, VIEWS)])
            page = folder / f"{lesson.name}.html"
            write_file(page, lesson_page(lesson, see=baked(view.name, words), home=home).encode())
            found += [view, page]
    except OSError as error:
        raise cannot_write(folder, error) from error
    return found


def _words(lesson: Lesson, home: Path, *, progress: bool) -> Sequence[str]:
    """Say what a lesson's run came to, and train it first where it was not."""
    if (home / lesson.name / TOLD).exists():
        return lesson.told(vars(run_of(lesson, home).figures()))
    return try_lesson(lesson, home, progress=progress)


def baked(view: str, words: Sequence[str]) -> str:
    """Return what stands where a run is looked at: what it came to, and its view, a page beside this one."""
    told = "".join(f"<li>{html.escape(each)}</li>" for each in words)
    return (
        f"<p>A run with seed 0 came to:</p>\n<ul>{told}</ul>\n"
        f'<p><a href="{view}">Its view on a page of its own</a></p>\n'
        f'<iframe src="{view}" title="What the run attends to"></iframe>\n{ROOM}'
    )
