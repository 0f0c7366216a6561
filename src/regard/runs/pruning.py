"""Pruning a run: leave out the heads that matter least, and save what is left as a smaller run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.interpret import Pruned, prune_heads
from regard.io import holding
from regard.runs.loading import load, of_one_run, read_run
from regard.training import RunFolder, digest, new_run

if TYPE_CHECKING:
    from regard.runs.kinds import AnyRun
    from regard.runs.run import Run


@dataclass(frozen=True, kw_only=True, repr=False)
class PruneReport(Pruned):
    """What pruning a run took away, and what it cost."""

    run: AnyRun
    """What is left."""


def prune(
    run: AnyRun,
    heads: int = 1,
    output: str | Path | None = None,
    *,
    seed: int = 0,
    overwrite: bool = False,
) -> PruneReport:
    """Take the `heads` least important heads out of a run's model, and save what is left as a run at `output`.

    None: beside the run, with `-pruned` at the end of its name.

    Which heads those are, `regard.interpret.prune_heads` finds, one after the other. Raises `InputError` where
    there are not so many to take away, or where another process writes at `output`.
    """
    target = run.folder.with_name(f"{run.folder.name}-pruned") if output is None else Path(output)
    with holding(target):
        return _prune(run, heads, target, seed=seed, overwrite=overwrite)


def _read(folder: RunFolder) -> tuple[Run, dict[str, str], list[dict[str, Any]]]:
    """Return a run, its vocabularies, and its metrics as far as its model goes: it may be trained meanwhile."""
    run = read_run(folder)
    metrics = [line for line in folder.read_metrics() if line["step"] <= run.step]
    return run, folder.read_vocabularies(run.config.tokenizer), metrics


def _prune(run: AnyRun, heads: int, target: Path, *, seed: int, overwrite: bool) -> PruneReport:
    # Apart from the run that was given, which stays as it is.
    pruned, vocabularies, metrics = of_one_run(run.files, lambda: _read(run.files))
    taken = prune_heads(pruned, heads, seed=seed)
    # Heads are called by their number in the whole model, of which this run may be a part already.
    kept_before, counted = pruned.config.kept_heads, taken.before.added
    whole = {layer: kept_before.get(layer, range(len(counted[layer]))) for layer in taken.left}
    kept = {layer: [whole[layer][head] for head in left] for layer, left in taken.left.items()}
    tokenizer = digest(vocabularies) if vocabularies else None
    config = dataclasses.replace(pruned.config, kept_heads=kept, tokenizer=tokenizer)
    with new_run(target, config, overwrite=overwrite) as folder:
        folder.write_vocabularies(vocabularies)
        for line in metrics:
            folder.append_metrics(line)
        folder.write_model(pruned.step, pruned.model.state_dict())
    left_run = load(target)
    return PruneReport(
        run=left_run,
        removed=[(layer, whole[layer][head]) for layer, head in taken.removed],
        samples=taken.before.samples,
        loss_before=taken.before.loss,
        loss_after=taken.after.loss,
        parameters_before=run.parameters,
        parameters_after=left_run.parameters,
    )
