"""Measure how often explanation methods are right on models whose answer is known: `regard_lab.bench`."""

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from regard.arguments import Limits, public
from regard.io import check_folder, is_file, make_folder
from regard.progress import counting_bar
from regard.sweep.backends import run_in_processes, say_reused
from regard_lab.bench.catalogue import KnownModelChoice, choose_models
from regard_lab.bench.known_models import ResistsError
from regard_lab.bench.methods import ALL, Choice, ChosenMethod, choose_methods, reload_method
from regard_lab.bench.rankings import Cell, cell_path, draw_inputs, measure_cell, read_or_measure
from regard_lab.bench.result import BenchResult, group_columns, model_columns
from regard_lab.cards.probe_training import one_thread

SAVEPATH = "runs/bench"
"""Default folder of the bench: trained models and results."""
SEEDS = 5
"""Default number of seeds."""
SAMPLES, QUICK_SAMPLES = 40, 10
"""Number of unseen inputs of each model and seed."""


@dataclass(frozen=True)
class BenchJob:
    """All methods on one model with one seed."""

    model: KnownModelChoice
    seed: int
    methods: tuple[tuple[str, str], ...]  # text of the choice and name of each method
    samples: int
    folder: Path


@dataclass(frozen=True)
class BenchJobResult:
    """The cells of a job, or the reason why its model is left out."""

    cells: list[Cell]
    resisted: str | None = None
    reused: int = 0
    """Number of cells that were stored."""


@public
def bench(
    methods: Choice | Sequence[Choice] = ALL,
    *,
    models: str | Sequence[str] | None = None,
    seeds: Annotated[int, Limits(1, 1000)] = SEEDS,
    quick: bool = False,
    savepath: str | Path = SAVEPATH,
    progress: bool = True,
) -> BenchResult:
    """Measure explanation methods on models whose answer is known, and return the table.

    `methods`: "all", names of `regard.attribute`, a Python file or `module:function` of a user, or a function
    that takes a trial and returns its scores; the oracle (the truth) and a random ranking are always included.
    `models`: "all", kinds (compiled, trap, trained-in, learned) or names. `seeds`: number of training seeds, and
    of draws of inputs for compiled models and traps. `quick`: fewer inputs and, unless `models` is given, few
    trained models. `savepath`: folder of trained models and results; a repeated call measures only what is
    missing there. Results of functions that are passed as objects are not stored.

    Raises `InputError` for an unknown method or model, and `MachineError` if a process was terminated.

        print(regard.bench("attention,rollout", models="signal"))
    """
    folder, samples = Path(savepath), QUICK_SAMPLES if quick else SAMPLES
    check_folder(folder)
    chosen = choose_methods(methods)
    stored = tuple((method.text, method.name) for method in chosen if method.text is not None)
    jobs = [
        BenchJob(model, seed, stored, samples, folder)
        for model in choose_models(models, quick=quick)
        for seed in range(seeds)
    ]
    make_folder(folder)
    results: dict[BenchJob, BenchJobResult] = {}
    with counting_bar("bench", 0, len(jobs), show=progress) as advance:
        for job, result in run_in_processes(measure_job, jobs):
            own = _measure_objects(job, [method for method in chosen if method.text is None], result)
            results[job] = dataclasses.replace(result, cells=result.cells + own)
            advance()
    cells = sum(len(result.cells) for result in results.values())
    say_reused(sum(result.reused for result in results.values()), cells, folder, show=progress)
    return _make_result(chosen, [(job, results[job]) for job in jobs], seeds, samples, folder)


def measure_job(job: BenchJob) -> BenchJobResult:
    """Build or load the model of a job, and measure all methods that are not measured yet."""
    try:
        known = job.model.build(job.seed, job.folder)
    except ResistsError as error:
        return BenchJobResult([], str(error))
    subjects = draw_inputs(known, job.samples)
    methods = [reload_method(text, name) for text, name in job.methods]
    stored = sum(is_file(cell_path(subjects, method, job.folder)) for method in methods)
    return BenchJobResult([read_or_measure(subjects, method, job.folder) for method in methods], reused=stored)


def _measure_objects(job: BenchJob, methods: Sequence[ChosenMethod], result: BenchJobResult) -> list[Cell]:
    """Measure methods that are Python objects, in this process: another process cannot import them."""
    if not methods or result.resisted is not None:
        return []
    with one_thread():
        subjects = draw_inputs(job.model.build(job.seed, job.folder), job.samples)
        return [measure_cell(subjects, method) for method in methods]


def _make_result(
    methods: Sequence[ChosenMethod],
    results: Sequence[tuple[BenchJob, BenchJobResult]],
    seeds: int,
    samples: int,
    folder: Path,
) -> BenchResult:
    cells = [cell for _, result in results for cell in result.cells]
    columns = model_columns(cells)
    return BenchResult(
        methods=[method.name for method in methods],
        seeds=seeds,
        samples=samples,
        groups=group_columns(columns),
        columns=columns,
        left_out=dict(_left_out(cells)),
        resisted={
            f"{job.model.name}, seed {job.seed}": result.resisted
            for job, result in results
            if result.resisted is not None
        },
        folder=folder,
        cells=cells,
    )


def _left_out(cells: Sequence[Cell]) -> Iterator[tuple[str, list[str]]]:
    """Yield each method with the levels and models that it does not rank, grouped by reason."""
    reasons: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for cell in cells:
        for level, reason in cell.left_out.items():
            reasons[cell.method][f"{level}: {reason}"].add(cell.model)
    for method, models in reasons.items():
        yield method, [f"{reason} ({len(names)} models)" for reason, names in models.items()]
