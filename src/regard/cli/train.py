"""`regard train TASK`: train a model on a task."""

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from regard.api import SAVEPATH, train_run
from regard.cli.parsing import fields_of, parse, subject, wants_help
from regard.errors import InputError
from regard.models import QueryModelConfig
from regard.tasks import TASKS, TaskConfig
from regard.training import RunConfig, RunFolder, TrainingConfig, make_config

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
    config = make_config(task)
    name = config.build_task().name
    flags = _parse(config, argv, task=task)
    folder = RunFolder(flags.run.savepath / name)
    if flags.run.resume:
        stored = folder.read_config()
        _refuse_changes(stored, _parse(stored, argv, task=task))
        config = stored
    else:
        config = replace(config, size=flags.size, model=flags.model, training=flags.training)
    again = f"{PROG} {task} --resume" + (
        f" --savepath {flags.run.savepath}" if flags.run.savepath != Path(SAVEPATH) else ""
    )
    try:
        trained = train_run(
            folder, config, resume=flags.run.resume, overwrite=flags.run.overwrite, progress=True
        )
    except KeyboardInterrupt:
        sys.stderr.write(f"regard: stopped and saved in {folder.path}; continue with `{again}`\n")
        sys.exit(130)
    last = trained.metrics[-1]
    sys.stdout.write(
        f"Trained {name} for {trained.step} steps: loss {last['loss']:.4f}, "
        f"exact match {last['exact_match']:.0%} of the last batch. The run is in {folder.path}\n"
    )


def _parse(config: RunConfig, argv: list[str], *, task: str) -> TrainFlags:
    default = TrainFlags(size=config.size, model=config.model, training=config.training)
    described = f"Train a model on a task. TASK: {', '.join(TASKS)}, or a Python file that defines one. " + (
        "The defaults below are those of counting; name a task to see its own." if task == "TASK" else ""
    )
    return parse(default, argv, prog=f"{PROG} {task}", description=described)


def _refuse_changes(stored: RunConfig, flags: TrainFlags) -> None:
    """Raise `InputError` where a flag asks a resumed run to be another one."""
    pairs = ((stored.size, flags.size), (stored.model, flags.model), (stored.training, flags.training))
    for was, now in pairs:
        for name, value in fields_of(now).items():
            if value != getattr(was, name):
                raise InputError(
                    f"{name} {value} differs from the run's {getattr(was, name)}: a run goes on as it began; "
                    f"leave --{name} out, or train a new run"
                )
