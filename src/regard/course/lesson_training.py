"""A lesson's run on the learner's machine: trained, tested, and told beside what ten seeds came to.

Run as a process of its own, so that a page can ask meanwhile how far it has come.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.course.lessons import Lesson, find_lesson
from regard.errors import EditedError, InputError
from regard.io import refuse_links, write_json
from regard.runs import load, train
from regard.training import RunFolder

if TYPE_CHECKING:
    from regard.runs import AnyRun


TOLD = "told.json"
"""File in a lesson's folder: what its run came to."""


def folder_of(lesson: Lesson, home: Path) -> Path:
    """Return the folder of a lesson's run, under that of the course."""
    return home / lesson.name / lesson.runs[0].task


def run_of(lesson: Lesson, home: Path) -> AnyRun:
    """Return a lesson's run; raises `InputError` where it was not trained yet."""
    folder = folder_of(lesson, home)
    try:
        found: AnyRun = load(folder)
    except EditedError as error:
        raise InputError(f"{error.found}; delete {str(folder.parent)!r}, and it is trained again") from error
    return found


def looked_at(lesson: Lesson, run: AnyRun, count: int) -> list[Any]:
    """Return the inputs of a run to be looked at: what its lesson asks about, where it does, and drawn ones."""
    asked = lesson.runs[0].input
    first: list[Any] = [] if asked is None else [asked]
    return first + [run.draw(seed=seed) for seed in range(count - len(first))]


def try_lesson(lesson: Lesson, home: Path, *, progress: bool = True) -> list[str]:
    """Train a lesson's run under the course's folder, anew if it is there, and say what it came to."""
    refuse_links(home / lesson.name)
    own, making = lesson.runs[0], train
    asked: Any = making
    run: AnyRun = asked(own.task, **own.flags, savepath=home / lesson.name, overwrite=True, progress=progress)
    words = lesson.told(vars(run.figures()))
    write_json(home / lesson.name / TOLD, {"words": words})
    return words


def forget(lesson: Lesson, home: Path) -> None:
    """Forget what a lesson's run came to, before it is trained anew."""
    (home / lesson.name / TOLD).unlink(missing_ok=True)


def state_of(lesson: Lesson, home: Path) -> dict[str, Any]:
    """Return how far a lesson's run has come: its step of how many, and what it came to when it has ended."""
    told = home / lesson.name / TOLD
    try:
        words = json.loads(told.read_text(encoding="utf-8"))["words"]
    except (OSError, ValueError, KeyError):
        words = None
    return {"words": words, **_steps(folder_of(lesson, home))}


def _steps(folder: Path) -> dict[str, Any]:
    try:
        last = RunFolder(folder).read_metrics()[-1]
        steps = json.loads((folder / "config.json").read_text(encoding="utf-8"))["training"]["steps"]
        return {"step": last["step"], "steps": steps, "loss": last["loss"]}
    except (InputError, OSError, ValueError, KeyError, IndexError, TypeError):
        return {"step": 0, "steps": 0, "loss": None}


def main() -> None:
    """Try the lesson that is named on the command line, after the course's folder."""
    home, name = sys.argv[1:3]
    lesson = find_lesson(name)
    forget(lesson, Path(home))
    try_lesson(lesson, Path(home), progress=False)
