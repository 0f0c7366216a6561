"""Train a model on a task: `regard.train`."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from regard.arguments import public
from regard.data.batch import PairBatch
from regard.data.unknown_tokens import FILE as UNKNOWN_FILE, write_unknown
from regard.errors import InputError, plural
from regard.evaluation.validation import language_validation, validation
from regard.fast.memory import keep_memory
from regard.fast.threads import limit_threads
from regard.io import is_file, is_folder, list_steps
from regard.libraries import import_library
from regard.machine import use_choices
from regard.progress import print_status, progress_bar
from regard.runs.loading import SAVEPATH, AnswerTask, LanguageTask, PairTask, TextTask, make_run, read_run, read_task
from regard.tasks.all_tasks import find_task
from regard.tasks.batch import BatchContext
from regard.training import trainer
from regard.training.building import start
from regard.training.checkpoint import Checkpoint, TrainingState, copy_tensors, remove_older_states, trained_parameters
from regard.training.config import Options, Origin, RunConfig, Schedule, changed_config, checked, make_config
from regard.training.distributed import DistributedContext, join_processes
from regard.training.run_folder import (
    RunFolder,
    check_run_path,
    create_run,
    digest_tensors,
    find_run,
    missing_steps,
    pack_tensors,
    vocabulary_digest,
)
from regard.training.trainer import PRECISION, Learner, Tick, Validate, measure_choices
from regard.training.trust_code import code_digests, trust

if TYPE_CHECKING:
    from regard.data.parallel import TextDigest
    from regard.runs.run_types import AnyRun
    from regard.runs.sequence_run import PairRun, TranslationRun
    from regard.runs.tensor_run import AnswerRun, LanguageRun
    from regard.tasks.base import AnyTask

PREPARED = "prepared"  # Name of the folder for prepared corpora and vocabularies, next to the runs
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
        display = _metrics_display(config, folder, first_step, context, show=show)
        with display as on_metrics, threads, use_choices(measured), _watch(state, config, folder, context) as tick:
            drops = config.model.dropout > 0
            learner = Learner(state, settings, batches, folder, context=context, drops=drops, tick=tick)
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
    """Return the config with the digests of text and vocabularies, the task, and the validation during training.

    `stored`: folder of a resumed run, which provides the vocabularies, the digests and the BLEU tokenizer. `before`:
    run that provides the vocabularies of a new run. None: the vocabularies are learned from text.
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


WATCHED = 8  # rows of the first batch on which `watch` measures the attention


@contextmanager
def _watch(
    state: TrainingState, config: RunConfig, folder: RunFolder, context: DistributedContext
) -> Iterator[Tick | None]:
    """Yield a function that measures the attention every `watch` steps; None without `watch`."""
    settings = config.training
    if not settings.watch:
        yield None
        return
    import torch

    from regard.interpret.health import FILE, TrainingWatch, watch  # slow to import

    watching: TrainingWatch | None = None

    def tick(batch: Any, step: int, loss: Any) -> None:
        nonlocal watching
        if watching is None:
            rows = batch.to(context.device)
            pair = isinstance(rows, PairBatch)
            parts: Any = (rows.source, rows.source_mask, rows.target_in) if pair else (rows.inputs, rows.mask)
            probe = tuple(part if part is None else part[:WATCHED] for part in parts)
            out = folder.path / "watch"
            options: dict[str, Any] = {"out": out, "every": settings.watch, "tensorboard": settings.tensorboard}
            watching = stack.enter_context(watch(state.model, probe=probe, resume=is_file(out / FILE), **options))
        with torch.compiler.set_stance("force_eager") if settings.compile else nullcontext():
            watching.tick(step)
        if loss is not None and step % settings.watch == 0:
            watching.note(loss=loss)

    with ExitStack() as stack:
        yield tick


# Config of a resumed run, and of a run that starts from another run.


TEXT_FLAGS = ("train", "valid", "extra_valid", "test", "guide", "hub", "text")
"""Flags that name text. Flags that name text files, which may have moved when a run is resumed."""
FREE_MODEL_FLAGS = ("dropout",)  # Flags of a model that do not affect the shapes of its parameters
FIXED_TRAINING_FLAGS = ("vary_len",)  # Training flags that affect the shapes of a model's parameters
SCHEDULE_FLAGS = ("steps", "lr")
"""Training flags that may change when a run is resumed: a new learning-rate schedule begins."""


def resumed_config(
    task: str | RunConfig,
    flags: dict[str, Any],
    savepath: Path,
    start_from: str | Path | None,
    trust_code: bool,
    trust_edited: bool,
) -> RunConfig:
    """Return the config of a stored run, with the paths of its text taken from the flags.

    Other `steps` or another `lr` begin a new learning-rate schedule (`rescheduled`). `compile` may differ, as
    the machine may have no compiler. Raises `InputError` for an unknown flag, and for another flag that differs
    from the stored flag.
    """
    name = find_task(task).name if isinstance(task, str) else task.name
    folder = RunFolder(savepath / name, trust_edited)
    stored = folder.read_config(trust_code=trust_code)
    now = code_digests(stored.json())
    if changed := [name for name, digest in stored.code.items() if now.get(name) != digest]:
        problem = f"{' and '.join(changed)} has changed since the run {str(folder.path)!r} began"
        if not trust_edited:
            raise InputError(
                f"{problem}: restore the code, or train a new run; if the change has no effect on the run, add "
                f"--trust_edited"
            )
        print_status(f"{problem}: the losses may differ", show=True)
    if isinstance(task, str):
        _check_preset(stored, flags)
        named = {name: value for name, value in flags.items() if name not in ("model", "preset")}
        wanted = {**changed_config(stored, named).resolved().flags(), "model": flags.get("model", stored.kind)}
        flags = {name: wanted[name] for name in (*named, "model")}
    else:
        flags = task.resolved().flags()
    before = stored.flags()
    if start_from is not None:
        origin = stored.origin and stored.origin.run
        paths = [str(path.absolute()) for path in (Path(start_from), savepath / start_from)]
        flags["from"], before["from"] = repr(origin if origin in paths else paths[0]), repr(origin)
    # The content of text is compared by its digests.
    moved = {name: value for name, value in flags.items() if name in TEXT_FLAGS}
    schedule = {name: flags[name] for name in SCHEDULE_FLAGS if flags.get(name, before[name]) != before[name]}
    compiled: dict[str, Any] = {name: value for name, value in flags.items() if name == "compile"}
    for name, value in flags.items():
        if value != before.get(name) and name not in (*moved, *schedule, *compiled):
            raise InputError(
                f"{name} {value} differs from the run's {before.get(name)}: a resumed run keeps its flags; "
                f"leave {name} out, or train a new run"
            )
    config = changed_config(stored, {**moved, **compiled})
    return rescheduled(config, folder, schedule) if schedule else config


def _check_preset(stored: RunConfig, flags: dict[str, Any]) -> None:
    """Raise `InputError` for a preset with other values than a stored run, besides those of the schedule."""
    if flags.get("preset") is None:
        return
    preset, before = make_config(stored.on, flags), stored.flags()
    free = {"model", *preset.options.flag_names("task")}
    for name, value in preset.flags().items():
        if name not in free and value != before.get(name) and name not in SCHEDULE_FLAGS:
            raise InputError(
                f"preset {flags['preset']} has {name} {value}, but the run has {before.get(name)}: a resumed run "
                f"keeps its flags; leave preset out, or train a new run"
            )


def rescheduled(config: RunConfig, folder: RunFolder, flags: Mapping[str, Any]) -> RunConfig:
    """Return the config of a stored run with other `steps` or another `lr`.

    A new schedule of warm-up and decay begins at the step of the last checkpoint. Raises `InputError` if no steps
    are left, and for a sharded run.
    """
    states = list_steps(folder.path / "trainer")
    changed = changed_config(config, flags)
    training = changed.training
    if config.training.sharded or not states:
        reason = "its state is sharded" if config.training.sharded else "its training state is missing"
        raise InputError(
            f"{', '.join(flags)} of run {str(folder.path)!r} cannot change, because {reason}: start a new run "
            f"from it with --from"
        )
    step = int(states[-1].stem.removeprefix("step-"))
    if training.steps <= step:
        raise InputError(f"the run already has {plural(step, 'step')}: give more, such as --steps {2 * step}")
    assert config.training.lr is not None and training.lr is not None
    past = config.schedules or [Schedule(first=0, steps=config.training.steps, lr=config.training.lr)]
    now = Schedule(first=step, steps=training.steps, lr=training.lr)
    return dataclasses.replace(changed, schedules=[*past, now])


def created_before_restart(
    folder: RunFolder, config: RunConfig, context: DistributedContext, *, overwrite: bool
) -> bool:
    """Return whether these processes created the run before a restart by torchrun, and continue it."""
    if not context.restarted:
        return False
    created = context.has_created(folder.path, unknown=not overwrite)
    same = created and folder.exists() and folder.read_config().flags() == config.flags()
    return bool(context.agree(same))


def continue_run(folder: RunFolder, config: RunConfig, state: TrainingState) -> None:
    """Prepare the folder of a stored run for more training steps."""
    folder.cut_metrics(state.step)
    if len(config.schedules) > len(folder.stored().get("schedules", [])):
        write_rescheduled(folder, config, state)
    lost = missing_steps(folder.read_metrics(), state.step, config.training.steps, trainer.METRICS_EVERY)
    if lost:
        print_status(
            f"regard: {str(folder.metrics_file)!r} lacks the lines of {plural(len(lost), 'step')}, {lost[0]} to "
            f"{lost[-1]}: training continues without this part of its history",
            show=True,
        )
    remove_older_states(folder)


def write_rescheduled(folder: RunFolder, config: RunConfig, state: TrainingState) -> None:
    """Replace a stored run by the same run with a new learning-rate schedule, atomically.

    Every tensor file contains the config, so that all of them are written again. Results that were computed from
    the model are not taken along, because the model changes. Raises `MachineError` if a file cannot be written.
    """
    state.progress.since_best = min(state.progress.since_best, 0)  # patience counts anew
    with create_run(folder.path, config, overwrite=True) as building:
        building.write_vocabularies(folder.read_vocabularies(config.tokenizer, config.task_class.file_names))
        copy_tensors(folder, building)
        Checkpoint(step=state.step, training=state.tensors()).save(building)
        for line in folder.read_metrics():
            building.append_metrics(line)
        if is_file(folder.path / UNKNOWN_FILE):
            shutil.copyfile(folder.path / UNKNOWN_FILE, building.path / UNKNOWN_FILE)
        for name in ("tensorboard", "watch"):
            if is_folder(folder.path / name):
                shutil.copytree(folder.path / name, building.path / name, symlinks=True)
        copied = {"trainer", "metrics.jsonl", *(path.name for path in building.path.iterdir())}  # metrics may be empty
        left_out = sorted(path.name for path in folder.path.iterdir() if path.name not in copied)
    print_status(f"New learning-rate schedule: {config.schedules[-1]}", show=True)
    if left_out:
        print_status(f"Removed results of the earlier model: {', '.join(left_out)}", show=True)


def check_text(config: RunConfig, text: Mapping[str, list[TextDigest]]) -> None:
    """Raise `InputError` if the digests show that the text of a resumed run has changed since the start."""
    for name in {**config.text, **text}:
        before, now = config.text.get(name, []), text.get(name, [])
        if now == before:
            continue
        places = config.flags()[name] or config.flags()["hub"]
        files = [str(place) for place in (places if isinstance(places, tuple) else (places,))]
        if name == "extra_valid":  # NAME=SOURCE,TARGET
            files = [file for text in files for file in text.partition("=")[2].split(",")]
        if len(now) != len(before):
            problem = f"{name} has {plural(len(now), 'file')}, and had {len(before)}"
        elif sorted(map(repr, now)) == sorted(map(repr, before)):
            problem = f"the files of {name} are in a different order: {', '.join(map(repr, files))}"
        else:
            changed = zip(files, before, now, strict=True)
            file, old, new = next((file, old, new) for file, old, new in changed if old != new)
            lines = f"it has {plural(new.lines, 'line')}, and had {old.lines:,}"
            if new.lines == old.lines:
                lines = f"it has {plural(new.lines, 'line')} as before, but different content"
            problem = f"{name} {file!r} has changed: {lines}"
        raise InputError(f"{problem}; a resumed run needs its original text: restore the text, or train a new run")


def derived_config(before: AnyRun, task: str | RunConfig, flags: dict[str, Any]) -> RunConfig:
    """Return the config of a run that starts from the run `before`, with the model and the vocabularies of `before`.

    Options that `flags` do not name are taken from the earlier run, except for text and `freeze`. Raises `InputError`
    for a run with a different task, and for a flag that changes the model or the vocabularies.
    """
    base = before.config
    flags = dict(task.flags() if isinstance(task, RunConfig) else flags)
    if (preset := flags.pop("preset", None)) is not None:
        raise InputError(
            f"preset {preset!r} sets the sizes of a new model, but --from takes the sizes from the other run: "
            f"leave preset out"
        )
    on = task.on if isinstance(task, RunConfig) else make_config(task).on
    if base.on != on:
        raise InputError(f"run {before.where!r} is a run of task {base.on}: start from a run of task {on}")
    if (model := flags.pop("model", base.kind)) != base.kind:
        raise _fixed_flag("model", model, base.kind, before)
    config = checked(changed_config(without_text(base), flags))
    config = dataclasses.replace(config, text={}, initial=None, schedules=[], averaged=[], measured={})
    free = {*base.task_class.texts, *base.task_class.loose, *FREE_MODEL_FLAGS}
    fixed = {*base.options.flag_names("task"), *base.options.flag_names("model"), *FIXED_TRAINING_FLAGS} - free
    for name, value in config.flags().items():
        if name in fixed and value != base.flags()[name]:
            raise _fixed_flag(name, value, base.flags()[name], before)
    weights = {name: value.cpu() for name, value in before.model.state_dict().items()}
    digest = hashlib.sha256(pack_tensors(weights, before.step, before.files.config_text)).hexdigest()
    origin = Origin(run=str(before.folder.absolute()), step=before.step, weights=digest)
    return dataclasses.replace(config, origin=origin).resolved()


def without_text(config: RunConfig) -> RunConfig:
    """Return a config without text and frozen parts: the defaults of a run that starts from `config`."""
    defaults = {option.name: option.default for option in dataclasses.fields(config.task_class.config_class)}
    texts = {name: defaults[name] for name in config.task_class.texts}
    return changed_config(config, {**texts, "freeze": ()})


def _fixed_flag(name: str, value: object, before: object, run: AnyRun) -> InputError:
    return InputError(
        f"{name} {value} differs from {before} of run {run.where!r}: a run keeps the model and the "
        f"vocabularies of the run from which it starts; leave out {name}, or train without --from"
    )
