"""What a training begins with: its config, task, text, validation and folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard import evaluation
from regard.data.unknown_tokens import write_unknown
from regard.errors import InputError
from regard.progress import print_status, progress_bar
from regard.runs.asking import asked, begun_from, going_on
from regard.runs.loading import read_run, stored_task
from regard.tasks import BatchContext
from regard.training import RunFolder, digest, digest_tensors, find_run, loop, new_run, trained_parameters
from regard.training.metrics import lost_steps

if TYPE_CHECKING:
    from regard.evaluation.validation import Validation
    from regard.runs.kinds import AnyRun
    from regard.tasks import AnyTask
    from regard.training import RunConfig, TrainingState, World


def config_of(
    folder: RunFolder,
    task: str | RunConfig,
    flags: dict[str, Any],
    start_from: str | Path | None,
    *,
    resume: bool,
    trust_code: bool,
) -> tuple[RunConfig, AnyRun | None]:
    """Return the config of a training in `folder`, and the run that it begins from, which may be beside it; None
    where it begins from none. Raises `InputError` for what cannot be asked."""
    if resume:
        return going_on(folder, task, flags, start_from, trust_code=trust_code), None
    if start_from is None:
        return asked(task, flags), None
    there = find_run(start_from, folder.path.parent, trust_edited=folder.trust_edited)
    before = read_run(there, trust_code=trust_code)
    return begun_from(before, task, flags), before


def text_of(config: RunConfig, *, resume: bool, show: bool) -> Any:
    """Return the digests of a training's text; raises `InputError` where it cannot be read."""
    try:
        return config.task_class.digests(config.task, progress=show)
    except InputError as error:
        if not resume:
            raise
        raise InputError(f"{error}; where the text was moved, say where it is: --resume --train ...") from error


def validation_of(config: RunConfig, built: AnyTask, *, resume: bool, show: bool) -> Validation | None:
    """Return what judges the models of a training; a resumed one keeps its BLEU tokenizer."""
    stored = config.bleu_tokenizer or "13a"  # runs that stored none were judged by 13a
    return evaluation.validation(built, tokenize=stored if resume else None, show=show)


def with_digests(config: RunConfig, built: AnyTask, validate: Validation | None, text: Any) -> RunConfig:
    """Return a config with the digests of vocabularies and text; `text`: None keeps those that it has."""
    return dataclasses.replace(
        config,
        tokenizer=digest(built.files) if built.files else None,
        bleu_tokenizer=None if validate is None else validate.tokenizer,
        text=config.text if text is None else text,
    )


def task_of(
    config: RunConfig, stored: RunFolder | None, before: AnyRun | None, prepared: Path, *, show: bool
) -> AnyTask:
    """Return the task of a run that is there, or of a new one, which has the vocabularies of the run `before` it,
    or may learn from its text first."""
    if stored is not None:
        return stored_task(config, stored)
    if before is not None:
        return config.task_class.restore(config.task, before.task.files)
    return config.task_class.prepare(config.task, prepared, progress=show)


def tell_frozen(state: TrainingState, *, show: bool) -> None:
    """Say how much of the model is trained, where that is not all of it."""
    parts = (state.model.parameters(), trained_parameters(state.model).values())
    every, mine = (sum(each.numel() for each in part) for part in parts)
    print_status(f"Training {mine:,} of {every:,} parameters", show=show and mine < every)


def beginning_of(state: TrainingState, prepared: Path, world: World, *, show: bool) -> BatchContext:
    """Return where in its data a training begins."""
    return BatchContext(
        generator=state.generator,
        place=state.progress.place,
        folder=prepared,
        sharing=(world.rank, world.size),
        progress=show,
    )


def open_run(
    folder: RunFolder,
    config: RunConfig,
    task: AnyTask,
    state: TrainingState,
    *,
    resume: bool,
    overwrite: bool,
    torchruns: frozenset[str] = frozenset(),
) -> None:
    """Make a run's folder, with its first checkpoint in it, or make ready the one that is there."""
    if resume:
        folder.cut_metrics(state.step)
        lost = lost_steps(folder.read_metrics(), state.step, config.training.steps, loop.METRICS_EVERY)
        if lost:
            print_status(
                f"regard: {str(folder.metrics_file)!r} has lost its lines of {len(lost):,} steps, {lost[0]} to "
                f"{lost[-1]}: the training goes on, without that part of its history",
                show=True,
            )
        folder.forget_older()
        folder.write_torchruns(torchruns)
        return
    config = dataclasses.replace(config, initial=digest_tensors(state.initial()))
    with new_run(folder.path, config, overwrite=overwrite) as building:
        building.write_vocabularies(task.files)
        write_unknown(building.path, getattr(task, "unknown", ()))
        state.begin(building)
        building.write_torchruns(torchruns)


@contextmanager
def telling(
    config: RunConfig, folder: RunFolder, step: int, world: World, *, show: bool
) -> Iterator[Callable[[dict[str, float]], None]]:
    """Yield what to call with each line of metrics, to be shown to a person and, where asked for, by
    TensorBoard."""
    with progress_bar(config.name, step, config.training.steps, show=show) as on_metrics:
        if not (world.first and config.training.tensorboard):
            yield on_metrics
            return
        from torch.utils.tensorboard import SummaryWriter

        # What was written past the step that is gone on from is written again.
        with SummaryWriter(str(folder.path / "tensorboard"), purge_step=step) as writer:

            def write(metrics: dict[str, float]) -> None:
                on_metrics(metrics)
                for name, value in metrics.items():
                    if name != "step":
                        writer.add_scalar(name, value, int(metrics["step"]))

            yield write
