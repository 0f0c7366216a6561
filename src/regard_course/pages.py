"""Lessons as HTML pages, for the course's server and for an offline copy."""

import dataclasses
import functools
import html
import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from regard.errors import InputError
from regard.io import cannot_write, check_folder, is_file, write_file
from regard.viz.page import write_page
from regard_course.exercises.course import EXERCISES, find_exercise
from regard_course.exercises.exercise import Exercise
from regard_course.lesson_runs import RESULT, load_run, measure, train_lesson, view_inputs
from regard_course.lessons.lesson import FIGURES, HOME, RUNS, Lesson, english_text, lessons, set_home
from regard_course.pictures import picture, picture_texts
from regard_course.progress import VERDICTS
from regard_course.translated import ENGLISH, State, find_language, make_digest

# The page of an exercise: its stub, hints in three steps, a worked solution, and links to its lessons.
#
# Hints and solutions are in `hints/NAME.md`.

MARKDOWN = MarkdownIt("commonmark", {"html": False})
FOLDER = "exercises"
"""Folder of the stubs in the commands of the pages."""
STATEMENT = "Statement"
"""Heading of the stub's docstring in a translation."""
HINTS = ("Hint 1", "Hint 2", "Hint 3", "Solution")
"""Headings in the file of hints, in order."""
NOT_TRANSLATED = ("missing", "outdated")
"""States of a translation in which the English text is shown."""
NOTES: dict[State, str] = {
    "missing": "This page is not translated yet, so its text is English.",
    "older": "The English text is newer than this translation.",
    "outdated": "The English text is newer than its translation, so it is shown in English.",
}
"""The line on a page, for each state of a translation."""


def exercise_names(lesson: Lesson) -> list[str]:
    known = {exercise.name for exercise in EXERCISES}
    return [name for name in re.findall(r"`(\w+)`", lesson.parts["Exercises"]) if name in known]


def exercise_links(page: str) -> str:
    """Return the HTML of the part Exercises with a link for each name of an exercise."""
    for exercise in EXERCISES:
        code = f"<code>{exercise.name}</code>"
        page = page.replace(code, f'<a href="exercise-{exercise.name}.html" data-exercise="{exercise.name}">{code}</a>')
    return page


def stub_name(exercise: Exercise) -> str:
    return f"{EXERCISES.index(exercise) + 1:02d}_{exercise.name}.py"


@dataclass(frozen=True, kw_only=True)
class ExerciseText:
    """The texts of an exercise in one language."""

    exercise: Exercise
    """The exercise, with a translated title and statement."""
    hints: dict[str, str]
    """Three hints and the solution as Markdown, by heading."""
    state: State
    """State of the translation."""


def english_exercise(name: str) -> str:
    exercise, hints = find_exercise(name), read_asset(f"hints/{name}.md")
    return f"# {exercise.title}\n\n## {STATEMENT}\n\n{exercise.statement}\n\n{hints}"


@functools.cache
def read_exercise(name: str, language: str = ENGLISH) -> ExerciseText:
    """Return the texts of an exercise. Raises `InputError` if the translation is invalid."""
    chosen, exercise = find_language(language), find_exercise(name)
    text, state = chosen.translate(f"exercises/{name}", english_exercise(name))
    title, *sections = re.split(r"^#{1,2} (.*)$", text, flags=re.MULTILINE)[1:]
    parts = {heading.strip(): part.strip() for heading, part in zip(sections[1::2], sections[2::2], strict=True)}
    statement = parts.pop(STATEMENT)
    assert tuple(parts) == HINTS, f"the hints of {name} are {tuple(parts)}"
    translated = dataclasses.replace(
        exercise,
        title=title.strip(),
        statement=statement,
        source=chosen.say(exercise.source) if exercise.source else "",
        instruction=chosen.say(exercise.instruction),
        command=f"{exercise.command}{language_flag(language)}",
        words=(chosen.say("Exercise"), chosen.say("then")),
    )
    return ExerciseText(exercise=translated, hints=parts, state=state)


def exercise_page(name: str, language: str = ENGLISH, *, script: str = "") -> str:
    text, say = read_exercise(name, language), find_language(language).say
    exercise, hints = text.exercise, text.hints
    title = exercise.title[:1].upper() + exercise.title[1:]
    file = f"{FOLDER}/{stub_name(find_exercise(name))}"
    uses = [lesson for lesson in lessons(language) if name in exercise_names(lesson)]
    links = ", ".join(f'<a href="{lesson.name}.html">{html.escape(lesson.title)}</a>' for lesson in uses)
    index = EXERCISES.index(find_exercise(name))
    steps = [*EXERCISES[max(0, index - 1) : index], *EXERCISES[index + 1 : index + 2]]
    others = " ".join(f'<a href="exercise-{step.name}.html">{step.name}</a>' for step in steps)
    hinted = {name.lower().replace(" ", "_"): render_part(hints[name], text.state) for name in HINTS}
    body = fill(
        "exercise",
        say,
        others=others,
        number=say("Exercise {0}", index + 1),
        title=html.escape(title),
        name=name,
        note=state_note(text.state, say),
        lessons=say("Lessons: {0}.", links),
        source=html.escape(exercise.source),
        start=say(
            "The file <code>{0}</code>, written by <code>regard learn --stubs {1}</code>:",
            file,
            f"{FOLDER}{html.escape(language_flag(language))}",
        ),
        stub=html.escape(exercise.stub),
        file=f"{file}{html.escape(language_flag(language))}",
        **hinted,
    )
    return make_page(f"{name} · Regard", body, language, script=script)


def render_part(text: str, state: State) -> str:
    """Return Markdown as HTML, marked as English if it is not translated."""
    page = str(MARKDOWN.render(text))
    return f'<div lang="{ENGLISH}">\n{page}</div>' if state in NOT_TRANSLATED else page


def state_note(state: State, say: Callable[[str], str]) -> str:
    return f'<p class="note">{say(NOTES[state])}</p>' if state else ""


def mark_english(state: State, say: Callable[[str], str]) -> str:
    """Return a mark for a title whose page is shown in English, or an empty text."""
    return f" <em>({say('in English')})</em>" if state in NOT_TRANSLATED else ""


def language_flag(language: str) -> str:
    return "" if language == ENGLISH else f" --language {shlex.quote(language)}"


# Lessons as Jupyter notebooks, with cells for the text, the calculation by hand and the run.

PAGE_LINK = r"\[([^][]+)\]\([\w-]+\.html\)"
"""Pattern of a link to another page, which a notebook cannot open."""


def build_notebooks(folder: Path, home: Path = HOME, language: str = ENGLISH) -> dict[Path, bytes]:
    """Return the path and content of a notebook for each lesson. home: folder of the runs, relative to the notebook."""
    return {
        folder / notebook_name(lesson): (
            json.dumps(lesson_notebook(lesson, home), indent=1, ensure_ascii=False) + "\n"
        ).encode()
        for lesson in lessons(language)
    }


def notebook_name(lesson: Lesson) -> str:
    return f"{lesson.number:02d}_{lesson.name}.ipynb"


def lesson_notebook(lesson: Lesson, home: Path = HOME) -> dict[str, Any]:
    """Return a lesson as a notebook in the format nbformat 4.5, with its run and commands under `home`."""
    part = {name: re.sub(PAGE_LINK, r"\1", set_home(text, home)) for name, text in lesson.parts.items()}
    before, after = re.split(r"```python\n.*?```", part["By hand"], maxsplit=1, flags=re.DOTALL)
    after = re.sub(r"```text\n.*?```", "", after, flags=re.DOTALL).strip()
    say = lesson.say
    note = f"*{say(NOTES[lesson.state])}*\n\n" if lesson.state else ""
    code = _with_language(f'picture("{lesson.name}")', lesson)
    ranges = [
        f"- {say(run.name)}: {say(FIGURES[name])}: {interval.describe(lesson.language)}"
        for run in lesson.runs
        for name, interval in lesson.ranges[run.name].items()
    ]
    results = "\n".join([f"{say('Results of {0} seeds', lesson.seeds)}:\n", *ranges]) if ranges else ""
    input = repr(lesson.runs[0].input) if lesson.runs and lesson.runs[0].input else "run.draw(seed=1)"
    view = [
        _code(f"record = run.attend({input})\nrecord"),
        _code("record.view()  # the interactive view: needs the extra notebook"),
    ]
    exercises = []
    for exercise in (read_exercise(name, lesson.language).exercise for name in exercise_names(lesson)):
        stub = exercise.stub.split('"""\n\n\n', 1)[1].rstrip()  # without the heading of its file
        checked = _with_language(f"regard.check({exercise.name})", lesson)
        exercises.append(_code(f"# {exercise.title}\n{stub}\n\n# print({checked})"))
    cells = [
        _text(f"# {lesson.number}. {lesson.title}"),
        _code(f"from IPython.display import SVG\n\nfrom regard_course.pictures import picture\n\nSVG({code})"),
        _text(f"{note}## {say('Predict')}\n\n{part['Predict']}"),
        _text(f"*{say('Your prediction: replace this text.')}*"),
        _text(f"<details><summary>{say('Show the answer')}</summary>\n\n{part['Answer']}\n\n</details>"),
        _text(f"## {say('By hand')}\n\n{before}"),
        _code(lesson.code),
        *([_text(after)] if after else []),
        *(_run_cells(lesson, home) if lesson.runs else []),
        _text(f"## {say('What to see')}\n\n{part['See']}\n\n{results}"),
        *(view if lesson.runs else []),
        _text(f"## {say('Why')}\n\n{part['Why']}\n\n## {say('Exercises')}\n\n{part['Exercises']}"),
        *exercises,
    ]
    cells = [{**cell, "id": f"{lesson.name}-{number}"} for number, cell in enumerate(cells)]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _run_cells(lesson: Lesson, home: Path) -> list[dict[str, Any]]:
    """Return the cells that train a lesson's run."""
    run, folder = lesson.runs[0], str(home / lesson.name)
    say, seconds = lesson.say, f"{lesson.seconds:.0f}"
    relative = say("Run the commands below in the folder of this notebook too.")
    words = say("This takes about {0} seconds on one core. The run is stored in {1}.", seconds, f"`{folder}`")
    found = _with_language(f'find_lesson("{lesson.name}")', lesson)
    reads = "text" in run.flags
    flags = f", **run_flags(lesson.runs[0], Path({str(home)!r}))" if reads else ""
    flags = flags or "".join(f", {name}={value!r}" for name, value in run.flags.items())
    return [
        _text(f"## {say('Run it')}\n\n{words}{'' if home.is_absolute() else f' {relative}'}"),
        _code(
            ("from pathlib import Path\n\n" if reads else "")
            + f"import regard\nfrom regard_course.lesson_runs import measure{', run_flags' if reads else ''}\n"
            "from regard_course.lessons.lesson import find_lesson\n\n"
            f"lesson = {found}\n"
            f'run = regard.train("{run.task}"{flags}, savepath={folder!r}, overwrite=True)\n'
            f"print(run.test())\n"
            f'print(*lesson.describe_figures(measure("{lesson.name}", run)), sep="\\n")'
        ),
    ]


def _with_language(call: str, lesson: Lesson) -> str:
    """Return the code of a call with the language as its last argument, unless it is English."""
    return call if lesson.language == ENGLISH else f"{call[:-1]}, language={json.dumps(lesson.language)})"


def _text(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def _code(source: str) -> dict[str, Any]:
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source}


VIEWS = 3
"""Number of inputs in a stored view."""


def fill(template: str, say: Callable[[str], str], **values: str) -> str:
    """Return a file of `html` without its last line feed. `[[Text]]` is translated, and `$name` is a value."""
    return re.sub(
        r"\[\[(.+?)\]\]|\$(\w+)",
        lambda match: say(match[1]) if match[1] else values[match[2]],
        read_asset(f"html/{template}.html").removesuffix("\n"),
    )


def make_page(title: str, body: str, language: str, *, script: str = "") -> str:
    """Return an HTML page. `script`: address of a JavaScript module that needs the course's server, or empty."""
    code = f'<script type="module" src="{script}"></script>' if script else ""
    chosen = find_language(language)
    words = html.escape(json.dumps(chosen.words.get("scripts", {}), ensure_ascii=False))
    language = html.escape(chosen.say(ENGLISH))
    page = fill("page", chosen.say, lang=language, words=words, title=html.escape(title), body=body, code=code)
    return f"{page}\n"


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
    challenges = exercise_links(render_part(*chosen.translate("challenges", read_asset("challenges.md"))))
    intro = say(
        "In each lesson you predict a result, calculate an example by hand and train or measure a model on this "
        "machine. Then you inspect the model's attention, and compare your run with ten other runs. Each lesson "
        "has exercises: <code>regard learn --stubs exercises{0}</code> writes files to start from, and "
        "<code>regard check FILE.py{0}</code> finds the mistakes in your solution. Run all commands of these pages "
        "in the same folder. What you write stays on this machine.",
        html.escape(language_flag(language)),
    )
    return make_page(
        say("Regard: a course in attention"),
        fill("index", say, intro=intro, rows=rows, exercises=exercises, challenges=challenges),
        language,
        script=script,
    )


def lesson_page(lesson: Lesson, *, see: str, script: str = "", home: Path = HOME) -> str:
    """Return the page of a lesson. see: HTML that shows the run. home: folder of the runs in its commands."""
    say, command, course = lesson.say, "", lessons(lesson.language)
    links = [f'<a href="index.html">{say("All lessons")}</a>']
    if lesson.number > 1:
        previous = course[lesson.number - 2]
        links.insert(0, f'<a href="{previous.name}.html">← {html.escape(previous.title)}</a>')
    if lesson.number < len(course):
        following = course[lesson.number]
        links.append(f'<a href="{following.name}.html">{html.escape(following.title)} →</a>')
    options = "".join(f'<option value="{verdict}">{say(verdict)}</option>' for verdict in VERDICTS)
    if lesson.runs:
        command = set_home(f"{lesson.runs[0].command} --savepath {HOME}/{lesson.name}", home)
        seconds = f"{lesson.seconds:.0f}"
        duration = say("takes about {0} seconds on one core.", seconds) if lesson.seconds else ""
        command = f"<h2>{say('Run it')}</h2>\n<p><code>{html.escape(command)}</code> {duration}</p>\n"
    part = {name: set_home(render_part(text, lesson.state), home, html.escape) for name, text in lesson.parts.items()}
    body = fill(
        "lesson",
        say,
        navigation=f"<nav>{' '.join(links)}</nav>",
        number=say("Lesson {0}", lesson.number),
        title=html.escape(lesson.title),
        name=lesson.name,
        note=state_note(lesson.state, say),
        picture=picture(lesson.name, lesson.language),
        predict=part["Predict"],
        answer=part["Answer"],
        by_hand=part["By hand"],
        notebook=notebook_name(lesson),
        run=command,
        see=see,
        verdicts=options,
        what=part["See"],
        table=_table(lesson),
        why=part["Why"],
        exercises=exercise_links(part["Exercises"]),
    )
    return make_page(f"{lesson.title} · Regard", body, lesson.language, script=script)


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
        f"<table><caption>{lesson.say('Results of {0} seeds', lesson.seeds)}</caption>\n"
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
    """Write the course as pages that work offline, and return their paths. Runs that do not exist under `home` are
    trained first. Raises `InputError` if `folder` is a file or cannot be written."""
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
    """Return HTML that shows the results of a run, as sentences, and its view, a file in the same folder."""
    items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in words)
    # The view sends its height in a message, because a page opened from a folder may not read the content of a frame.
    return fill("view", find_language(language).say, items=items, view=view)


# The English texts as files to translate, and what a translation lacks.

WORDS_FROM = "de"
"""The language whose `words.json` has all texts of the pages and scripts; a test compares it with the code."""


def read_originals() -> dict[str, str]:
    """Return the English Markdown texts by the names of their files, without suffix."""
    return {
        **{f"lessons/{name}": english_text(name) for name in RUNS},
        **{f"exercises/{exercise.name}": english_exercise(exercise.name) for exercise in EXERCISES},
        "challenges": read_asset("challenges.md"),
    }


def read_words() -> dict[str, list[str]]:
    words = find_language(WORDS_FROM).words
    pictures = dict.fromkeys(text for name in RUNS for text in picture_texts(name))
    return {**{part: list(words[part]) for part in ("pages", "scripts", "checker")}, "pictures": list(pictures)}


def build_texts(folder: Path) -> dict[Path, bytes]:
    """Return the path and content of each file to translate."""
    texts = {
        folder / f"{name}.md": f"original: {make_digest(text)}\n\n{text.strip()}\n".encode()
        for name, text in read_originals().items()
    }
    words = {part: dict.fromkeys(keys, "") for part, keys in read_words().items()}
    return {**texts, folder / "words.json": (json.dumps(words, indent=2, ensure_ascii=False) + "\n").encode()}


def list_gaps(language: str) -> list[str]:
    """Return a line for each missing or outdated translation. Raises `InputError` if a file is invalid."""
    chosen = find_language(language)
    if chosen.folder is None:
        return []
    lines = []
    for name, text in read_originals().items():
        state = chosen.translate(name, text)[1]
        if state == "missing":
            lines.append(f"{name}.md: not translated, shown in English")
        elif state:
            shown = ", shown in English" if state == "outdated" else ""
            lines.append(
                f"{name}.md: older than the English text{shown}; when it is up to date, begin it with "
                f"'original: {make_digest(text)}'"
            )
    return lines + [
        f"words.json: not translated: {key!r}"
        for key in (key for part in read_words().values() for key in part)
        if not any(part.get(key) for part in chosen.words.values())
    ]
