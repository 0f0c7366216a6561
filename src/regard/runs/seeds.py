"""Measurements over runs that differ only in their seed: `regard.examine_runs`, and `regard.timeline`, the
development of every head over the snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from regard.arguments import Limits, public
from regard.attention.descriptions import describe_model
from regard.errors import InputError
from regard.fast.threads import limit_threads
from regard.interpret.examined_runs import ExaminedRuns
from regard.interpret.formation import SAMPLE_COUNT, THRESHOLD, join_snapshots
from regard.interpret.head_scores import SAMPLES, measure_heads
from regard.interpret.saved_examination import FILE, read_examination
from regard.interpret.timeline import Timeline
from regard.progress import counting_bar, print_status
from regard.runs.loading import SAVEPATH, load, read_task
from regard.runs.run import Run
from regard.training.building import build_model
from regard.training.checkpoint import load_snapshots
from regard.training.config import RunConfig
from regard.training.run_folder import find_run


def check_seeds(names: Sequence[str], configs: Sequence[RunConfig]) -> None:
    """Raise `InputError` unless runs have one task and shape, equal options, and different seeds. `names`: for
    messages.
    """
    first, expected = repr(names[0]), configs[0].flags()
    seeds = {configs[0].training.seed: first}
    for name, config in zip(map(repr, names[1:]), configs[1:], strict=True):
        if config.on != configs[0].on and config.name != configs[0].name:
            raise InputError(
                f"{first} is a run of {configs[0].name}, {name} of {config.name}: give runs of one task"
            )
        flags = config.flags()
        for flag in sorted((flags.keys() | expected.keys()) - {"seed"}):
            if flags.get(flag) != expected.get(flag):
                raise InputError(
                    f"{flag} is {expected.get(flag)} in {first} and {flags.get(flag)} in {name}: give runs that "
                    f"differ only in their seed"
                )
        if config.kept_heads != configs[0].kept_heads:
            raise InputError(
                f"{first} and {name} were pruned to different heads: give runs before pruning, or with the same "
                f"heads"
            )
        if config.training.seed in seeds:
            raise InputError(
                f"seed {config.training.seed} is that of {seeds[config.training.seed]} and of {name}: give each "
                f"seed once"
            )
        seeds[config.training.seed] = name


@public
def examine_runs(
    runs: Sequence[str | Path | Run[Any, Any]],
    *,
    samples: Annotated[int, Limits(2, 10**5)] = 200,
    seed: int = 0,
    savepath: str | Path = SAVEPATH,
    trust_code: bool = False,
    trust_edited: bool = False,
    progress: bool = True,
) -> ExaminedRuns:
    """Examine runs that differ only in their seed, each over `samples` unseen inputs, and compare the sets of
    their heads.

    `runs`: folders of runs, names of runs in `savepath`, or runs. The examination of a folder is saved there as
    examined.json. A repeated call reads it, if the run, `samples` and `seed` are the same. `progress`: show the
    number of examined runs on standard error. `trust_code`, `trust_edited`: as in `regard.load`.

    Raises `InputError` for runs of different tasks or shapes, with different options or steps, or equal seeds.

        print(regard.examine_runs(["seed0/signal2", "seed1/signal2", "seed2/signal2"]))
    """
    options = {"savepath": savepath, "trust_code": trust_code, "trust_edited": trust_edited}
    runs = [runs] if isinstance(runs, str | Path) else runs
    loaded = [run if isinstance(run, Run) else load(run, **options) for run in runs]  # type: ignore[arg-type]
    if not loaded:
        raise InputError("there are no runs: name the folders of one or more runs")
    names = [str(run.folder) for run in loaded]
    check_seeds(names, [run.config for run in loaded])
    for name, run in zip(names, loaded, strict=True):
        if run.step != loaded[0].step:
            raise InputError(
                f"{names[0]!r} has {loaded[0].step:,} training steps, {name!r} has {run.step:,}: continue an "
                f"interrupted training run with --resume"
            )
    examinations, stored = [], []
    with counting_bar("examine, runs", 0, len(loaded), show=progress) as advance:
        for name, given, run in zip(names, runs, loaded, strict=True):
            # A run in memory may have been changed, so its file is neither read nor written.
            in_memory = isinstance(given, Run)
            examination = None if in_memory else read_examination(run.files, samples, seed)
            if examination is not None:
                stored.append(name)
            else:
                examination = run.examine(samples=samples, seed=seed)
                if not in_memory:
                    examination.save(run.folder / FILE)
            examinations.append(examination)
            advance()
    if stored:
        print_status(f"read from {FILE}, not measured again: {', '.join(stored)}", show=progress)
    return ExaminedRuns(
        task=loaded[0].name,
        runs=names,
        seeds=[run.config.training.seed for run in loaded],
        examinations=examinations,
    )


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
    folders = [
        find_run(run, Path(savepath), trust_edited=trust_edited) if isinstance(run, str | Path) else run.files
        for run in runs
    ]
    if not folders:
        raise InputError("there are no runs: name the folders of one or more runs")
    for folder in folders:
        folder.check_snapshots()
    configs = [folder.read_config(trust_code=trust_code) for folder in folders]
    check_seeds([str(folder.path) for folder in folders], configs)
    names, first = [path.name for path in folders[0].snapshots], repr(str(folders[0].path))
    for folder in folders[1:]:
        if [snapshot.name for snapshot in folder.snapshots] != names:
            raise InputError(
                f"{first} has {len(names)} snapshots, {str(folder.path)!r} has {len(folder.snapshots)} or other "
                f"steps: continue an interrupted training run with --resume"
            )
    task = read_task(configs[0], folders[0])
    if task.answers == "text" and not task.draws:
        raise InputError(f"{task.name} draws no samples to measure its heads on: give runs of a task that does")
    drawn, count, developments = SAMPLES[task.answers](task, samples, seed), len(names), []
    with counting_bar("timeline, snapshots", 0, count * len(folders), show=progress, every=count) as advance:
        for folder, config in zip(folders, configs, strict=True):
            model, steps, scores = build_model(config, task), [], []
            with limit_threads(model):
                for step in load_snapshots(folder, model):
                    steps.append(step)
                    scores.append(measure_heads(model, drawn))
                    advance()
            developments.append(join_snapshots(str(folder.path), config.training.seed, steps, scores))
    return Timeline(
        task=task.name,
        kind=configs[0].kind,
        samples=samples,
        threshold=threshold,
        runs=developments,
        remark=describe_model(build_model(configs[0], task)),
    )
