"""Train a model on a task: `regard.train`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from regard import evaluation, training
from regard.data.unknown_tokens import write_unknown
from regard.errors import InputError
from regard.fast.memory import keep_memory
from regard.io import hold_lock
from regard.progress import print_status, progress_bar
from regard.runs.loading import SAVEPATH, AnswerTask, PairTask, TextTask, load, make_run, read_run, read_task
from regard.runs.run_config import check_text, derived_config, new_config, resumed_config, task_name
from regard.tasks import BatchContext
from regard.training import (
    SINGLE_PROCESS,
    DistributedContext,
    RunConfig,
    RunFolder,
    SingleLearner,
    check_run_path,
    create_run,
    digest_tensors,
    find_run,
    join_processes,
    limit_threads,
    start,
    train_steps,
    trained_parameters,
    vocabulary_digest,
)
from regard.training import trainer as training_loop
from regard.training.checkpoint import remove_older_states
from regard.training.metrics import missing_steps

if TYPE_CHECKING:
    from regard.evaluation.validation import Validation
    from regard.runs.answer_run import AnswerRun
    from regard.runs.pair_run import PairRun
    from regard.runs.run_types import AnyRun
    from regard.runs.task_configs import FlatConfig
    from regard.runs.translation_run import TranslationRun
    from regard.tasks import AnyTask
    from regard.training import TrainingState

PREPARED = "prepared"
"""Folder of corpora and vocabularies, next to the runs."""
Folder = str | Path
RunType = TypeVar("RunType")


@overload
def train(
    task: FlatConfig[RunType],
    *,
    savepath: Folder = ...,
    start_from: Folder | None = ...,
    resume: bool = ...,
    overwrite: bool = ...,
    progress: bool = ...,
    trust_code: bool = ...,
    trust_edited: bool = ...,
) -> RunType: ...
@overload
def train(task: AnswerTask, **flags: Any) -> AnswerRun[Any, Any, Any]: ...
@overload
def train(task: PairTask, **flags: Any) -> PairRun[Any, Any, Any]: ...
@overload
def train(task: TextTask, **flags: Any) -> TranslationRun[Any, Any, Any]: ...
@overload
def train(task: str | RunConfig, **flags: Any) -> AnyRun: ...
def train(
    task: str | RunConfig | FlatConfig[Any],
    *,
    savepath: Folder = SAVEPATH,
    start_from: Folder | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    trust_code: bool = False,
    trust_edited: bool = False,
    **flags: Any,
) -> Any:
    """Train a model on a task, and return the run, saved in `savepath/TASK`.

    `task`: a name (see `regard tasks`), the path of a Python file with a custom task, or a config such as
    `regard.CountingConfig(steps=500)` or the result of `regard.make_config`. `flags`: the flags of
    `regard train TASK --help`; `model` names the model, and `preset` the size of a Transformer for translation.
    `start_from`: folder or name of a run of the same task. The new run starts with its parameters, and has its
    model, its vocabularies and its other options, except for text and `freeze`. `resume`: continue the run in the
    folder exactly, with the same text, whose files may have moved. `overwrite`: replace it. `trust_code`,
    `trust_edited`: as in `load`. Under `torchrun`, all processes train together.

    Raises `InputError` for options that do not fit, and `MachineError` if the disk refuses.

        run = regard.train("counting", steps=500)
        run.test()
    """
    if resume and overwrite:
        raise InputError("resume continues the run in the folder, overwrite replaces it: choose one")
    if not isinstance(task, str | RunConfig):
        task = task.run_config()
    folder = RunFolder(Path(savepath) / task_name(task), trust_edited)
    config, before = _config_and_origin(folder, task, flags, start_from, resume=resume, trust_code=trust_code)
    # The models of the synthetic tasks are so small that a GPU would slow them down.
    with join_processes(gpu=not config.task_class.draws) as context, context.lock(folder.path):
        if not resume and context.restarted and context.agree(_is_same_run(folder, config)):
            resume, config, before = True, folder.read_config(), None
        if not resume:
            check_run_path(folder.path, overwrite=overwrite)  # before minutes of preparation
        show = progress and context.first
        prepared = Path(savepath) / PREPARED
        text = _text_digests(config, resume=resume, show=show)
        with context.first_before_others():
            built = _build_task(config, folder if resume else None, before, prepared, show=show)
        keep_memory()
        validate = _validation(config, built, resume=resume, show=show)
        config = _add_digests(config, built, validate, None if resume else text)
        state = start(config, built, context, None if before is None else before.model.state_dict())
        before = None  # frees its parameters
        if show and config.training.freeze:
            _report_frozen(state)
        if resume:
            state.restore(folder)
        with context.first_before_others():
            batches = built.batches(config.training, _beginning(state, prepared, context, show=show))
        with context.first_before_others():
            if context.first:
                config = _open_run(folder, config, built, state, resume=resume, overwrite=overwrite)
        first_step, drops = state.step, config.model.dropout > 0
        learner = SingleLearner(state, config.training, batches, folder, context=context, drops=drops)
        _run_steps(learner, config, validate, show=show)
    if built.draws and context.size == 1 and state.step > first_step:
        # The last weights are those to use, so the model need not be read back from its file.
        return make_run(folder, config, state.step, built, state.release_model())
    return read_run(folder)


def _run_steps(learner: SingleLearner, config: RunConfig, validate: Validation | None, *, show: bool) -> None:
    """Train to the last step, with a display of the metrics, and wait for all processes."""
    threads = limit_threads(learner.state.model) if config.task_class.draws else nullcontext()
    with threads, _metrics_display(config, learner, show=show) as on_metrics:
        train_steps(learner, config.training, on_metrics, validate=validate)
    learner.wait()


def train_seeds(task: str, savepaths: Sequence[Folder], *, seeds: Sequence[int], **flags: Any) -> list[AnyRun]:
    """Train query models of several seeds at once, each into a separate folder, and return the runs.

    `flags`: options that the seeds share, as in `train`. Runs that exist already are resumed. Raises `InputError`
    as `train` does, and if the existing runs are at different steps.
    """
    configs = [new_config(task, {**flags, "seed": seed}) for seed in seeds]
    folders = [RunFolder(Path(savepath) / configs[0].name) for savepath in savepaths]
    tasks = [config.task_class.restore(config.task, {}) for config in configs]
    states = [start(config, built) for config, built in zip(configs, tasks, strict=True)]
    with ExitStack() as locks:
        for folder, config, built, state in zip(folders, configs, tasks, states, strict=True):
            locks.enter_context(hold_lock(folder.path))
            if folder.exists():
                state.restore(folder)
            _open_run(folder, config, built, state, resume=folder.exists(), overwrite=False)
        if len({state.step for state in states}) > 1:
            raise InputError("the runs are at different steps: train each one alone")
        batches = [
            built.batches(config.training, _beginning(state, Path(PREPARED), SINGLE_PROCESS, show=False))
            for built, config, state in zip(tasks, configs, states, strict=True)
        ]
        settings = configs[0].training
        train_steps(training.StackedLearner(states, settings, batches, folders), settings)
    return [load(folder.path) for folder in folders]


def _config_and_origin(
    folder: RunFolder,
    task: str | RunConfig,
    flags: dict[str, Any],
    start_from: Folder | None,
    *,
    resume: bool,
    trust_code: bool,
) -> tuple[RunConfig, AnyRun | None]:
    """Return the config of a training, and the run that it starts from, if any."""
    if resume:
        return resumed_config(folder, task, flags, start_from, trust_code=trust_code), None
    if start_from is None:
        return new_config(task, flags), None
    origin = find_run(start_from, folder.path.parent, trust_edited=folder.trust_edited)
    before = read_run(origin, trust_code=trust_code)
    return derived_config(before, task, flags), before


def _is_same_run(folder: RunFolder, config: RunConfig) -> bool:
    """Return whether a folder holds a run of the same flags, which torchrun's restarted processes continue."""
    return folder.exists() and folder.read_config().flags() == config.flags()


def _text_digests(config: RunConfig, *, resume: bool, show: bool) -> Any:
    """Return the digests of a training's text; raises `InputError` for unreadable or changed text."""
    try:
        text = config.task_class.digests(config.task, progress=show)
    except InputError as error:
        if not resume:
            raise
        raise InputError(f"{error}; if the text was moved, give its new place: --resume --train ...") from error
    if resume:
        check_text(config, text)
    return text


def _build_task(
    config: RunConfig, stored: RunFolder | None, before: AnyRun | None, prepared: Path, *, show: bool
) -> AnyTask:
    """Return the task of a stored run, or of a new one: with the vocabularies of `before`, or learned from
    text."""
    if stored is not None:
        return read_task(config, stored)
    if before is not None:
        return config.task_class.restore(config.task, before.task.files)
    return config.task_class.prepare(config.task, prepared, progress=show)


def _validation(config: RunConfig, task: AnyTask, *, resume: bool, show: bool) -> Validation | None:
    """Return the validation of a training; a resumed run keeps its BLEU tokenizer."""
    if task.draws:
        return None
    stored = config.bleu_tokenizer or "13a"  # the tokenizer of runs that did not store it
    return evaluation.validation(task, tokenize=stored if resume else None, show=show)


def _add_digests(config: RunConfig, task: AnyTask, validate: Validation | None, text: Any) -> RunConfig:
    """Return a config with the digests of vocabularies and text; `text` None keeps the digests of the config."""
    return dataclasses.replace(
        config,
        tokenizer=vocabulary_digest(task.files) if task.files else None,
        bleu_tokenizer=None if validate is None else validate.tokenizer,
        text=config.text if text is None else text,
    )


def _report_frozen(state: TrainingState) -> None:
    """Report how many parameters are trained, of a model with frozen parts."""
    parts = (state.model.parameters(), trained_parameters(state.model).values())
    total, trained = (sum(parameter.numel() for parameter in part) for part in parts)
    print_status(f"Training {trained:,} of {total:,} parameters", show=True)


def _beginning(state: TrainingState, prepared: Path, context: DistributedContext, *, show: bool) -> BatchContext:
    """Return the position in the data at which a training begins."""
    return BatchContext(
        generator=state.generator,
        place=state.progress.place,
        folder=prepared,
        sharing=(context.rank, context.size),
        progress=show,
    )


def _open_run(
    folder: RunFolder, config: RunConfig, task: AnyTask, state: TrainingState, *, resume: bool, overwrite: bool
) -> RunConfig:
    """Create a run's folder with its first checkpoint, or prepare an existing one for more steps; return its
    config."""
    if not resume:
        config = dataclasses.replace(config, initial=digest_tensors(state.initial()))
        with create_run(folder.path, config, overwrite=overwrite) as building:
            if task.files:
                building.write_vocabularies(task.files)
                write_unknown(building.path, getattr(task, "unknown", ()))
            state.save_first(building)
        return config
    folder.cut_metrics(state.step)
    steps = config.training.steps
    lost = missing_steps(folder.read_metrics(), state.step, steps, training_loop.METRICS_EVERY)
    if lost:
        print_status(
            f"regard: {str(folder.metrics_file)!r} has lost its lines of {len(lost):,} steps, {lost[0]} to "
            f"{lost[-1]}: the training continues without this part of its history",
            show=True,
        )
    remove_older_states(folder)
    return config


@contextmanager
def _metrics_display(
    config: RunConfig, learner: SingleLearner, *, show: bool
) -> Iterator[Callable[[dict[str, float]], None]]:
    """Yield a function that shows metrics in a progress bar, and in TensorBoard if the config asks for it."""
    step = learner.step
    with progress_bar(config.name, step, config.training.steps, show=show) as show_progress:
        if not (learner.context.first and config.training.tensorboard):
            yield show_progress
            return
        from torch.utils.tensorboard import SummaryWriter

        # `purge_step` removes events after the step from which the run is resumed: they are written again.
        with SummaryWriter(str(learner.folder.path / "tensorboard"), purge_step=step) as writer:

            def write(metrics: dict[str, float]) -> None:
                show_progress(metrics)
                for name, value in metrics.items():
                    if name != "step":
                        writer.add_scalar(name, value, int(metrics["step"]))

            yield write
