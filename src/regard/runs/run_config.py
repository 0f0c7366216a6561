"""Config of a resumed run, and of a run that starts from another run."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.unknown_tokens import FILE as UNKNOWN_FILE
from regard.errors import InputError, plural
from regard.io import is_file, is_folder, list_steps
from regard.progress import print_status
from regard.tasks.all_tasks import find_task
from regard.training import trainer
from regard.training.checkpoint import Checkpoint, copy_tensors, remove_older_states
from regard.training.config import Origin, RunConfig, Schedule, changed_config, checked, make_config
from regard.training.run_folder import RunFolder, create_run, missing_steps
from regard.training.tensor_file import pack_tensors
from regard.training.trust_code import code_digests

if TYPE_CHECKING:
    from collections.abc import Mapping

    from regard.data.parallel import TextDigest
    from regard.runs.run_types import AnyRun
    from regard.training.checkpoint import TrainingState
    from regard.training.distributed import DistributedContext

TEXT_FLAGS = ("train", "valid", "extra_valid", "test", "guide", "hub", "text")
"""Flags that name text. Flags that name text files, which may have moved when a run is resumed."""
FREE_MODEL_FLAGS = ("dropout",)
"""Flags of a model that do not affect the shapes of its parameters."""
FIXED_TRAINING_FLAGS = ("vary_len",)
"""Training flags that affect the shapes of a model's parameters."""
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
    """Return whether these processes created the run before torchrun restarted them. The processes then
    continue the run."""
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
        if is_folder(folder.path / "tensorboard"):
            shutil.copytree(folder.path / "tensorboard", building.path / "tensorboard", symlinks=True)
        left_out = [path.name for path in sorted(folder.path.iterdir()) if not (building.path / path.name).exists()]
    now = config.schedules[-1]
    print_status(f"New learning-rate schedule: {now}", show=True)
    copied = {"trainer", "metrics.jsonl"}  # empty metrics have no new file
    if left_out := [name for name in left_out if name not in copied]:
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
    """Return the config of a run that starts from the run `before`, with the model and the vocabularies of
    `before`.

    Options that `flags` do not name are taken from the earlier run, except for text and `freeze`. Raises
    `InputError` for a run with a different task, and for a flag that changes the model or the vocabularies.
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
