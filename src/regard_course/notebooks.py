"""Lessons as Jupyter notebooks, with cells for the text, the calculation by hand and the run."""

import json
import re
from pathlib import Path
from typing import Any

from regard_course.exercise_pages import NOTES, exercise_names, read_exercise
from regard_course.lessons.lesson import FIGURES, HOME, Lesson, lessons, set_home
from regard_course.translated import ENGLISH

PAGE_LINK = r"\[([^][]+)\]\([\w-]+\.html\)"
"""Pattern of a link to another page, which a notebook cannot open."""


def build_notebooks(folder: Path, home: Path = HOME, language: str = ENGLISH) -> dict[Path, bytes]:
    """Return the path and content of a notebook for each lesson.

    home: folder of the runs. A relative path is relative to the notebook's folder.
    """
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
    names, say = exercise_names(lesson), lesson.say
    note = f"*{say(NOTES[lesson.state])}*\n\n" if lesson.state else ""
    code = _with_language(f'picture("{lesson.name}")', lesson)
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
        _text(f"## {say('What to see')}\n\n{part['See']}\n\n{_ranges(lesson)}"),
        *(_view_cells(lesson) if lesson.runs else []),
        _text(f"## {say('Why')}\n\n{part['Why']}\n\n## {say('Exercises')}\n\n{part['Exercises']}"),
        *(_code(_exercise(name, lesson.language)) for name in names),
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
    flags = "".join(f", {name}={value!r}" for name, value in run.flags.items())
    return [
        _text(f"## {say('Run it')}\n\n{words}{'' if home.is_absolute() else f' {relative}'}"),
        _code(
            "import regard\nfrom regard_course.lesson_measures import measure\n"
            "from regard_course.lessons.lesson import find_lesson\n\n"
            f'run = regard.train("{run.task}"{flags}, savepath={folder!r}, overwrite=True)\n'
            f"print(run.test())\n"
            f"lesson = {found}\n"
            f'print(*lesson.describe_figures(measure("{lesson.name}", run)), sep="\\n")'
        ),
    ]


def _view_cells(lesson: Lesson) -> list[dict[str, Any]]:
    """Return the cells that show the attention of a lesson's run."""
    input = lesson.runs[0].input
    return [
        _code(f"record = run.attend({'run.draw(seed=1)' if input is None else repr(input)})\nrecord"),
        _code("record.view()  # the interactive view: needs the extra notebook"),
    ]


def _with_language(call: str, lesson: Lesson) -> str:
    """Return the code of a call with the language as its last argument, unless it is English."""
    return call if lesson.language == ENGLISH else f"{call[:-1]}, {json.dumps(lesson.language)})"


def _exercise(name: str, language: str) -> str:
    """Return the function to write, without the heading of its file, and its check."""
    exercise = read_exercise(name, language).exercise
    stub = exercise.stub.split('"""\n\n\n', 1)[1].rstrip()
    return f"# {exercise.title}\n{stub}\n\n# print(regard.check({name}))"


def _ranges(lesson: Lesson) -> str:
    lines = [
        f"- {lesson.say(run.name)}: {lesson.say(FIGURES[name])}: {interval.describe(lesson.language)}"
        for run in lesson.runs
        for name, interval in lesson.ranges[run.name].items()
    ]
    return f"{lesson.say('Results of ten seeds')}:\n\n" + "\n".join(lines) if lines else ""


def _text(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def _code(source: str) -> dict[str, Any]:
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source}
