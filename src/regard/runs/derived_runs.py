"""Runs that are made from another run: without its least important heads, or the mean of its kept models."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.arguments import public
from regard.errors import InputError, plural
from regard.interpret.importance import Pruned, prune_heads
from regard.io import hold_lock, list_steps
from regard.runs.loading import load, read_consistently, read_run
from regard.training.checkpoint import Checkpoint
from regard.training.run_folder import check_run_path, create_run, tensor_specs, vocabulary_digest

if TYPE_CHECKING:
    from regard.runs.run import Run
    from regard.runs.run_types import AnyRun


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class PruneReport(Pruned):
    """Removed heads, and the effect of their removal on loss and size."""

    run: AnyRun
    """The pruned run."""


@public
def prune(
    run: AnyRun, heads: int = 1, output: str | Path | None = None, *, seed: int = 0, overwrite: bool = False
) -> PruneReport:
    """Remove the least important heads of a run's model one by one, and save the result as a run at `output`.

    `heads`: number of heads to remove; `regard.interpret.importance.prune_heads` selects them. If `output` is None, the
    result is saved in the run's folder name with `-pruned` appended. Raises `InputError` for too many heads,
    and if another process writes to `output`.
    """
    target = run.folder.with_name(f"{run.folder.name}-pruned") if output is None else Path(output)

    def read() -> tuple[Run, dict[str, str], list[dict[str, Any]]]:
        """Return a copy of the run, its vocabularies, and its metrics."""
        copy, files = read_run(run.files), run.files
        # Ongoing training may have written metrics after the step of the model.
        metrics = [line for line in files.read_metrics() if line["step"] <= copy.step]
        return copy, files.read_vocabularies(copy.config.tokenizer, copy.task.file_names), metrics

    with hold_lock(target):
        pruned, vocabularies, metrics = read_consistently(run.files, read)
        removal = prune_heads(pruned, heads, seed=seed)
        # Heads are numbered as in the original model, because the run may have been pruned before.
        kept_before, importance = pruned.config.kept_heads, removal.before.added
        numbers = {layer: kept_before.get(layer, range(len(importance[layer]))) for layer in removal.left}
        kept = {layer: [numbers[layer][head] for head in left] for layer, left in removal.left.items()}
        tokenizer = vocabulary_digest(vocabularies) if vocabularies else None
        config = dataclasses.replace(pruned.config, kept_heads=kept, tokenizer=tokenizer)
        with create_run(target, config, overwrite=overwrite) as folder:
            folder.write_vocabularies(vocabularies)
            for line in metrics:
                folder.append_metrics(line)
            Checkpoint(step=pruned.step, weights=pruned.model.state_dict()).save(folder)
        left_run = load(target)
    return PruneReport(
        run=left_run,
        removed=[(layer, numbers[layer][head]) for layer, head in removal.removed],
        samples=removal.before.samples,
        loss_before=removal.before.loss,
        loss_after=removal.after.loss,
        parameters_before=run.parameters,
        parameters_after=left_run.parameters,
    )


# Checkpoint averaging (Vaswani et al. 2017, section 6.1).


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
