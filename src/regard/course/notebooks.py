"""Lessons as notebooks: text, what is worked out by hand, and the run, as cells to be executed."""

import json
import re
from pathlib import Path
from typing import Any

from regard.course.lessons import Lesson, lessons
from regard.course.lessons.lesson import HOME, in_home
from regard.io import write_new


def notebooks_in(folder: Path, home: Path = HOME) -> dict[Path, bytes]:
    """Return a notebook for each lesson; `home`: the folder of runs, a relative one seen from the notebook's."""
    return {
        folder / f"{each.number:02d}_{each.name}.ipynb": (
            json.dumps(notebook_of(each, home), indent=1, ensure_ascii=False) + "\n"
        ).encode()
        for each in lessons()
    }


def write_notebooks(folder: Path) -> list[Path]:
    """Write a notebook for each lesson; raises `InputError` where one of the files is there already."""
    return write_new(notebooks_in(folder))


def notebook_of(lesson: Lesson, home: Path = HOME) -> dict[str, Any]:
    """Return a lesson as a notebook, in the format nbformat 4.5, whose run and commands are under `home`."""
    part = {name: in_home(text, home) for name, text in lesson.parts.items()}
    run, folder = lesson.runs[0], str(home / lesson.name)
    seen = "" if home.is_absolute() else ", seen from this notebook's folder: run the commands below there too"
    flags = "".join(f", {name}={value!r}" for name, value in run.flags.items())
    before, after = re.split(r"```python\n.*?```", part["By hand"], maxsplit=1, flags=re.DOTALL)
    after = re.sub(r"```text\n.*?```", "", after, flags=re.DOTALL)
    cells = [
        _text(f"# {lesson.number}. {lesson.title}\n\n## Predict\n\n{part['Predict']}"),
        _text(f"<details><summary>I have made my bet</summary>\n\n{part['Answer']}\n\n</details>"),
        _text(f"## By hand\n\n{before}"),
        _code(lesson.code),
        _text(
            f"{after.strip()}\n\n## Run it\n\nAbout {lesson.seconds:.0f} seconds of one core. "
            f"The run is kept in `{folder}`{seen}."
        ),
        _code(
            f"import regard\nfrom regard.course.lessons import find_lesson\n\n"
            f'run = regard.train("{run.task}"{flags}, savepath={folder!r}, overwrite=True)\n'
            f"print(run.test())\n"
            f'print(*find_lesson("{lesson.name}").told(vars(run.figures())), sep="\\n")'
        ),
        _text(f"## What to see\n\n{part['See']}\n\n{_ranges(lesson)}"),
        _code(f"looked = run.attend({'run.draw(seed=1)' if run.input is None else repr(run.input)})\nlooked"),
        _code("looked.view()  # the page, in here: needs the extra notebook"),
        _text(f"## Why\n\n{part['Why']}\n\n## Exercises\n\n{part['Exercises']}"),
        _code("# Define yours here, then for instance: print(regard.check(attention))"),
    ]
    named = [{**cell, "id": f"{lesson.name}-{place}"} for place, cell in enumerate(cells)]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": named, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _ranges(lesson: Lesson) -> str:
    lines = [
        f"- {run.name}: {name.replace('_', ' ')} {found}"
        for run in lesson.runs
        for name, found in lesson.ranges[run.name].items()
    ]
    return "Ten seeds came to:\n\n" + "\n".join(lines) if lines else ""


def _text(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def _code(source: str) -> dict[str, Any]:
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source}
