"""What a learner has done: `progress.json` in the course's folder, without any text that the learner wrote."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal

from regard.errors import InputError
from regard.io import read_json, write_json
from regard_course.exercises.course import EXERCISES
from regard_course.lessons.lesson import RUNS, find_lesson
from regard_course.report import CheckReport

PROGRESS = "progress.json"
VERDICTS = ("right", "partly right", "wrong")
"""What a learner says about a prediction. The lesson then counts as done."""


@dataclass(frozen=True, kw_only=True)
class CheckedExercise:
    """An exercise that was checked at least once."""

    state: Literal["right", "tried"]
    """Right if one of the checks was right."""
    points: int
    """The most points of a check."""
    of: int
    checked: str
    """Date and time of the last check."""


@dataclass(frozen=True, kw_only=True)
class CourseProgress:
    """The content of `progress.json`."""

    lessons: dict[str, str] = field(default_factory=dict)
    """What the learner said about the prediction of each lesson that is done, see `VERDICTS`."""
    exercises: dict[str, CheckedExercise] = field(default_factory=dict)


def read_progress(home: Path) -> CourseProgress:
    """Return the progress in a course's folder, empty if there is none. Raises `InputError` for a damaged file."""
    path = home / PROGRESS
    return read_json(path, CourseProgress, "delete it") if path.is_file() else CourseProgress()


def begin_progress(home: Path) -> None:
    """Write an empty file if there is none, so that `regard check` records its results from now on."""
    with suppress(OSError, InputError):  # a course in a folder that cannot be written can still be read
        if not (home / PROGRESS).exists():
            home.mkdir(parents=True, exist_ok=True)
            _write(home, CourseProgress())


def record_checks(home: Path, reports: Sequence[CheckReport]) -> bool:
    """Return whether checks were recorded: if the course's folder exists. Raises `InputError` if that fails."""
    if not any((home / name).exists() for name in (PROGRESS, *RUNS)):
        return False
    progress = read_progress(home)
    known = {exercise.name for exercise in EXERCISES}
    now = datetime.now().isoformat(" ", "minutes")
    for report in (exercise for file in reports for exercise in file.exercises):
        if report.state not in ("right", "wrong", "stopped") or report.exercise not in known:
            continue
        before = progress.exercises.get(report.exercise)
        right = report.state == "right" or (before is not None and before.state == "right")
        progress.exercises[report.exercise] = CheckedExercise(
            state="right" if right else "tried",
            points=max(report.points, before.points if before else 0),
            of=report.possible_points,
            checked=now,
        )
    _write(home, progress)
    return True


def record_verdict(home: Path, lesson: str, verdict: str) -> None:
    """Record what the learner said about the prediction of a lesson. Raises `InputError` for other values."""
    find_lesson(lesson)
    if verdict not in VERDICTS:
        raise InputError(f"verdict {verdict!r} is unknown: choose {', '.join(VERDICTS)}")
    progress = read_progress(home)
    progress.lessons[lesson] = verdict
    _write(home, progress)


def _write(home: Path, progress: CourseProgress) -> None:
    write_json(home / PROGRESS, asdict(progress))
