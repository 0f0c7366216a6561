"""Scenes with commands that are interrupted by kills or full disks: the initial folder, the command, and the
next command.

Each scene is prepared once and run once without a fault. After any interruption and a second run, the files
must equal the files of this run bit for bit.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

from regard.training import trainer
from regard.training.checkpoint import TrainingState
from regard.training.run_folder import RunFolder
from tests.faults.children import Ended, run
from tests.faults.ground import at_home, warm_up
from tests.german import write

Call = list[str]
STEPS, EVERY, STOPPED = 6, 2, 3
TEXT = ["--train", "text/train.de", "text/train.en", "--valid", "text/valid.de", "text/valid.en"]
FLAGS: dict[str, Call] = {
    "counting": ["--hidden", "8", "--batchsize", "4", "--snapshots", "3"],
    "signal2": ["--hidden", "8", "--heads", "2", "--batchsize", "4"],
    "copy": ["--hidden", "8", "--embedding", "4", "--batchsize", "4"],
    "translation": [
        *("--hidden", "8", "--heads", "2", "--inner", "8", "--enc_layers", "1", "--dec_layers", "1"),
        *("--vocab_size", "60", "--tokens", "200", "--validate_every", "3", "--average", "0.9"),
    ],
}


@dataclass(frozen=True)
class Scene:
    """A command that is interrupted, in a folder that other commands prepared."""

    name: str
    before: tuple[tuple[str, ...], ...]
    """Commands that prepare the scene."""
    argv: tuple[str, ...]
    run: str | None = None
    """Run that the command creates or replaces."""
    kept: tuple[str, ...] = ()
    """Folders that the command only reads."""
    half: bool = False
    """Whether the last preparing command is stopped halfway."""
    once: str | None = None
    """Result that a second run would refuse to overwrite."""

    def again(self, folder: Path) -> Call | None:
        """Return the command that continues; None if the work is finished."""
        argv = list(self.argv)
        there = self.run is not None and RunFolder(folder / self.run).exists()
        if self.once is not None:
            return None if (folder / self.once).exists() else argv
        if argv[0] == "train":
            if there and "--overwrite" in argv and self._is_old(folder):
                return argv
            return ["train", argv[1], "--resume"] if there else argv
        return [*argv, "--overwrite"] if there and argv[0] == "prune" else argv

    def _is_old(self, folder: Path) -> bool:
        return (folder / str(self.run) / "config.json").read_text().count('"hidden": 8') > 0


def training(task: str, *more: str) -> tuple[str, ...]:
    """Return the command that trains a run of a task."""
    text = TEXT if task == "translation" else []
    return ("train", task, *FLAGS[task], "--steps", str(STEPS), *text, *more)


def scenes() -> list[Scene]:
    """Return all scenes."""
    found = [Scene(f"train {task}", (), training(task), run=f"models/{task}") for task in FLAGS]
    found += [
        Scene(f"resume {task}", (training(task),), ("train", task, "--resume"), run=f"models/{task}", half=True)
        for task in ("counting", "translation")
    ]
    smaller = training("counting", "--hidden", "4", "--overwrite")
    signal2, translation = training("signal2"), training("translation")
    prune = ("prune", "signal2", "--heads", "1")
    pruned, kept = "models/signal2-pruned", ("models/signal2",)
    return [
        *found,
        Scene("overwrite", (training("counting"),), smaller, run="models/counting"),
        Scene("prune", (signal2,), prune, run=pruned, kept=kept),
        Scene("prune again", (signal2, prune), (*prune, "--overwrite"), run=pruned, kept=kept),
        Scene(
            "export",
            (translation,),
            ("export", "translation", "--output", "exported"),
            kept=("models",),
            once="exported",
        ),
        Scene(
            "test, to files",
            (signal2,),
            ("test", "signal2", "--samples", "4", "--json", "a.json", "--plot", "a.svg"),
            kept=("models",),
        ),
        Scene("examine", (signal2,), ("examine", "signal2", "--samples", "4")),
    ]


@contextlib.contextmanager
def often(stop: bool = False) -> Iterator[None]:
    """Write metrics at each step and many checkpoints; `stop` ends training halfway, like a kill."""
    save = TrainingState.save

    def save_and_stop(state: TrainingState, *values: object, **others: object) -> None:
        save(state, *values, **others)  # type: ignore[arg-type]
        if state.step >= STOPPED:
            os._exit(0)

    with mock.patch.multiple(trainer, METRICS_EVERY=1, CHECKPOINT_EVERY=EVERY):
        with mock.patch.object(TrainingState, "save", save_and_stop) if stop else contextlib.nullcontext():
            yield


def call(argv: Call | tuple[str, ...], folder: Path, before: Callable[[int], None] = lambda told: None) -> Ended:
    """Run a command in a child, and wait for its end; `before` runs first in the child."""
    return run(doing(argv, before), folder, patience=120)


def doing(
    argv: Call | tuple[str, ...], before: Callable[[int], None] = lambda told: None, stop: bool = False
) -> Callable[[int], int]:
    """Return a function that runs a command in a child."""

    def work(told: int) -> int:
        from regard.cli import main

        os.environ["REGARD_DEBUG"] = "1"
        before(told)
        with often(stop):
            return main(list(argv))

    return work


@dataclass(frozen=True)
class Stage:
    """A prepared scene, and its expected result."""

    scene: Scene
    folder: Path
    """Initial folder."""
    whole: dict[str, bytes]
    """Files after a run without faults."""
    old: dict[str, bytes]
    """Initial files."""
    seconds: float


@contextlib.contextmanager
def home_folder() -> Iterator[Path]:
    """Yield a new folder that is the home of this process, which has imported all modules of Regard."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch).resolve()
        warm_up()
        for name in ("home", "tmp"):
            (root / name).mkdir()
        with at_home(root):
            yield root


def set_up(scene: Scene, folder: Path) -> Stage:
    """Prepare a scene in `folder`, and compute its expected result."""
    start = folder / "start"
    (start / "text").mkdir(parents=True)
    write(start / "text")
    for index, argv in enumerate(scene.before):
        stop = scene.half and index + 1 == len(scene.before)
        ended = run(doing(argv, stop=stop), start, patience=120)
        assert ended.status == 0, (argv, ended)
    if "a.json" in scene.argv:
        for name in ("a.json", "a.svg"):
            (start / name).write_text("as it was")
    stage = Stage(scene, start, {}, contents(start), 0.0)
    site = fresh(stage)
    ended = call(scene.argv, site)
    assert ended.status == 0, (scene, ended)
    return replace(stage, whole=contents(site), seconds=ended.seconds)


def fresh(stage: Stage) -> Path:
    """Return a copy of the initial scene, always at the same path, because paths identify a corpus."""
    site = stage.folder.with_name("site")
    shutil.rmtree(site, ignore_errors=True)
    shutil.copytree(stage.folder, site)
    return site


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder; empty folders have a name that ends in a slash."""
    found = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_file():
            found[name] = path.read_bytes()
        elif path.is_dir() and not any(path.iterdir()):
            found[f"{name}/"] = b""
    return found
