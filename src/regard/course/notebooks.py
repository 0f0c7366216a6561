"""Lessons as Jupyter notebooks, with cells for the text, the calculation by hand and the run."""

import json
import re
from pathlib import Path
from typing import Any

from regard.course.exercise_pages import exercise_names
from regard.course.exercises import find_exercise
from regard.course.lessons import Lesson, lessons
from regard.course.lessons.lesson import HOME, set_home


def build_notebooks(folder: Path, home: Path = HOME) -> dict[Path, bytes]:
    """Return the path and content of a notebook for each lesson.

    home: folder of the runs. A relative path is relative to the notebook's folder.
    """
    return {
        folder / notebook_name(lesson): (
            json.dumps(lesson_notebook(lesson, home), indent=1, ensure_ascii=False) + "\n"
        ).encode()
        for lesson in lessons()
    }


def notebook_name(lesson: Lesson) -> str:
    """Return the file name of a lesson's notebook."""
    return f"{lesson.number:02d}_{lesson.name}.ipynb"


def lesson_notebook(lesson: Lesson, home: Path = HOME) -> dict[str, Any]:
    """Return a lesson as a notebook in the format nbformat 4.5, with its run and commands under `home`."""
    part = {name: set_home(text, home) for name, text in lesson.parts.items()}
    before, after = re.split(r"```python\n.*?```", part["By hand"], maxsplit=1, flags=re.DOTALL)
    after = re.sub(r"```text\n.*?```", "", after, flags=re.DOTALL).strip()
    names = exercise_names(lesson)
    cells = [
        _text(f"# {lesson.number}. {lesson.title}"),
        _code(
            "from IPython.display import SVG\n\nfrom regard.course.pictures import picture\n\n"
            f'SVG(picture("{lesson.name}"))'
        ),
        _text(f"## Predict\n\n{part['Predict']}"),
        _text("*Your prediction: replace this text.*"),
        _text(f"<details><summary>Show the answer</summary>\n\n{part['Answer']}\n\n</details>"),
        _text(f"## By hand\n\n{before}"),
        _code(lesson.code),
        *([_text(after)] if after else []),
        *(_run_cells(lesson, home) if lesson.runs else []),
        _text(f"## What to see\n\n{part['See']}\n\n{_ranges(lesson)}"),
        *(_view_cells(lesson) if lesson.runs else []),
        _text(f"## Why\n\n{part['Why']}\n\n## Exercises\n\n{part['Exercises']}"),
        *(
            _code(f"# {find_exercise(name).title}\n{_stub(name)}\n\n# print(regard.check({name}))")
            for name in names
        ),
    ]
    cells = [{**cell, "id": f"{lesson.name}-{number}"} for number, cell in enumerate(cells)]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _run_cells(lesson: Lesson, home: Path) -> list[dict[str, Any]]:
    """Return the cells that train a lesson's run."""
    run, folder = lesson.runs[0], str(home / lesson.name)
    relative = (
        "" if home.is_absolute() else ", relative to this notebook: run the commands below in its folder too"
    )
    flags = "".join(f", {name}={value!r}" for name, value in run.flags.items())
    return [
        _text(
            f"## Run it\n\nThis takes about {lesson.seconds:.0f} seconds on one core. "
            f"The run is stored in `{folder}`{relative}."
        ),
        _code(
            "import regard\nfrom regard.course.lesson_measures import measure\n"
            "from regard.course.lessons import find_lesson\n\n"
            f'run = regard.train("{run.task}"{flags}, savepath={folder!r}, overwrite=True)\n'
            f"print(run.test())\n"
            f'figures = measure("{lesson.name}", run)\n'
            f'print(*find_lesson("{lesson.name}").describe_figures(figures), sep="\\n")'
        ),
    ]


def _view_cells(lesson: Lesson) -> list[dict[str, Any]]:
    """Return the cells that show the attention of a lesson's run."""
    input = lesson.runs[0].input
    return [
        _code(f"record = run.attend({'run.draw(seed=1)' if input is None else repr(input)})\nrecord"),
        _code("record.view()  # the interactive view: needs the extra notebook"),
    ]


def _stub(name: str) -> str:
    """Return the function to write, without the heading of its file."""
    return find_exercise(name).stub.split('"""\n\n\n', 1)[1].rstrip()


def _ranges(lesson: Lesson) -> str:
    lines = [
        f"- {run.name}: {name.replace('_', ' ')} {interval}"
        for run in lesson.runs
        for name, interval in lesson.ranges[run.name].items()
    ]
    return f"Results of {lesson.seeds} seeds:\n\n" + "\n".join(lines) if lines else ""


def _text(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def _code(source: str) -> dict[str, Any]:
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source}
