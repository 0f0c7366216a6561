"""Pruning: remove the least important heads of a run, and save the result as a smaller run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.arguments import public
from regard.interpret.importance import Pruned, prune_heads
from regard.io import hold_lock
from regard.runs.loading import load, read_consistently, read_run
from regard.training.checkpoint import Checkpoint
from regard.training.run_folder import create_run, vocabulary_digest

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
    run: AnyRun,
    heads: int = 1,
    output: str | Path | None = None,
    *,
    seed: int = 0,
    overwrite: bool = False,
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
