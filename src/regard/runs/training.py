"""Train a model on a task: `regard.train`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from regard.arguments import public
from regard.data.unknown_tokens import write_unknown
from regard.errors import InputError
from regard.evaluation.validation import language_validation, validation
from regard.fast.memory import keep_memory
from regard.fast.threads import limit_threads
from regard.libraries import import_library
from regard.machine import use_choices
from regard.progress import print_status, progress_bar
from regard.runs.loading import (
    SAVEPATH,
    AnswerTask,
    LanguageTask,
    PairTask,
    TextTask,
    make_run,
    read_run,
    read_task,
)
from regard.runs.run_config import (
    check_text,
    continue_run,
    created_before_restart,
    derived_config,
    resumed_config,
)
from regard.tasks.batch import BatchContext
from regard.training.adam import trained_parameters
from regard.training.building import start
from regard.training.config import Options, RunConfig, changed_config, checked, make_config
from regard.training.distributed import DistributedContext, join_processes
from regard.training.run_folder import (
    RunFolder,
    check_run_path,
    create_run,
    find_run,
    vocabulary_digest,
)
from regard.training.tensor_file import digest_tensors
from regard.training.trainer import PRECISION, Learner, measure_choices
from regard.training.trust_code import trust

if TYPE_CHECKING:
    from regard.runs.answer_run import AnswerRun
    from regard.runs.language_run import LanguageRun
    from regard.runs.pair_run import PairRun
    from regard.runs.run_types import AnyRun
    from regard.runs.translation_run import TranslationRun
    from regard.tasks.base import AnyTask
    from regard.training.trainer import Validate

PREPARED = "prepared"
"""Name of the folder for prepared corpora and vocabularies, next to the runs."""
Folder = str | Path
RunType = TypeVar("RunType")


@overload
def train(
    task: Options[RunType],
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
def train(task: AnswerTask, **flags: Any) -> AnswerRun[Any, Any]: ...
@overload
def train(task: PairTask, **flags: Any) -> PairRun[Any, Any]: ...
@overload
def train(task: TextTask, **flags: Any) -> TranslationRun[Any, Any]: ...
@overload
def train(task: LanguageTask, **flags: Any) -> LanguageRun[Any, Any]: ...
@overload
def train(task: str | RunConfig, **flags: Any) -> AnyRun: ...
@public
def train(
    task: Any,  # as in the overloads; the check of this type would import all tasks
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
    `start_from`: folder or name of a run of the same task. The new run starts with the parameters of that run
    and has the same model, vocabularies and other options, except for text and `freeze`. `resume`: continue the
    run in the folder with the same result as without an interruption. The text must be the same, but its files
    may have moved. Other `steps` or another `lr` begin a new schedule at the last checkpoint. `overwrite`:
    replace the run. `trust_code`, `trust_edited`: as in `load`. Under `torchrun`, all processes train together.
    Raises `InputError` for invalid options, and `MachineError` if a file cannot be written.

        run = regard.train("counting", steps=500)
    """
    if resume and overwrite:
        raise InputError("resume continues the run in the folder, overwrite replaces it: choose one of them")
    root, before = Path(savepath), None

    # Config: of the stored run, of the earlier run with other flags, or new.
    if isinstance(task, Options):
        task = checked(task.run_config())
    if not isinstance(task, str | RunConfig):
        raise InputError(f"task {task!r} is not a task: give its name, a Python file or a config")
    if isinstance(task, RunConfig) and flags and not resume:
        raise InputError(f"a config is given: leave out {', '.join(flags)}, or change these options in the config")
    if resume:
        config = resumed_config(task, flags, root, start_from, trust_code, trust_edited)
    elif start_from is not None:
        before = read_run(find_run(start_from, root, trust_edited=trust_edited), trust_code=trust_code)
        config = derived_config(before, task, flags)
    else:
        config = (make_config(task, flags) if isinstance(task, str) else task).resolved()
    if config.training.tensorboard:  # what torch.utils.tensorboard imports
        import_library("tensorboard.summary.writer.event_file_writer", "the flag tensorboard", "track")
    if config.custom_parts and not resume:  # whoever trains with code trusts it
        trust(config.json())

    folder, prepared = RunFolder(root / config.name, trust_edited), root / PREPARED
    # The models of the synthetic tasks are so small that a GPU would slow them down.
    processes = join_processes(gpu=not config.task_class.draws, sharded=config.training.sharded)
    with processes as context, context.lock(folder.path):
        show = progress and context.first
        if not resume and created_before_restart(folder, config, context, overwrite=overwrite):
            resume, config, before = True, folder.read_config(), None
        if not resume:
            check_run_path(folder.path, overwrite=overwrite)  # before minutes of preparation

        # Task, with its text and vocabularies.
        stored = folder if resume else None
        config, built, validate = _prepare_task(config, stored, before, prepared, context, show=show)

        # Model and training state.
        keep_memory()
        state = start(config, built, context, None if before is None else before.model.state_dict())
        before = None  # frees its parameters
        if resume:
            state.restore(folder)
        measured = config.measured or measure_choices(config.training.precision, context)
        config, settings = dataclasses.replace(config, measured=measured), config.training
        if settings.precision == "auto":
            settings = changed_config(config, {"precision": measured[PRECISION]}).training
            reason = "as at the start of the run" if resume else "the faster one on this machine"
            print_status(f"Precision: {measured[PRECISION]}, {reason}", show=show)
        if settings.freeze:
            total = sum(parameter.numel() for parameter in state.model.parameters())
            trained = sum(parameter.numel() for parameter in trained_parameters(state.model).values())
            print_status(f"Training {trained:,} of {total:,} parameters", show=show)

        # Batches and the folder of the run, with its first checkpoint.
        with context.first_before_others():
            place, ranks = state.progress.place, (context.rank, context.size)
            beginning = BatchContext(
                generator=state.generator, place=place, folder=prepared, sharing=ranks, progress=show
            )
            batches = built.batches(config.training, beginning)
            if context.first and resume:
                continue_run(folder, config, state)
            elif context.first:
                config = dataclasses.replace(config, initial=digest_tensors(state.initial()))
                with create_run(folder.path, config, overwrite=overwrite) as building:
                    if config.tokenizer is not None:
                        building.write_vocabularies(built.files)
                        write_unknown(building.path, getattr(built, "unknown", ()))
                    state.save_first(building)
            if context.first:
                context.note_created(folder.path)

        # Loop, which saves checkpoints.
        first_step = state.step
        threads = limit_threads(state.model) if built.draws else nullcontext()
        learner = Learner(state, settings, batches, folder, context=context, drops=config.model.dropout > 0)
        display = _metrics_display(config, folder, first_step, context, show=show)
        with display as on_metrics, threads, use_choices(measured):
            learner.train(on_metrics, validate=validate, first=config.first_step)
        context.wait()
    if built.draws and context.size == 1 and state.step > first_step:
        # The model already has the last saved parameters, so its file is not read.
        return make_run(folder, config, state.step, built, state.release_model())
    return read_run(folder)


def _prepare_task(
    config: RunConfig,
    stored: RunFolder | None,
    before: AnyRun | None,
    prepared: Path,
    context: DistributedContext,
    *,
    show: bool,
) -> tuple[RunConfig, AnyTask, Validate | None]:
    """Return the config with the digests of text and vocabularies, the task, and the validation during
    training.

    `stored`: folder of a resumed run, which provides the vocabularies, the digests and the BLEU tokenizer.
    `before`: run that provides the vocabularies of a new run. None: the vocabularies are learned from text.
    """
    task_class = config.task_class
    if task_class.draws:
        task = task_class.restore(config.task, {})
        return config, task, language_validation(task, config.training)
    try:
        text = task_class.digests(config.task, progress=show)
    except InputError as error:
        if stored is None:
            raise
        flag = "text" if task_class.answers == "tokens" else "train"
        raise InputError(f"{error}; if the text was moved, give its new path: --resume --{flag} ...") from error
    if stored is not None:
        check_text(config, text)
    with context.first_before_others():
        if stored is not None:
            task = read_task(config, stored)
        elif before is not None:
            task = task_class.restore(config.task, before.task.files)
        else:
            task = task_class.prepare(config.task, prepared, progress=show)
    tokenize = None if stored is None else config.bleu_tokenizer
    bleu = validation(task, config.training.criterion, tokenize=tokenize, show=show)
    config = dataclasses.replace(
        config,
        tokenizer=vocabulary_digest(task.files),
        bleu_tokenizer=None if bleu is None else bleu.tokenizer,
        text=config.text if stored is not None else text,
    )
    return config, task, bleu or language_validation(task, config.training)


@contextmanager
def _metrics_display(
    config: RunConfig, folder: RunFolder, step: int, context: DistributedContext, *, show: bool
) -> Iterator[Callable[[dict[str, float]], None]]:
    """Yield a function that shows metrics in a progress bar, and in TensorBoard if the config enables it."""
    with progress_bar(config.name, step, config.training.steps, show=show) as show_progress:
        if not (context.first and config.training.tensorboard):
            yield show_progress
            return
        from torch.utils.tensorboard import SummaryWriter

        # `purge_step` removes the events after the step from which the run is resumed, because training writes
        # them again.
        with SummaryWriter(str(folder.path / "tensorboard"), purge_step=step) as writer:

            def write(metrics: dict[str, float]) -> None:
                show_progress(metrics)
                for name, value in metrics.items():
                    if name not in ("step", "tokens"):
                        writer.add_scalar(name, value, int(metrics["step"]))

            yield write
