"""Checkpoint averaging: the mean of the kept models of a run, saved as another run (Vaswani et al. 2017,
section 6.1)."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.arguments import public
from regard.errors import InputError, plural
from regard.io import hold_lock, list_steps
from regard.runs.loading import load
from regard.training.checkpoint import Checkpoint
from regard.training.run_folder import check_run_path, create_run
from regard.training.tensor_file import tensor_specs

if TYPE_CHECKING:
    from regard.runs.run_types import AnyRun


@public
def average(run: AnyRun, output: str | Path | None = None, *, overwrite: bool = False) -> AnyRun:
    """Return a run whose parameters are the mean of the kept models of a run (`keep`), saved at `output`.

    If `output` is None, the result is saved in the run's folder name with `-averaged` appended. Raises
    `InputError` for a run with fewer than two kept models, and if another process writes to `output`.

        run = regard.train("translation", train="corpus.tsv", valid="valid.tsv", keep=5)
        regard.average(run).test()
    """
    target = run.folder.with_name(f"{run.folder.name}-averaged") if output is None else Path(output)
    if target.resolve() == run.folder.resolve():
        raise InputError(f"output {str(target)!r} is the run that is averaged: give another folder")
    files, expected = run.files, tensor_specs(run.model.state_dict())
    paths = list_steps(files.kept_folder)
    if len(paths) < 2:
        raise InputError(
            f"run {run.where!r} keeps {plural(len(paths), 'model')}, and a mean needs 2 or more: train with "
            f"--keep, such as --keep 5"
        )
    check_run_path(target, overwrite=overwrite, flag="--output")
    steps: list[int] = []
    totals: dict[str, Any] = {}
    for path in paths:  # oldest first, only one model in memory at a time
        model = Checkpoint.load_weights(files, path, expected)
        steps.append(model.step)
        last = model.weights or {}
        for name, value in last.items():
            if value.is_floating_point():
                totals[name] = totals.get(name, 0) + value.double()
    # The sums are float64. Tensors of whole numbers are those of the last model.
    means = {name: (total / len(steps)).to(last[name].dtype) for name, total in totals.items()}
    weights = {name: means.get(name, value) for name, value in last.items()}
    config: Any = dataclasses.replace(run.config, averaged=steps)
    with hold_lock(target), create_run(target, config, overwrite=overwrite, flag="--output") as folder:
        folder.write_vocabularies(files.read_vocabularies(run.config.tokenizer, run.task.file_names))
        for line in files.read_metrics():
            if line["step"] <= steps[-1]:
                folder.append_metrics(line)
        Checkpoint(step=steps[-1], weights=weights).save(folder)
    return load(target)
