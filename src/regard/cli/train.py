"""`regard train TASK`: train a model on a task."""

import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path

from regard.api import SAVEPATH, train
from regard.cli.parsing import parse, subject, wants_help
from regard.models import QueryModelConfig
from regard.tasks import TASKS, TaskConfig
from regard.training import Interrupted, RunConfig, RunFolder, TrainingConfig, make_config

PROG = "regard train"


@dataclass(frozen=True, kw_only=True)
class WhereConfig:
    """Where the run is kept."""

    savepath: Path = Path(SAVEPATH)
    """Folder of runs; this one goes into a folder of its task's name there."""
    resume: bool = False
    """Continue the run that is there, exactly as if it had not stopped. It keeps its flags."""
    overwrite: bool = False
    """Replace the run that is there."""


@dataclass(frozen=True, kw_only=True)
class TrainFlags:
    """All flags of the command."""

    size: TaskConfig
    model: QueryModelConfig
    training: TrainingConfig
    run: WhereConfig = field(default_factory=WhereConfig)


def run(argv: list[str]) -> None:
    """Train as `argv` asks, and say where the run is."""
    if wants_help(argv[:1]):
        _parse(make_config("counting"), argv, task="TASK")
    task, argv = subject(argv, what="task", prog=PROG)
    base = make_config(task)
    where = _parse(base, argv, task=task).run
    if where.resume:
        base = RunFolder(where.savepath / base.build_task().name).read_config()
    flags = _parse(base, argv, task=task)
    asked = RunConfig(task=task, size=flags.size, model=flags.model, training=flags.training).flags()
    given = {name: value for name, value in asked.items() if value != base.flags()[name]}
    try:
        trained = train(task, savepath=where.savepath, resume=where.resume, overwrite=where.overwrite, **given)
    except Interrupted:
        again = shlex.join([*PROG.split(), task, "--resume", *_savepath_flag(where.savepath)])
        sys.stderr.write(f"regard: stopped and saved in {where.savepath}; continue with `{again}`\n")
        sys.exit(130)
    last = trained.metrics[-1]
    sys.stdout.write(
        f"Trained {trained.task.name} for {trained.step} steps: loss {last['loss']:.4f}, "
        f"exact match {last['exact_match']:.0%} of the last batch. The run is in {trained.folder}\n"
    )


def _parse(config: RunConfig, argv: list[str], *, task: str) -> TrainFlags:
    default = TrainFlags(size=config.size, model=config.model, training=config.training)
    described = f"Train a model on a task. TASK: {', '.join(TASKS)}, or a Python file that defines one. " + (
        "The defaults below are those of counting; name a task to see its own." if task == "TASK" else ""
    )
    return parse(default, argv, prog=f"{PROG} {task}", description=described)


def _savepath_flag(savepath: Path) -> list[str]:
    """Return the flag that says where the runs are, nothing for the usual place."""
    return [] if savepath == Path(SAVEPATH) else ["--savepath", str(savepath)]
