"""Train and test the run of a lesson.

The server runs this module in a separate process, so that the lesson's page can show the progress.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import EditedError, InputError
from regard.io.reading import DamageError
from regard.io.writing import refuse_links, write_json
from regard.runs.loading import load
from regard.runs.training import train
from regard.training.run_folder import RunFolder
from regard.training.tensor_file import read_tensors
from regard_course.lesson_measures import measure
from regard_course.lessons.lesson import Lesson, find_lesson

if TYPE_CHECKING:
    from regard.runs.run_types import AnyRun


RESULT = "figures.json"
"""File with the results of a lesson's run, in the lesson's folder."""


def run_folder(lesson: Lesson, home: Path) -> Path:
    return home / lesson.name / lesson.runs[0].task


def load_run(lesson: Lesson, home: Path) -> AnyRun:
    """Load the trained run of a lesson. Raises `InputError` if the run does not exist or if its files were
    edited."""
    folder = run_folder(lesson, home)
    try:
        run: AnyRun = load(folder)
    except EditedError as error:
        raise InputError(f"{error.found}; delete {str(folder.parent)!r} to train it again") from error
    return run


def view_inputs(lesson: Lesson, run: AnyRun, count: int) -> list[Any]:
    """Return `count` inputs for the lesson's view: the input of its question, if any, then random inputs."""
    question = lesson.runs[0].input
    first: list[Any] = [] if question is None else [question]
    return first + [run.draw(seed=seed) for seed in range(count - len(first))]


def train_lesson(lesson: Lesson, home: Path, *, progress: bool = True) -> list[str]:
    """Train the model of a lesson, replacing any earlier run, and return its results as sentences."""
    refuse_links(home / lesson.name)
    lesson_run = lesson.runs[0]
    train_any: Any = train  # its overloads know each task's flags, which come from a table here
    run: AnyRun = train_any(
        lesson_run.task, **lesson_run.flags, savepath=home / lesson.name, overwrite=True, progress=progress
    )
    return measure_lesson(lesson, home, run)


def measure_lesson(lesson: Lesson, home: Path, run: AnyRun) -> list[str]:
    figures = measure(lesson.name, run)
    write_json(home / lesson.name / RESULT, {"figures": figures})
    return lesson.describe_figures(figures)


def forget_result(lesson: Lesson, home: Path) -> None:
    (home / lesson.name / RESULT).unlink(missing_ok=True)


def training_state(lesson: Lesson, home: Path) -> dict[str, Any]:
    """Return the progress of a lesson's run: `step`, `steps`, `loss`, and `words` (None until training has
    ended)."""
    try:
        result = json.loads((home / lesson.name / RESULT).read_text(encoding="utf-8"))
        words = lesson.describe_figures(result["figures"]) if _is_current(lesson, home) else None
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        words = None
    return {"words": words, **_progress(run_folder(lesson, home))}


def is_unmeasured(lesson: Lesson, home: Path) -> bool:
    """Return whether the run of a lesson is trained, but has no results: `regard train` has trained it."""
    folder = run_folder(lesson, home)
    progress = _progress(folder)
    if not 0 < progress["steps"] <= progress["step"] or _is_current(lesson, home):
        return False
    try:
        return bool(read_tensors(RunFolder(folder).model_file).step == progress["steps"])
    except (InputError, DamageError, OSError):
        return False


def _is_current(lesson: Lesson, home: Path) -> bool:
    """Return whether the stored results belong to the run: they are newer than its options."""
    config, result = RunFolder(run_folder(lesson, home)).config_file, home / lesson.name / RESULT
    try:
        return result.stat().st_mtime_ns >= config.stat().st_mtime_ns
    except OSError:
        return False


def _progress(folder: Path) -> dict[str, Any]:
    try:
        last = RunFolder(folder).read_metrics()[-1]
        steps = json.loads((folder / "config.json").read_text(encoding="utf-8"))["options"]["steps"]
        return {"step": last["step"], "steps": steps, "loss": last["loss"]}
    except (InputError, OSError, ValueError, KeyError, IndexError, TypeError):
        return {"step": 0, "steps": 0, "loss": None}


def main() -> None:
    """Train the run of a lesson, or measure a trained run: `train HOME LESSON` or `measure HOME LESSON`."""
    action, home, lesson = sys.argv[1], Path(sys.argv[2]), find_lesson(sys.argv[3])
    forget_result(lesson, home)
    if action == "train":
        train_lesson(lesson, home, progress=False)
    else:
        measure_lesson(lesson, home, load_run(lesson, home))
