"""The development of every head over the snapshots of runs: `regard.timeline`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from regard.arguments import Limits, public
from regard.attention.descriptions import describe_model
from regard.errors import InputError
from regard.fast.threads import limit_threads
from regard.interpret.formation import SAMPLE_COUNT, THRESHOLD, join_snapshots
from regard.interpret.head_scores import SAMPLES, measure_heads
from regard.interpret.timeline import Timeline
from regard.progress import counting_bar
from regard.runs.examined_runs import check_seeds
from regard.runs.loading import SAVEPATH, read_task
from regard.training.building import build_model
from regard.training.checkpoint import Checkpoint
from regard.training.run_folder import find_run
from regard.training.tensor_file import tensor_specs

if TYPE_CHECKING:
    from regard.interpret.formation import Development
    from regard.interpret.head_scores import Samples
    from regard.runs.run import Run
    from regard.tasks.base import AnyTask
    from regard.training.config import RunConfig
    from regard.training.run_folder import RunFolder


@public
def timeline(
    runs: Sequence[str | Path | Run[Any, Any]],
    *,
    samples: Annotated[int, Limits(2, 10**6)] = SAMPLE_COUNT,
    threshold: float = THRESHOLD,
    seed: int = 0,
    savepath: str | Path = SAVEPATH,
    trust_code: bool = False,
    trust_edited: bool = False,
    progress: bool = True,
) -> Timeline:
    """Measure every head at all snapshots of runs that differ only in their seed.

    `runs`: runs, folders of runs, or names of runs in `savepath`. `samples`: number of samples, the same for all
    snapshots, drawn by `seed`. `threshold`: score (above 0, below 1) from which a head has a role. `progress`:
    show the number of measured snapshots on standard error. `trust_code`, `trust_edited`: as in `regard.load`.

    Raises `InputError` for runs without snapshots, of different tasks, or with different options, for equal
    seeds, and for a model without attention.

        print(regard.timeline(["seed0/induction", "seed1/induction"]))
    """
    if not 0 < threshold < 1:
        raise InputError(f"threshold {threshold} is out of range: choose above 0 and below 1")
    folders = [_folder_of(run, Path(savepath), trust_edited=trust_edited) for run in runs]
    if not folders:
        raise InputError("there are no runs: name the folders of one or more runs")
    configs = [folder.read_config(trust_code=trust_code) for folder in folders]
    check_seeds([str(folder.path) for folder in folders], configs)
    _check_snapshots(folders)
    task = read_task(configs[0], folders[0])
    if task.answers == "text" and not task.draws:
        raise InputError(f"{task.name} draws no samples to measure its heads on: give runs of a task that does")
    drawn, count = SAMPLES[task.answers](task, samples, seed), len(folders[0].snapshots)
    with counting_bar("timeline, snapshots", 0, count * len(folders), show=progress, every=count) as advance:
        developments = [
            _measure_run(folder, config, task, drawn, advance)
            for folder, config in zip(folders, configs, strict=True)
        ]
    return Timeline(
        task=task.name,
        kind=configs[0].kind,
        samples=samples,
        threshold=threshold,
        runs=developments,
        remark=describe_model(build_model(configs[0], task)),
    )


def _measure_run(
    folder: RunFolder, config: RunConfig, task: AnyTask, samples: Samples, advance: Callable[[], None]
) -> Development:
    """Measure all snapshots of a run; `advance` is called after each of them."""
    model = build_model(config, task)
    expected = tensor_specs(model.state_dict(), half=True)
    steps, scores = [], []
    with limit_threads(model):
        for path in folder.snapshots:
            snapshot = Checkpoint.load_weights(folder, path, expected)
            model.load_state_dict(snapshot.weights or {})
            steps.append(snapshot.step)
            scores.append(measure_heads(model, samples))
            advance()
    return join_snapshots(str(folder.path), config.training.seed, steps, scores)


def _folder_of(run: str | Path | Run[Any, Any], savepath: Path, *, trust_edited: bool) -> RunFolder:
    """Return the folder of a run; raises `InputError` if it has no snapshots."""
    folder = find_run(run, savepath, trust_edited=trust_edited) if isinstance(run, str | Path) else run.files
    if not folder.snapshots:
        raise InputError(f"run {str(folder.path)!r} has no snapshots: train it with --snapshots 50")
    return folder


def _check_snapshots(folders: Sequence[RunFolder]) -> None:
    """Raise `InputError` unless all runs have snapshots of the same steps."""
    steps, name = [path.name for path in folders[0].snapshots], repr(str(folders[0].path))
    for folder in folders[1:]:
        if [snapshot.name for snapshot in folder.snapshots] != steps:
            raise InputError(
                f"{name} has {len(steps)} snapshots, {str(folder.path)!r} has {len(folder.snapshots)} or other "
                f"steps: continue an interrupted training run with --resume"
            )
