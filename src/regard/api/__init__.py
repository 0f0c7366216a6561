"""Regard from Python: what the commands do, as calls with the same names and defaults.

    run = regard.train("signal2", heads=8)
    run.test()
    run.attend("BCCCBAABACCCA")

    run = regard.train("dates")
    run.translate(["3. Mai 1979", "14 juillet 1989"])

The command line calls these, so whatever it can do, a notebook can.
"""

from pathlib import Path
from typing import Any

from regard.api.answers import AnswerRun, TestReport
from regard.api.pairs import PairReport, PairRun
from regard.api.run import Run
from regard.attention import Sinusoidal
from regard.errors import InputError, check_range
from regard.models import QueryModel
from regard.progress import progress_bar
from regard.tasks import AnyTask, PairTask, find_task
from regard.training import (
    RunConfig,
    RunFolder,
    build_model,
    find_run,
    load_parameters,
    make_config,
    new_run,
    restore,
    start,
    train_steps,
)

__all__ = [
    "SAVEPATH",
    "AnswerRun",
    "PairReport",
    "PairRun",
    "Run",
    "TestReport",
    "load",
    "plot_positions",
    "train",
]

SAVEPATH = "models"


def train(
    task: str,
    *,
    savepath: str | Path = SAVEPATH,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    **flags: Any,
) -> AnswerRun | PairRun:
    """Train a model on a task and return the run, saved in a folder named for the task under `savepath`.

    `task`: a name (see `regard tasks`) or the path of a Python file with a task of your own. `flags`: those of
    `regard train TASK --help`, with the task's defaults; `model` names the model, where the task leaves a choice.
    `resume` continues the run that is there, exactly as if it had not stopped; `overwrite` replaces it.
    Raises `InputError` for what cannot be asked, `MachineError` where the disk refuses.
    """
    folder = RunFolder(Path(savepath) / find_task(task).name)
    if resume:
        stored = folder.read_config()
        # A flag that does not exist is refused before all else.
        make_config(task, {"model": stored.kind, **flags})
        config = _unchanged(stored, flags)
        built = config.build_task()
        state = restore(folder, config, built)
        folder.cut_metrics(state.step)
    else:
        config = make_config(task, flags).resolved()
        built = config.build_task()
        state = start(config, built)
        with new_run(folder.path, config, overwrite=overwrite) as building:
            state.save(building)
    with progress_bar(built.name, state.step, config.training.steps, show=progress) as on_metrics:
        train_steps(state, config, built, folder, on_metrics)
    return _run(folder, config, built, state.model, state.step)


def load(run: str | Path, *, savepath: str | Path = SAVEPATH) -> AnswerRun | PairRun:
    """Load a run by its folder, or by its task's name under `savepath`.

    Raises `InputError` where it is missing, damaged or not a run of Regard's. Nothing is unpickled; but a run
    on a task of one's own runs the Python file of that task, so load only those whose file you know.
    """
    folder = find_run(run, Path(savepath))
    config = folder.read_config()
    task = config.build_task()
    model = build_model(config, task)
    step = load_parameters(model, folder)
    return _run(folder, config, task, model, step)


def _run(folder: RunFolder, config: RunConfig, task: AnyTask, model: Any, step: int) -> AnswerRun | PairRun:
    """Return a run of the kind that its task asks for."""
    if isinstance(task, PairTask):
        return PairRun(folder.path, config, step, task, model.eval())
    return AnswerRun(folder.path, config, step, task, model.eval())


def plot_positions(
    path: str | Path = "positions.png",
    *,
    run: str | Path | None = None,
    width: int = 64,
    length: int = 100,
    savepath: str | Path = SAVEPATH,
) -> Path:
    """Draw the paper's sinusoidal positions, or those that `run` has learned, into a picture at `path`.

    `width` and `length` are of the sinusoidal ones. Raises `InputError` where these do not fit, or where the
    run has no positions.
    """
    from regard.inspection import waves  # brings matplotlib, which nothing else here needs

    if run is None:
        check_range("width", width, 1, 65_536)
        check_range("length", length, 1, 10_000)
        vectors, title = Sinusoidal(width).vectors(0, length), "Sinusoidal positions"
    else:
        loaded = load(run, savepath=savepath)
        if not isinstance(loaded.model, QueryModel) or loaded.model.positions is None:
            raise InputError(f"run {str(loaded.folder)!r} has no positions: train it with --pos_enc")
        vectors, title = loaded.model.positions.weight.detach(), f"Positions learned by {loaded.task.name}"
    return waves.plot_positions(vectors.numpy(), path, title)


def _unchanged(stored: RunConfig, flags: dict[str, Any]) -> RunConfig:
    """Return a stored config; raises `InputError` where a flag asks the run to be another one."""
    for name, value in flags.items():
        if value != stored.flags().get(name):
            raise InputError(
                f"{name} {value} differs from the run's {stored.flags().get(name)}: a run goes on as it began; "
                f"leave {name} out, or train a new run"
            )
    return stored
