"""Lessons as HTML pages, for the course's server and for an offline copy."""

import html
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from regard.course.exercise_pages import MARKDOWN, exercise_body, exercise_links, exercise_names
from regard.course.exercises import EXERCISES
from regard.course.lesson_measures import measure
from regard.course.lesson_training import RESULT, load_run, train_lesson, view_inputs
from regard.course.lessons import Lesson, lessons
from regard.course.lessons.lesson import FIGURES, HOME, set_home
from regard.course.notebooks import build_notebooks, notebook_name
from regard.course.pictures import picture
from regard.errors import InputError
from regard.io import cannot_write, check_folder, write_file
from regard.io.reading import is_file
from regard.viz.page import write_page

VIEWS = 3
"""Number of inputs in a stored view."""
# The view sends its height in a message, because a page opened from a folder may not read the content of a
# frame.
RESIZE = """<script>
addEventListener("message", (event) => {
  const frame = document.querySelector("iframe");
  const height = Number(event.data?.height);
  if (event.source === frame.contentWindow && height > 0) frame.style.height = `${Math.min(height, 2400) + 2}px`;
});
</script>"""
"""Script that sets the height of a view's frame to the height of its content."""
PREDICTION = """<p><label for="prediction">Your prediction, before you read on:</label>
<textarea id="prediction" rows="3"></textarea></p>"""
COMPARISON = """<section id="comparison" hidden><p>You predicted:</p><blockquote id="predicted"></blockquote>
<p>Compare it with the answer and the result.
<label>My prediction was <select id="verdict"><option value="">…</option><option>right</option>
<option>partly right</option><option>wrong</option></select></label></p></section>"""
"""The prediction beside the result. The learner judges it, and the lesson then counts as done."""


def _page(title: str, body: str, *, script: str = "") -> str:
    """Return an HTML page. `script`: address of a JavaScript module that needs the course's server, or empty."""
    code = f'<script type="module" src="{script}"></script>' if script else ""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n"
        f'<link rel="stylesheet" href="learn.css">\n<link rel="icon" href="data:,">\n'
        f'<script src="notes.js" defer></script>\n</head>\n'
        f"<body>\n{body}\n{code}\n</body>\n</html>\n"
    )


def read_asset(name: str) -> str:
    """Return the text of `learn.css` (the style of all pages) or `notes.js` (what a learner wrote and did)."""
    return files("regard.course").joinpath(name).read_text(encoding="utf-8")


def index_page() -> str:
    """Return the page with the list of lessons and exercises."""
    rows = "\n".join(
        f'<li data-lesson="{lesson.name}" data-exercises="{" ".join(exercise_names(lesson))}">'
        f'<a href="{lesson.name}.html">{html.escape(lesson.title)}</a> <small class="progress"></small>'
        f"<small>{MARKDOWN.renderInline(lesson.question)}</small></li>"
        for lesson in lessons()
    )
    exercises = "\n".join(
        f'<li data-exercise="{exercise.name}"><a href="exercise-{exercise.name}.html">{exercise.name}</a> '
        f'{html.escape(exercise.title)} <small class="progress"></small></li>'
        for exercise in EXERCISES
    )
    challenges = exercise_links(MARKDOWN.render(read_asset("challenges.md")))
    return _page(
        "Regard: a course in attention",
        "<header><h1>Attention, from look-ups to a Transformer</h1></header>\n<main>\n<p>In each lesson you "
        "predict a result, calculate an example by hand and train or measure a model on this machine. "
        "Then you inspect the model's attention, and compare your run with ten other runs. Each lesson has "
        "exercises: "
        "<code>regard learn --stubs exercises</code> writes files to start from, and "
        "<code>regard check FILE.py</code> finds the mistakes in your solution. "
        "Run all commands of these pages in the same folder. Your notes stay in this browser.</p>\n"
        f'<p id="progress-of-all" role="status"></p>\n<ol>\n{rows}\n</ol>\n'
        f'<h2>Exercises</h2>\n<ol class="short">\n{exercises}\n</ol>\n{challenges}</main>',
    )


def exercise_page(name: str, *, script: str = "") -> str:
    """Return the page of an exercise."""
    return _page(f"{name} · Regard", exercise_body(name), script=script)


def lesson_page(lesson: Lesson, *, see: str, script: str = "", home: Path = HOME) -> str:
    """Return the page of a lesson.

    see: HTML that shows the run, placed after the training command. home: folder of runs that the page's
    commands use.
    """
    part = {name: set_home(MARKDOWN.render(text), home, html.escape) for name, text in lesson.parts.items()}
    body = "\n".join(
        [
            f"<header>{_navigation(lesson)}{_heading(lesson)}</header>",
            f'<main data-lesson="{lesson.name}">',
            f"<figure>{picture(lesson.name)}</figure>",
            f"<h2>Predict</h2>\n{part['Predict']}",
            PREDICTION,
            f"<details><summary>Show the answer</summary>\n{part['Answer']}</details>",
            f"<h2>By hand</h2>\n{part['By hand']}",
            f'<p><a href="{notebook_name(lesson)}" download>Open this lesson as a notebook</a></p>',
            *([f"<h2>Run it</h2>\n{_command(lesson, home)}"] if lesson.runs else []),
            see,
            COMPARISON,
            f"<h2>What to see</h2>\n{part['See']}\n{_table(lesson)}",
            f"<h2>Why</h2>\n{part['Why']}",
            f"<h2>Exercises</h2>\n{exercise_links(part['Exercises'])}",
            "</main>",
            f"<footer>{_navigation(lesson)}</footer>",
        ]
    )
    return _page(f"{lesson.title} · Regard", body, script=script)


def _command(lesson: Lesson, home: Path) -> str:
    """Return the command that trains the lesson's run, and its duration."""
    command = set_home(f"{lesson.runs[0].command} --savepath {HOME}/{lesson.name}", home)
    return f"<p><code>{html.escape(command)}</code> {_duration(lesson)}</p>"


def _duration(lesson: Lesson) -> str:
    return f"takes about {lesson.seconds:.0f} seconds on one core." if lesson.seconds else ""


def _heading(lesson: Lesson) -> str:
    return f"<h1><small>Lesson {lesson.number}</small> {html.escape(lesson.title)}</h1>"


def _navigation(lesson: Lesson) -> str:
    """Return links to the previous lesson, the index and the next lesson."""
    course = lessons()
    links = ['<a href="index.html">All lessons</a>']
    if lesson.number > 1:
        previous = course[lesson.number - 2]
        links.insert(0, f'<a href="{previous.name}.html">← {html.escape(previous.title)}</a>')
    if lesson.number < len(course):
        following = course[lesson.number]
        links.append(f'<a href="{following.name}.html">{html.escape(following.title)} →</a>')
    return f"<nav>{' '.join(links)}</nav>"


def _table(lesson: Lesson) -> str:
    """Return a table with the results of several seeds, one row per run."""
    names = [name for name in FIGURES if any(name in ranges for ranges in lesson.ranges.values())]
    if not names:
        return ""
    head = "".join(f'<th scope="col">{FIGURES[name]}</th>' for name in names)
    rows = []
    for run in lesson.runs:
        cells = "".join(f"<td>{lesson.ranges[run.name].get(name, '')}</td>" for name in names)
        rows.append(f'<tr><th scope="row">{html.escape(run.name)}</th>{cells}</tr>')
    return (
        f"<table><caption>Results of {lesson.seeds} seeds</caption>\n"
        f"<thead><tr><td></td>{head}</tr></thead>\n"
        f"<tbody>{''.join(rows)}</tbody></table>\n"
        f"<p><small>Measured by <code>python benchmarks/lessons.py {lesson.name}</code>.</small></p>"
    )


def check_site(folder: Path) -> None:
    """Raise `InputError` if the course cannot be written to this folder."""
    if is_file(folder):
        raise InputError(f"{str(folder)!r} is a file: choose the name of a folder")
    check_folder(folder)


def write_site(folder: Path, home: Path, *, progress: bool = True) -> list[Path]:
    """Write the course with the views of all runs to a folder, as pages that work offline. Return the files'
    paths.

    Runs that do not exist under `home` are trained there first. Raises `InputError` if `folder` is a file or
    cannot be written.
    """
    check_site(folder)
    pages = {name: read_asset(name) for name in ("learn.css", "notes.js")}
    pages["index.html"] = index_page()
    pages |= {f"exercise-{exercise.name}.html": exercise_page(exercise.name) for exercise in EXERCISES}
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, notebook in build_notebooks(folder, home).items():
            write_file(path, notebook)
            paths.append(path)
        for lesson in lessons():
            see = ""
            if lesson.runs:
                words = _result(lesson, home, progress=progress)
                view = folder / f"{lesson.name}-view.html"
                run = load_run(lesson, home)
                write_page(view, [run.with_sums(run.attend(item)) for item in view_inputs(lesson, run, VIEWS)])
                see = embed_view(view.name, words)
                paths.append(view)
            pages[f"{lesson.name}.html"] = lesson_page(lesson, see=see, home=home)
        for name, text in pages.items():
            write_file(folder / name, text.encode())
            paths.append(folder / name)
    except OSError as error:
        raise cannot_write(folder, error) from error
    return paths


def _result(lesson: Lesson, home: Path, *, progress: bool) -> Sequence[str]:
    """Return the results of a lesson's run as sentences. Train the run if it does not exist."""
    if (home / lesson.name / RESULT).exists():
        return lesson.describe_figures(measure(lesson.name, load_run(lesson, home)))
    return train_lesson(lesson, home, progress=progress)


def embed_view(view: str, words: Sequence[str]) -> str:
    """Return HTML that shows the results of a run and its view.

    view: file name of the view's page, in the same folder. words: the results as sentences.
    """
    items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in words)
    return (
        f'<p>Results of the run with seed 0:</p>\n<ul id="words">{items}</ul>\n'
        f'<p><a href="{view}">Open its view on a separate page</a></p>\n'
        f'<iframe src="{view}" title="Attention of the run"></iframe>\n{RESIZE}'
    )
