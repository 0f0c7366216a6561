"""Examine several training seeds at once: `regard.examine_runs`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from regard.arguments import Limits, public
from regard.errors import InputError
from regard.interpret.examined_runs import ExaminedRuns
from regard.interpret.saved_examination import FILE, read_examination
from regard.progress import counting_bar, print_status
from regard.runs.loading import SAVEPATH, load
from regard.runs.run import Run
from regard.training.config import RunConfig

# Runs that differ only in their training seed.


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
