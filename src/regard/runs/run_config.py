"""What is asked of a training: the config of a new run, of one that goes on, of one that begins from another."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import InputError
from regard.libraries import import_library
from regard.tasks import find_task
from regard.training import Origin, RunConfig, RunFolder, changed_config, make_config, trust

if TYPE_CHECKING:
    from collections.abc import Mapping

    from regard.data.parallel import TextDigest
    from regard.runs.run_types import AnyRun

PLACES = ("train", "valid", "test", "guide", "hub")
"""Flags that say where text is, which may be elsewhere when a run goes on."""
OTHERWISE = ("dropout",)
"""Flags of a model that decide none of its parameters."""
SIZES = ("vary_len",)
"""Flags of a training that decide some."""


def name_of(task: str | RunConfig) -> str:
    """Return the name of a task, and of its runs' folder."""
    return task.name if isinstance(task, RunConfig) else find_task(task).name


def asked(task: str | RunConfig, flags: dict[str, Any]) -> RunConfig:
    """Return the config of a new run; raises `InputError` for what cannot be asked."""
    _check_alone(task, flags)
    return _ready(task if isinstance(task, RunConfig) else make_config(task, flags))


def going_on(
    folder: RunFolder,
    task: str | RunConfig,
    flags: dict[str, Any],
    start_from: str | Path | None = None,
    *,
    trust_code: bool,
) -> RunConfig:
    """Return the config of the run that is there, with its text where the flags say that it is now.

    Raises `InputError` where a flag does not exist, or asks the run to be another one.
    """
    stored = folder.read_config(trust_code=trust_code)
    if isinstance(task, str):
        named = {name: value for name, value in flags.items() if name not in ("model", "preset")}
        wanted = {**changed_config(stored, named).resolved().flags(), "model": flags.get("model", stored.kind)}
        flags = {name: wanted[name] for name in (*named, "model")}
    else:
        flags = task.resolved().flags()
    before = stored.flags()
    if start_from is not None:
        origin = stored.origin and stored.origin.run
        found = [str(path.absolute()) for path in (Path(start_from), folder.path.parent / start_from)]
        flags["from"], before["from"] = repr(origin if origin in found else found[0]), repr(origin)
    # The content of text is compared by its digests, which runs of earlier formats do not have.
    moved = {name: value for name, value in flags.items() if stored.text and name in PLACES}
    for name, value in flags.items():
        if value != before.get(name) and name not in moved:
            raise InputError(
                f"{name} {value} differs from the run's {before.get(name)}: a run goes on as it began; "
                f"leave {name} out, or train a new run"
            )
    return dataclasses.replace(stored, task=dataclasses.replace(stored.task, **moved))


def check_text(config: RunConfig, text: Mapping[str, list[TextDigest]]) -> None:
    """Raise `InputError` where the text that a run is to go on with, by its digests, is not the one that it began
    with."""
    for name, before in config.text.items():
        now = text.get(name, [])
        if now == before:
            continue
        places = config.flags()[name] or config.flags()["hub"]
        named = [str(each) for each in (places if isinstance(places, tuple) else (places,))]
        if len(now) != len(before):
            what = f"{name} has {len(now)} files, and had {len(before)}"
        elif sorted(map(repr, now)) == sorted(map(repr, before)):
            what = f"the files of {name} stand in another order: {', '.join(map(repr, named))}"
        else:
            files = zip(named, before, now, strict=True)
            place, old, new = next((place, old, new) for place, old, new in files if old != new)
            lines = f"it has {new.lines:,} lines, and had {old.lines:,}"
            if new.lines == old.lines:
                lines = f"it has {new.lines:,} lines as before, but not the same ones"
            what = f"{name} {place!r} has changed: {lines}"
        raise InputError(
            f"{what}; a run goes on with the text that it began with: restore it, or train a new run"
        )


def begun_from(before: AnyRun, task: str | RunConfig, flags: dict[str, Any]) -> RunConfig:
    """Return the config of a run that begins from the one `before` it: with its model and vocabularies, and all
    that `flags` do not say as it is there, but for text and what was frozen.

    Raises `InputError` where it is of another task, or a flag asks for another model or vocabulary.
    """
    _check_alone(task, flags)
    there = before.config
    flags = dict(task.flags() if isinstance(task, RunConfig) else flags)
    if (preset := flags.pop("preset", None)) is not None:
        raise InputError(
            f"preset {preset!r} is for a new model, and one that begins from a run has its sizes: leave it out"
        )
    on = task.on if isinstance(task, RunConfig) else make_config(task).on
    if there.on != on:
        raise InputError(f"run {before.where!r} is of task {there.on}: begin from a run of {on}")
    if (model := flags.pop("model", there.kind)) != there.kind:
        raise _another("model", model, there.kind, before)
    config = dataclasses.replace(changed_config(without_text(there), flags), text={}, initial=None)
    free = {*there.task_class.texts, *there.task_class.loose, *OTHERWISE}
    decided = {*vars(there.task), *vars(there.model), *SIZES} - free
    for name, value in config.flags().items():
        if name in decided and value != there.flags()[name]:
            raise _another(name, value, there.flags()[name], before)
    weights = {name: value.cpu() for name, value in before.model.state_dict().items()}
    digest = hashlib.sha256(RunFolder(before.folder).pack(weights, before.step)).hexdigest()
    origin = Origin(run=str(before.folder.absolute()), step=before.step, weights=digest)
    return _ready(dataclasses.replace(config, origin=origin))


def _check_alone(task: str | RunConfig, flags: dict[str, Any]) -> None:
    if isinstance(task, RunConfig) and flags:
        raise InputError(f"a config is given: leave out {', '.join(flags)}, or change them in it")


def without_text(config: RunConfig) -> RunConfig:
    """Return a config that names no text and freezes nothing: the defaults of a run that begins from this one."""
    fresh = {each.name: each.default for each in dataclasses.fields(config.task_class.config_class)}
    task = dataclasses.replace(config.task, **{name: fresh[name] for name in config.task_class.texts})
    return dataclasses.replace(config, task=task, training=dataclasses.replace(config.training, freeze=()))


def _another(name: str, value: object, before: object, run: AnyRun) -> InputError:
    return InputError(
        f"{name} {value} differs from {before} of run {run.where!r}: a run has the model and the vocabularies of "
        f"the one it begins from; leave {name} out, or train without --from"
    )


def _ready(config: RunConfig) -> RunConfig:
    """Return a config that is to be trained, its code trusted from now on; raises `InputError` where what it
    needs is not installed."""
    if config.training.tensorboard:  # what torch.utils.tensorboard imports
        import_library("tensorboard.summary.writer.event_file_writer", "the flag tensorboard", "track")
    config = config.resolved()
    trust(dataclasses.asdict(config))
    return config
