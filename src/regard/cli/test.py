"""`regard test TASK`: test a trained model, and see what it attends to."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from regard.api import SAVEPATH, AnswerRun, load
from regard.cli.parsing import parse, subject, wants_help, with_empty_value
from regard.cli.screen import open_on_screen
from regard.errors import InputError
from regard.inspection import check_ending
from regard.inspection.terminal import heatmap

PROG = "regard test"
DESCRIPTION = (
    "Test a trained run: exact match, relevance of its attention, and one sample. "
    "RUN: a task's name, or a run's folder."
)


@dataclass(frozen=True, kw_only=True)
class TestFlags:
    """All flags of the command. The model and the task are the run's own."""

    input: str | None = None
    """Sequence to show, such as BCCCBAABACCCA; in the primer's tasks _ is the null character. None: draw one."""
    sample_len: int | None = None
    """Letters in each sample, 1 to max_len. None: as in training."""
    signal: str | None = None
    """Letter of the signal in each sample (or one letter for each signal). None: random, or none."""
    samples: int | None = None
    """Fresh samples to test on. None: 10,000, or 2,000 from sequence to sequence."""
    seed: int = 0
    """Random seed of the samples (0 or more)."""
    plot: str | None = None
    """Write the heatmap to this file: .png, .svg or .pdf for a picture, .html for a page. Without a name:
    attention.png in the run's folder. It is opened where there is a screen."""
    savepath: Path = Path(SAVEPATH)
    """Folder of runs."""


def run(argv: list[str]) -> None:
    """Test as `argv` asks and print the report."""
    if wants_help(argv[:1]):
        parse(TestFlags(), argv, prog=f"{PROG} RUN", description=DESCRIPTION)
    name, argv = subject(argv, what="run", prog=PROG)
    flags = parse(TestFlags(), with_empty_value(argv, "--plot"), prog=f"{PROG} {name}", description=DESCRIPTION)
    run = load(name, savepath=flags.savepath)
    plot = None if flags.plot is None else Path(flags.plot or run.folder / "attention.png")
    if plot is not None:
        check_ending(plot)
    drawn: dict[str, Any] = {"sample_len": flags.sample_len, "seed": flags.seed}
    if isinstance(run, AnswerRun):
        drawn["signal"] = flags.signal
    elif flags.signal is not None:
        raise InputError(f"signal {flags.signal!r} does not fit: {run.task.name} has no signals")
    attention = run.attend(flags.input) if flags.input is not None else run.attend(**drawn)
    if flags.samples is not None:
        drawn["samples"] = flags.samples
    report = run.test(**drawn)
    steps = f"{run.step} of {run.config.training.steps} steps"
    sys.stdout.write(f"{run.folder}: {run.task.name}, {steps}\n{report}\n\n{attention}\n\n")
    Console().print(heatmap(attention))
    if plot is not None:
        attention.save(plot)
        sys.stdout.write(f"Saved {plot}\n")
        open_on_screen(plot)
