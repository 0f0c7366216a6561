"""Lessons as HTML pages, for the course's server and for an offline copy."""

import html
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from regard.errors import InputError
from regard.io.reading import is_file
from regard.io.writing import cannot_write, check_folder, write_file
from regard.viz.page import write_page
from regard_course.exercise_pages import (
    MARKDOWN,
    exercise_body,
    exercise_links,
    exercise_names,
    language_flag,
    mark_english,
    read_exercise,
    render_part,
    state_note,
)
from regard_course.exercises import EXERCISES
from regard_course.lesson_measures import measure
from regard_course.lesson_training import RESULT, load_run, train_lesson, view_inputs
from regard_course.lessons.lesson import FIGURES, HOME, Lesson, lessons, set_home
from regard_course.notebooks import build_notebooks, notebook_name
from regard_course.pictures import picture
from regard_course.progress import VERDICTS
from regard_course.translated import ENGLISH, find_language

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


def make_page(title: str, body: str, language: str, *, script: str = "") -> str:
    """Return an HTML page. `script`: address of a JavaScript module that needs the course's server, or empty."""
    code = f'<script type="module" src="{script}"></script>' if script else ""
    chosen = find_language(language)
    words = html.escape(json.dumps(chosen.words.get("scripts", {}), ensure_ascii=False))
    return (
        f'<!doctype html>\n<html lang="{html.escape(chosen.say(ENGLISH))}" data-words="{words}">\n<head>\n'
        f'<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n"
        f'<link rel="stylesheet" href="learn.css">\n<link rel="icon" href="data:,">\n'
        f'<script src="notes.js" defer></script>\n</head>\n'
        f"<body>\n{body}\n{code}\n</body>\n</html>\n"
    )


def read_asset(name: str) -> str:
    return files("regard_course").joinpath(name).read_text(encoding="utf-8")


def index_page(language: str = ENGLISH, *, script: str = "") -> str:
    """Return the page with the list of lessons and exercises."""
    chosen = find_language(language)
    say = chosen.say
    rows = "\n".join(
        f'<li data-lesson="{lesson.name}" data-exercises="{" ".join(exercise_names(lesson))}">'
        f'<a href="{lesson.name}.html">{html.escape(lesson.title)}</a>{mark_english(lesson.state, say)} '
        f'<small class="progress"></small>'
        f"<small>{MARKDOWN.renderInline(lesson.question)}</small></li>"
        for lesson in lessons(language)
    )
    exercises = "\n".join(
        f'<li data-exercise="{exercise.name}"><a href="exercise-{exercise.name}.html">{exercise.name}</a> '
        f"{html.escape(text.exercise.title)}{mark_english(text.state, say)} "
        '<small class="progress"></small></li>'
        for exercise in EXERCISES
        for text in [read_exercise(exercise.name, language)]
    )
    text, state = chosen.translate("challenges", read_asset("challenges.md"))
    intro = say(
        "In each lesson you predict a result, calculate an example by hand and train or measure a model on this "
        "machine. Then you inspect the model's attention, and compare your run with ten other runs. Each lesson "
        "has exercises: <code>regard learn --stubs exercises{0}</code> writes files to start from, and "
        "<code>regard check FILE.py</code> finds the mistakes in your solution. Run all commands of these pages "
        "in the same folder. What you write stays on this machine.",
        language_flag(language),
    )
    puzzles = say(
        "Write attention as a program: <code>regard write</code> lists twelve puzzles, and <code>regard write "
        "previous</code> writes a file to start from."
    )
    return make_page(
        say("Regard: a course in attention"),
        f"<header><h1>{say('Attention, from look-ups to a Transformer')}</h1></header>\n<main>\n<p>{intro}</p>\n"
        f'<p id="progress-of-all" role="status"></p>\n<ol>\n{rows}\n</ol>\n'
        f'<h2>{say("Exercises")}</h2>\n<ol class="short">\n{exercises}\n</ol>\n'
        f"<h2>{say('Puzzles')}</h2>\n<p>{puzzles}</p>\n"
        f"<h2>{say('Four challenges')}</h2>\n{exercise_links(render_part(text, state))}</main>",
        language,
        script=script,
    )


def exercise_page(name: str, language: str = ENGLISH, *, script: str = "") -> str:
    return make_page(f"{name} · Regard", exercise_body(name, language), language, script=script)


def lesson_page(lesson: Lesson, *, see: str, script: str = "", home: Path = HOME) -> str:
    """Return the page of a lesson.

    see: HTML that shows the run, placed after the training command. home: folder of runs that the page's
    commands use.
    """
    say = lesson.say
    part = {
        name: set_home(render_part(text, lesson.state), home, html.escape) for name, text in lesson.parts.items()
    }
    body = "\n".join(
        [
            f"<header>{_navigation(lesson)}{_heading(lesson)}</header>",
            f'<main data-lesson="{lesson.name}">{state_note(lesson.state, say)}',
            f"<figure>{picture(lesson.name, lesson.language)}</figure>",
            f"<h2>{say('Predict')}</h2>\n{part['Predict']}",
            f'<p><label for="prediction">{say("Your prediction, before you read on:")}</label>',
            '<textarea id="prediction" rows="3"></textarea></p>',
            f"<details><summary>{say('Show the answer')}</summary>\n{part['Answer']}</details>",
            f"<h2>{say('By hand')}</h2>\n{part['By hand']}",
            f'<p><a href="{notebook_name(lesson)}" download>{say("Open this lesson as a notebook")}</a></p>',
            *([f"<h2>{say('Run it')}</h2>\n{_command(lesson, home)}"] if lesson.runs else []),
            see,
            _comparison(lesson),
            f"<h2>{say('What to see')}</h2>\n{part['See']}\n{_table(lesson)}",
            f"<h2>{say('Why')}</h2>\n{part['Why']}",
            f"<h2>{say('Exercises')}</h2>\n{exercise_links(part['Exercises'])}",
            "</main>",
            f"<footer>{_navigation(lesson)}</footer>",
        ]
    )
    return make_page(f"{lesson.title} · Regard", body, lesson.language, script=script)


def _comparison(lesson: Lesson) -> str:
    """Return the prediction beside the result, which the learner judges."""
    say = lesson.say
    options = "".join(f'<option value="{verdict}">{say(verdict)}</option>' for verdict in VERDICTS)
    return (
        f'<section id="comparison" hidden><p>{say("You predicted:")}</p>'
        '<blockquote id="predicted"></blockquote>\n'
        f"<p>{say('Compare it with the answer and the result.')} <label>{say('My prediction was')} "
        f'<select id="verdict"><option value="">…</option>{options}</select></label></p></section>'
    )


def _command(lesson: Lesson, home: Path) -> str:
    command = set_home(f"{lesson.runs[0].command} --savepath {HOME}/{lesson.name}", home)
    return f"<p><code>{html.escape(command)}</code> {_duration(lesson)}</p>"


def _duration(lesson: Lesson) -> str:
    seconds = f"{lesson.seconds:.0f}"
    return lesson.say("takes about {0} seconds on one core.", seconds) if lesson.seconds else ""


def _heading(lesson: Lesson) -> str:
    return f"<h1><small>{lesson.say('Lesson {0}', lesson.number)}</small> {html.escape(lesson.title)}</h1>"


def _navigation(lesson: Lesson) -> str:
    """Return links to the previous lesson, the index and the next lesson."""
    course = lessons(lesson.language)
    links = [f'<a href="index.html">{lesson.say("All lessons")}</a>']
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
    head = "".join(f'<th scope="col">{lesson.say(FIGURES[name])}</th>' for name in names)
    rows = []
    for run in lesson.runs:
        ranges = lesson.ranges[run.name]
        cells = "".join(
            f"<td>{ranges[name].describe(lesson.language) if name in ranges else ''}</td>" for name in names
        )
        rows.append(f'<tr><th scope="row">{html.escape(lesson.say(run.name))}</th>{cells}</tr>')
    measured = lesson.say("Measured by {0}.", f"<code>python benchmarks/lessons.py {lesson.name}</code>")
    return (
        f"<table><caption>{lesson.say('Results of ten seeds')}</caption>\n"
        f"<thead><tr><td></td>{head}</tr></thead>\n"
        f"<tbody>{''.join(rows)}</tbody></table>\n"
        f"<p><small>{measured}</small></p>"
    )


def check_site(folder: Path) -> None:
    """Raise `InputError` if the course cannot be written to this folder."""
    if is_file(folder):
        raise InputError(f"{str(folder)!r} is a file: choose the name of a folder")
    check_folder(folder)


def write_site(folder: Path, home: Path, language: str = ENGLISH, *, progress: bool = True) -> list[Path]:
    """Write the course with the views of all runs to a folder, as pages that work offline. Return the files'
    paths.

    Runs that do not exist under `home` are trained there first. Raises `InputError` if `folder` is a file or
    cannot be written.
    """
    check_site(folder)
    pages = {name: read_asset(name) for name in ("learn.css", "notes.js")}
    pages["index.html"] = index_page(language)
    pages |= {f"exercise-{exercise.name}.html": exercise_page(exercise.name, language) for exercise in EXERCISES}
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, notebook in build_notebooks(folder, home, language).items():
            write_file(path, notebook)
            paths.append(path)
        for lesson in lessons(language):
            see = ""
            if lesson.runs:
                words = _result(lesson, home, progress=progress)
                view = folder / f"{lesson.name}-view.html"
                run = load_run(lesson, home)
                write_page(view, [run.with_sums(run.attend(item)) for item in view_inputs(lesson, run, VIEWS)])
                see = embed_view(view.name, words, language)
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


def embed_view(view: str, words: Sequence[str], language: str = ENGLISH) -> str:
    """Return HTML that shows the results of a run and its view.

    view: file name of the view's page, in the same folder. words: the results as sentences.
    """
    say = find_language(language).say
    items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in words)
    return (
        f'<p>{say("Results of the run with seed 0:")}</p>\n<ul id="words">{items}</ul>\n'
        f'<p><a href="{view}">{say("Open its view on a separate page")}</a></p>\n'
        f'<iframe src="{view}" title="{say("Attention of the run")}"></iframe>\n{RESIZE}'
    )
