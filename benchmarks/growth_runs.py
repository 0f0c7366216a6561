"""Growth with the number of trainings, lines, snapshots, learners and heads, and on pages, for growth.py."""

import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import Any

import torch
from growth import Growth, Work, spread_sizes

import regard
from regard.external.comparison import ModelComparison
from regard.interpret.roles import HeadRole, HeadRoles
from regard.runs.seeds import timeline
from regard.sweep.comparison import Comparison, compare, folder_name, make_variants
from regard.sweep.job import MEASURED, Measured, _compared, make_job
from regard.training.config import make_config
from regard.training.run_folder import RunFolder
from regard_course.exercises.course import EXERCISES
from regard_course.marks import Mark, Marks, render_class

TRAININGS = spread_sizes(10, 1000, 5)
LINES = spread_sizes(300, 30_000)
SNAPSHOTS = spread_sizes(5, 500, 5)
LEARNERS = spread_sizes(10, 1000)
HEADS = spread_sizes(12, 1200)
LENGTHS = spread_sizes(10, 1000)
FLAGS: dict[str, Any] = {"steps": 20, "batchsize": 10}


def run_growths() -> list[Growth]:
    """Return all growths with the number of trainings, lines of metrics and snapshots."""
    trainings: dict[str, Any] = {"group": "runs", "panel": "comparison", "size": "trainings", "sizes": TRAININGS}
    lines: dict[str, Any] = {"group": "runs", "panel": "metrics", "size": "lines", "sizes": LINES}
    snapshots: dict[str, Any] = {"group": "runs", "panel": "snapshots", "size": "snapshots", "sizes": SNAPSHOTS}
    runs: dict[str, Any] = {"group": "runs", "panel": "folder", "size": "runs in a folder", "sizes": TRAININGS}
    linear: dict[str, Any] = {"demanded": float}
    return [
        Growth(**trainings, **linear, name="reading measurements, many seeds", prepare=partial(read_grid, False)),
        Growth(**trainings, **linear, name="reading measurements, many variants", prepare=partial(read_grid, True)),
        Growth(**trainings, **linear, name="tables, many seeds", prepare=partial(grid_tables, False)),
        Growth(**trainings, **linear, name="tables, many variants", prepare=partial(grid_tables, True)),
        Growth(**trainings, **linear, name="files, many variants", prepare=partial(grid_files, True)),
        Growth(**lines, **linear, name="reading", prepare=read_lines),
        Growth(**lines, **linear, name="removal of later lines", prepare=cut_lines),
        Growth(**lines, **linear, name="files of a comparison", prepare=draw_lines),
        Growth(**snapshots, **linear, name="timeline", prepare=read_snapshots),
        Growth(**snapshots, **linear, name="page of the timeline", prepare=draw_snapshots),
        Growth(**runs, **linear, name="loading every run", prepare=load_runs),
    ]


def page_growths() -> list[Growth]:
    """Return all growths of tables and pages."""
    learners: dict[str, Any] = {"group": "pages", "panel": "class", "size": "learners", "sizes": LEARNERS}
    heads: dict[str, Any] = {"group": "pages", "panel": "models", "size": "layers times heads", "sizes": HEADS}
    length: dict[str, Any] = {"group": "pages", "panel": "view", "size": "sequence length", "sizes": LENGTHS}
    square: dict[str, Any] = {"demanded": lambda size: size**2}
    linear: dict[str, Any] = {"demanded": float}
    return [
        Growth(**learners, **linear, name="page", prepare=class_page),
        Growth(**learners, **linear, name="table", prepare=class_table),
        Growth(**heads, **linear, name="comparison", prepare=compare_heads),
        Growth(**heads, **linear, name="roles", prepare=role_table),
        Growth(**length, **square, name="time of the page", prepare=write_view),
        Growth(**length, **square, name="size of the page", prepare=view_size, unit="KB"),
    ]


def make_grid(trainings: int, folder: Path, *, variants: bool, lines: int = 30) -> Comparison:
    """Write the measurements of a comparison of Counting, and return it.

    `variants`: half as many variants as trainings with two seeds each, instead of two variants with many seeds.
    `lines`: number of lines of metrics.
    """
    first, seeds = (trainings // 2, 2) if variants else (2, trainings // 2)
    grid = make_variants({"lr": [0.001 + 0.00001 * number for number in range(first)]})
    metrics = "".join(
        json.dumps({"step": 10 * line, "loss": 1 / line, "exact_match": 1 - 1 / line, "lr": 0.01}) + "\n"
        for line in range(1, lines + 1)
    )
    measured: dict[str, list[Measured]] = {}
    for variant in grid:
        for seed in range(seeds):
            config = make_config("counting", {**FLAGS, **variant.varied, "seed": seed})
            job = make_job(config, folder / "counting" / folder_name(variant) / f"seed-{seed}")
            job.run.path.mkdir(parents=True)
            job.run.metrics_file.write_text(metrics)
            figures = Measured(
                exact_match=0.9 + 0.0001 * seed, steps_to_99=20, parameters=100, seconds=1.0, loss=0.1 * (seed + 1)
            )
            stored = {"config": _compared(job.stored), "measured": dataclasses.asdict(figures)}
            job.folder.joinpath(MEASURED).write_text(json.dumps(stored))
            measured.setdefault(variant.name, []).append(figures)
    return Comparison("counting", folder / "counting", grid, measured)


def read_grid(variants: bool, trainings: int, folder: Path) -> Work:
    """Return what `regard compare` does before and after its trainings: it checks and reads all measurements."""
    grid = make_grid(trainings, folder, variants=variants)
    seeds = len(next(iter(grid.measured.values())))
    rates = [variant.varied["lr"] for variant in grid.variants]
    return lambda: compare("counting", {"lr": rates}, seeds=seeds, savepath=folder, progress=False, **FLAGS)


def grid_tables(variants: bool, trainings: int, folder: Path) -> Work:
    """Return the text of the tables of a comparison."""
    grid = make_grid(trainings, folder, variants=variants)
    return lambda: str(grid)


def grid_files(variants: bool, trainings: int, folder: Path) -> Work:
    """Return the writing of the files of a comparison, with its plots."""
    return make_grid(trainings, folder, variants=variants).save


def draw_lines(lines: int, folder: Path) -> Work:
    """Return the writing of the files of a comparison of four trainings with many lines of metrics."""
    return make_grid(4, folder, variants=True, lines=lines).save


def _metrics(lines: int, folder: Path) -> RunFolder:
    grid = make_grid(2, folder, variants=True, lines=lines)
    return RunFolder(grid.folders(grid.variants[0])[0])


def read_lines(lines: int, folder: Path) -> Work:
    """Return the reading of metrics.jsonl."""
    return _metrics(lines, folder).read_metrics


def cut_lines(lines: int, folder: Path) -> Work:
    """Return the removal of later lines at the start of a resumed training."""
    return partial(_metrics(lines, folder).cut_metrics, 10 * lines)


def train_with_snapshots(snapshots: int, folder: Path) -> Any:
    """Train Counting with a number of snapshots."""
    return regard.train(
        "signal", steps=snapshots, batchsize=2, hidden=8, snapshots=snapshots, savepath=folder, progress=False
    )


def read_snapshots(snapshots: int, folder: Path) -> Work:
    """Return the timeline of a run."""
    run = train_with_snapshots(snapshots, folder)
    return lambda: timeline([run], samples=4, progress=False)


def draw_snapshots(snapshots: int, folder: Path) -> Work:
    """Return the text and the page of a timeline."""
    result = timeline([train_with_snapshots(snapshots, folder)], samples=4, progress=False)
    return lambda: (str(result), result.to_html(folder / "timeline.html"))


def load_runs(runs: int, folder: Path) -> Work:
    """Return the loading of all runs of a folder, each by its name."""
    run = regard.train("counting", **FLAGS, savepath=folder / "first", progress=False)
    files = [path for path in run.folder.rglob("*") if path.is_file()]
    for number in range(runs):
        for path in files:
            copy = folder / "runs" / f"run-{number}" / path.relative_to(run.folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.hardlink_to(path)
    return lambda: [regard.load(f"run-{number}", savepath=folder / "runs") for number in range(runs)]


def _class(learners: int, folder: Path) -> Marks:
    rows = []
    for number in range(learners):
        person = f"learner-{number:04}"
        (folder / person).mkdir()
        for index, exercise in enumerate(EXERCISES):
            mistakes = [mistake.did for mistake in exercise.mistakes]
            points = (number + index) % 4
            note = mistakes[number % len(mistakes)] if points < 3 and mistakes else ""
            rows.append(
                Mark(
                    person=person,
                    exercise=exercise.name,
                    points=points,
                    of=3,
                    cases="",
                    note=note,
                    file="answers.py",
                    seed=0,
                )
            )
    return Marks(rows=rows, kept=0)


def class_page(learners: int, folder: Path) -> Work:
    """Return the page of a class."""
    return partial(render_class, _class(learners, folder), folder)


def class_table(learners: int, folder: Path) -> Work:
    """Return the table of a class as text."""
    marks = _class(learners, folder)
    return lambda: str(marks)


def _roles(heads: int) -> HeadRoles:
    roles = [
        HeadRole(layer=f"layers.{number // 12}", head=number % 12, role=None, strength=None, untrained=0.0)
        for number in range(heads)
    ]
    return HeadRoles(task="text", samples=10, heads=roles)


def compare_heads(heads: int, folder: Path) -> Work:
    """Return the text of a comparison of two models with 12 heads per layer."""
    del folder
    values = {f"layers.{layer}": [0.1] * 12 for layer in range(heads // 12)}
    comparison = ModelComparison(
        names=("before", "after"),
        samples=10,
        measure="loss",
        losses=(1.0, 0.9),
        added=(values, values),
        entropy=(values, values),
        predictions=[("a", "b")] * 10,
        apart=values,
        alike={name: name for name in values},
        roles=(_roles(heads), _roles(heads)),
    )
    return lambda: str(comparison)


def role_table(heads: int, folder: Path) -> Work:
    """Return the text of the roles of all heads."""
    del folder
    roles = _roles(heads)
    return lambda: str(roles)


def _map(length: int) -> Any:
    torch.manual_seed(0)
    weights = (torch.randn(1, 2, length, length), torch.randn(1, 2, length, length))
    names = [f"w{number}" for number in range(length)]
    return regard.view_weights(tuple((3 * layer).softmax(-1) for layer in weights), names)


def write_view(length: int, folder: Path) -> Work:
    """Return the writing of a page of two layers with two heads."""
    attention = _map(length)
    return lambda: attention.to_html(folder / "page.html")


def view_size(length: int, folder: Path) -> Work:
    """Return the size of this page in KB, without the program of the page."""
    begin = _map(1).to_html(folder / "empty.html").stat().st_size
    return lambda: (_map(length).to_html(folder / "page.html").stat().st_size - begin) / 1000
