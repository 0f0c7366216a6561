"""The run of a lesson: train it, measure it, and read its progress. The server runs this module as a process."""

import importlib
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from regard.errors import EditedError, InputError
from regard.external.logit_lens import read_states
from regard.io import DamageError, refuse_links, write_file, write_json
from regard.runs.loading import load
from regard.runs.run_types import AnyRun
from regard.runs.training import train
from regard.streams import make_generator
from regard.tasks.batch import IGNORE
from regard.training.run_folder import RunFolder, read_tensors
from regard_course.lessons.lesson import HOME, Lesson, LessonRun, find_lesson
from regard_lab.cards.cells import average_heads, measure_shares

RESULT = "figures.json"
"""File with the results of a lesson's run, in the lesson's folder."""


def run_folder(lesson: Lesson, home: Path) -> Path:
    return home / lesson.name / lesson.runs[0].task


def load_run(lesson: Lesson, home: Path) -> AnyRun:
    """Load the trained run of a lesson. Raises `InputError` if there is none, or if its files were edited."""
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


def run_flags(run: LessonRun, home: Path) -> dict[str, Any]:
    """Return the flags of a run. If it reads Python's help topics, write them to their file in `home` first."""
    if "text" not in run.flags:
        return run.flags
    path = home / Path(run.flags["text"]).relative_to(HOME)
    path.parent.mkdir(parents=True, exist_ok=True)
    topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    paragraphs = [" ".join(part.split()) for name in sorted(topics) for part in topics[name].split("\n\n")]
    # One paragraph per line, without code and tables.
    sentences = [part for part in paragraphs if len(part) > 60 and part[0].isupper() and part[-1] == "."]
    write_file(path, "".join(f"{part}\n" for part in sentences).encode())
    return {**run.flags, "text": str(path)}


def train_lesson(lesson: Lesson, home: Path, *, progress: bool = True) -> list[str]:
    """Train the model of a lesson, replacing any earlier run, and return its results as sentences."""
    refuse_links(home / lesson.name)
    lesson_run = lesson.runs[0]
    train_any: Any = train  # its overloads know each task's flags, which come from a table here
    run: AnyRun = train_any(
        lesson_run.task, **run_flags(lesson_run, home), savepath=home / lesson.name, overwrite=True, progress=progress
    )
    return measure_lesson(lesson, home, run)


def measure_lesson(lesson: Lesson, home: Path, run: AnyRun) -> list[str]:
    figures = measure(lesson.name, run)
    write_json(home / lesson.name / RESULT, {"figures": figures})
    return lesson.describe_figures(figures)


def forget_result(lesson: Lesson, home: Path) -> None:
    (home / lesson.name / RESULT).unlink(missing_ok=True)


def training_state(lesson: Lesson, home: Path) -> dict[str, Any]:
    """Return the progress of a lesson's run: `step`, `steps`, `loss`, and at its end `words`, else None."""
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
    """Train or measure a lesson's run, or write its text: `train HOME LESSON`, `measure ...` or `text ...`."""
    action, home, lesson = sys.argv[1], Path(sys.argv[2]), find_lesson(sys.argv[3])
    if action == "text":
        run_flags(lesson.runs[0], home)
        return
    forget_result(lesson, home)
    if action == "train":
        train_lesson(lesson, home, progress=False)
    else:
        measure_lesson(lesson, home, load_run(lesson, home))


# What some lessons measure, besides the usual measurements of a run. Each measurement is a fraction (0 to 1), and
# has a label in `lessons.lesson.FIGURES`.

SAMPLES = 100
"""Number of unseen inputs for the logit lens and for sinks."""
GROKKED = 0.99
"""Share of right answers that counts as learned."""


def measure(lesson: str, run: AnyRun) -> dict[str, float | None]:
    extra = MEASURES.get(lesson)
    return {**vars(run.figures()), **(extra(run) if extra else {})}


def _read_layers(run: Any) -> dict[str, float]:
    """Return the share of answers that the logit lens reads after each block but the last."""
    right: dict[str, int] = {}
    count = 0
    for tokens in run.unseen(SAMPLES, 0):
        answers = run.task.answer(tokens.unsqueeze(0))[0]
        outputs = answers != IGNORE
        count += int(outputs.sum())
        blocks = read_states(run.model, partial(run.model, tokens.unsqueeze(0)))
        for block, states in enumerate(blocks.rows[:-1]):
            read = blocks.apply_head(states).argmax(-1)
            name = f"lens_{block}"
            right[name] = right.get(name, 0) + int((read == answers)[outputs].sum())
    return {name: hits / count for name, hits in right.items()}


def _weigh_sinks(run: Any) -> dict[str, float]:
    """Return the weight on the first token, in the second half of the longest inputs, and that on no token."""
    batch = run.task.sample(SAMPLES, make_generator(0, "lesson"))
    _, shares = measure_shares(run.model, run.task, batch)
    return {"first_token": average_heads(shares.first), "to_sink": 1 - average_heads(shares.total)}


def _follow_learning(run: Any) -> dict[str, float]:
    """Return after which share of the steps training answers and held-out answers are right, 1 for never."""
    metrics = run.files.read_metrics()
    steps = metrics[-1]["step"]

    def learned(name: str) -> float:
        step = next((row["step"] for row in metrics if row.get(name, 0) >= GROKKED), steps)
        return float(step / steps)

    return {"fitted": learned("exact_match"), "grokked": learned("valid_exact_match")}


MEASURES: dict[str, Callable[[Any], dict[str, float]]] = {
    "lens": _read_layers,
    "windows": _weigh_sinks,
    "grokking": _follow_learning,
}
"""The further measurements of a lesson's runs."""
