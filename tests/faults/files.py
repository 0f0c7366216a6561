"""A campaign of damaged files: commands read damaged runs and prepared corpora.

    python -m tests.faults files --seed 7 --count 10000      number of damages
    python -m tests.faults files --seed 7 --only 123         repeat one trial

The campaign lists the files of new runs of each kind, so new kinds of files are included automatically. A
correct command ends with status 0, 1 or 2 and at most one line on standard error. With status 0, the output
equals the output for the undamaged run. Training that is resumed, or that reads a prepared corpus, has the same
losses as with undamaged files. A file can also be replaced with the file of another run with the same shapes.
"""

import contextlib
import io
import os
import re
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import regard
from regard.cli import main as command_line
from regard.training import trainer
from regard.training.checkpoint import TrainingState
from regard.training.run_folder import RunFolder
from tests.faults.damage import WAYS
from tests.faults.report import Report, Trial, counted
from tests.german import write

USUAL_COUNT, FEW = 10_000, 300
"""Number of damaged files in one campaign, and the largest number for a single process."""
STEPS, STOPPED = 8, 4
NOBODY = 65534
PATIENCE = 120
"""Seconds until a command is considered hung."""
TINY = {"hidden": 8, "heads": 2, "inner": 8, "enc_layers": 1, "dec_layers": 1, "vocab_size": 60, "tokens": 200}
TRAININGS: dict[str, dict[str, Any]] = {
    "counting": {"hidden": 8, "batchsize": 4, "snapshots": 3},
    "copy": {"hidden": 8, "embedding": 4, "batchsize": 4, "snapshots": 3},
    "translation": {**TINY, "validate_every": STEPS, "average": 0.9},
}
"""Training commands for each kind of run."""
COMMANDS: dict[str, list[list[str]]] = {
    "counting": [
        ["test", "counting", "--samples", "5"],
        ["test", "counting", "--samples", "5", "--plot", "page.html"],
        ["train", "counting", "--resume"],
    ],
    "copy": [["test", "copy", "--samples", "2"], ["translate", "copy", "ABC"], ["train", "copy", "--resume"]],
    "translation": [
        ["translate", "translation", "Heute läuft der kleine Hund.", "--engine", "regard"],
        ["train", "translation", "--resume"],
    ],
}
WRONG = ("traceback", "several lines", "hangs", "other losses", "other numbers", "odd status")
MIXED = 0.15
"""Fraction of trials that insert a file of another run."""


class StoppedError(Exception):
    """Ends training at a checkpoint, as if the process was killed."""


class HangError(BaseException):
    """Raised if a command takes too long."""


@dataclass
class Ground:
    """New runs that were interrupted in the middle of training, and the expected results."""

    folder: Path
    losses: dict[str, dict[int, float]] = field(default_factory=dict)
    """Losses of each run, by step."""
    flags: dict[str, dict[str, Any]] = field(default_factory=dict)
    printed: dict[str, str] = field(default_factory=dict)
    """Output of each command on an undamaged run."""

    def files(self, task: str) -> list[Path]:
        """Return all files of a run and of its prepared corpus, relative to their savepath."""
        found = (path for path in (self.folder / task).rglob("*") if path.is_file())
        return sorted(path.relative_to(self.folder / task) for path in found)


@contextlib.contextmanager
def often() -> Iterator[None]:
    """Write metrics at each step, and checkpoints in the middle."""
    with mock.patch.multiple(trainer, METRICS_EVERY=1, CHECKPOINT_EVERY=STOPPED):
        yield


def prepare(folder: Path) -> Ground:
    """Train a run of each kind to the end, and again up to the middle."""
    ground, save = Ground(folder), TrainingState.save

    def stop(state: TrainingState, *args: Any, **others: Any) -> None:
        save(state, *args, **others)
        if state.step == STOPPED:
            raise StoppedError

    (folder / "text").mkdir()
    text = write(folder / "text")
    for task, flags in TRAININGS.items():
        flags = {**flags, **(text if task == "translation" else {}), "steps": STEPS, "progress": False}
        ground.flags[task] = flags
        with often():
            regard.train(task, savepath=folder / "whole", **flags)
            ground.losses[task] = losses(folder / "whole" / task)
            for savepath, seed in ((folder / task, 0), (folder / "other" / task, 1)):
                with contextlib.suppress(StoppedError), mock.patch.object(TrainingState, "save", stop):
                    regard.train(task, savepath=savepath, seed=seed, **flags)
        # Import lazy modules now, because another user may not have access to them.
        shutil.copytree(folder / task, folder / "sound" / task)
        assert set(judge(ground, task, folder / "sound" / task, COMMANDS[task])) == {"status 0"}
        assert ground.printed
    return ground


def losses(run: Path) -> dict[int, float]:
    """Return the losses of a run, by step."""
    return {line["step"]: line["loss"] for line in RunFolder(run).read_metrics()}


def call(argv: list[str]) -> tuple[str, str]:
    """Return the status or the faults of a command, and its output."""
    out, err = io.StringIO(), io.StringIO()

    def hang(*_: object) -> None:
        raise HangError

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(PATIENCE)
    try:
        with warnings.catch_warnings(record=True) as warned, often():
            warnings.simplefilter("always")
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = command_line(argv)
    except HangError:
        return "hangs", ""
    except BaseException:
        sys.stderr.write(traceback.format_exc())
        return "traceback", ""
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    lines = [*err.getvalue().splitlines(), *(str(each.message) for each in warned)]
    # Progress messages are not errors.
    lines = [
        line
        for line in lines
        if line.startswith("regard: ")
        or not re.search(
            r"Training on |Validating on |Unknown tokens: |Tokens a sentence: |Precision: |prepare the|: step \d", line
        )
    ]
    if status not in (0, 1, 2):
        return "odd status", ""
    if len(lines) > 1 or (status and not lines):
        sys.stderr.write("\n".join(lines) + "\n")
        return "several lines", ""
    return f"status {status}", out.getvalue()


def judge(ground: Ground, task: str, savepath: Path, commands: Sequence[list[str]]) -> list[str]:
    """Return the outcome of each command on a damaged run."""
    found = []
    for argv in commands:
        words = [str(savepath / each) if each == "page.html" else each for each in argv]
        result, printed = call([*words, "--savepath", str(savepath)])
        expected = ground.printed.setdefault(str(argv), printed.replace(str(savepath), ""))
        if result == "status 0" and printed.replace(str(savepath), "") != expected:
            sys.stderr.write(f"{printed}\ninstead of\n{expected}\n")
            result = "other numbers"
        if result == "status 0" and "--resume" in argv:
            result = compared(ground, task, savepath, begin=STOPPED)
        found.append(result)
        if "--resume" in argv and task == "translation":
            found.append(begun_anew(ground, task, savepath))
    return found


def compared(ground: Ground, task: str, savepath: Path, *, begin: int) -> str:
    """Compare the losses after `begin` with the losses of training with intact files."""
    try:
        found = losses(savepath / task)
    except regard.InputError:
        return "status 2"
    expected = {step: loss for step, loss in ground.losses[task].items() if step > begin}
    return "status 0" if expected == {step: found.get(step) for step in expected} else "other losses"


def begun_anew(ground: Ground, task: str, savepath: Path) -> str:
    """Train again on the prepared corpus."""
    (savepath / task).rename(savepath / "before")
    try:
        with often(), warnings.catch_warnings():
            regard.train(task, savepath=savepath, **ground.flags[task])
    except regard.RegardError as error:
        return f"status {error.exit_status}" if "\n" not in str(error) else "several lines"
    except Exception:
        sys.stderr.write(traceback.format_exc())
        return "traceback"
    return compared(ground, task, savepath, begin=0)


def forbidden(ground: Ground, task: str, savepath: Path, commands: Sequence[list[str]], random: Random) -> list[str]:
    """Run as another user, who has no permission to read a file or a folder."""
    every = sorted(savepath.rglob("*"))
    for path in (savepath, *every):
        path.chmod(0o777)
    random.choice(every).chmod(0o000)
    reader, writer = os.pipe()
    if child := os.fork():
        os.close(writer)
        with os.fdopen(reader) as told:
            found = told.read().split("\n")
        _, status = os.waitpid(child, 0)
        return found if status == 0 else ["traceback"]
    try:
        os.seteuid(NOBODY)
        found = judge(ground, task, savepath, commands)
        os.write(writer, "\n".join(found).encode())
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def case(ground: Ground, seed: int, index: int) -> tuple[str, list[str]]:
    """Damage one file; return the damage, and the outcome of a command."""
    random = Random(f"{seed}/{index}")
    task = random.choice(list(TRAININGS))
    savepath = ground.folder / "damaged"
    shutil.rmtree(savepath, ignore_errors=True)
    shutil.copytree(ground.folder / task, savepath)
    names = ground.files(task)
    name = random.choice(names)
    commands = [random.choice(COMMANDS[task])]
    called = commands[0][0]
    if os.geteuid() == 0 and random.random() < 0.08:
        return f"{called} {task}: forbidden", forbidden(ground, task, savepath, commands, random)
    if random.random() < MIXED:
        name = random.choice([each for each in names if (ground.folder / "other" / task / each).is_file()])
        shutil.copy(ground.folder / "other" / task / name, savepath / name)
        return f"{called} {task}: mixed {name}", judge(ground, task, savepath, commands)
    way = random.choice(WAYS)
    path, others = savepath / name, [savepath / each for each in names if each != name]
    way(path, random, others)
    return f"{called} {task}: {way.__name__} {name}", judge(ground, task, savepath, commands)


def trial(ground: Ground, seed: int, index: int) -> Trial:
    """Damage one file, and check the outcomes of all commands."""
    what, found = case(ground, seed, index)
    faults = tuple(f"{each}: {what}" for each in found if each in WRONG)
    outcome = "the machine refused" if "status 1" in found else "refused" if "status 2" in found else "unharmed"
    return Trial(index, what.partition(":")[0], outcome, faults, (what,))


def part_of(seed: int, indices: Sequence[int]) -> list[Trial]:
    """Run the trials with some numbers, each in a separate site."""
    with tempfile.TemporaryDirectory() as root:
        Path(root).chmod(0o755)
        ground = prepare(Path(root))
        return [trial(ground, seed, index) for index in counted("files", len(indices), indices)]


def main(count: int | None, seed: int, only: int | None = None) -> Report:
    """Run `count` trials of a seed, on all cores if the number is large."""
    indices = list(range(count or USUAL_COUNT)) if only is None else [only]
    workers = os.cpu_count() or 1
    if len(indices) <= FEW:
        trials = part_of(seed, indices)
    else:
        parts = [(seed, indices[first::workers]) for first in range(workers)]
        with get_context("spawn").Pool(workers) as pool:
            trials = [each for part in pool.starmap(part_of, parts) for each in part]
    if only is not None:
        sys.stderr.write(f"{trials}\n")
    again = f"python -m tests.faults files --seed {seed} --only {{index}}"
    return Report("damaged files", seed, trials, again)
