"""Config of a resumed run, and of a run that starts from another run."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import InputError
from regard.tasks import find_task
from regard.training import Origin, RunConfig, RunFolder, changed_config, make_config, pack_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from regard.data.parallel import TextDigest
    from regard.runs.run_types import AnyRun

TEXT_FLAGS = ("train", "valid", "test", "guide", "hub", "text")
"""Flags that name text. Flags that name text files, which may have moved when a run is resumed."""
FREE_MODEL_FLAGS = ("dropout",)
"""Flags of a model that do not affect the shapes of its parameters."""
FIXED_TRAINING_FLAGS = ("vary_len",)
"""Training flags that affect the shapes of a model's parameters."""


def resumed_config(
    task: str | RunConfig,
    flags: dict[str, Any],
    savepath: Path,
    start_from: str | Path | None,
    trust_code: bool,
    trust_edited: bool,
) -> RunConfig:
    """Return the config of a stored run, with the paths of its text taken from the flags.

    Raises `InputError` for an unknown flag, and for a flag that differs from the stored flag.
    """
    name = find_task(task).name if isinstance(task, str) else task.name
    stored = RunFolder(savepath / name, trust_edited).read_config(trust_code=trust_code)
    if isinstance(task, str):
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
    # The content of text is compared by its digests. Runs of earlier formats have no digests.
    moved = {name: value for name, value in flags.items() if stored.text and name in TEXT_FLAGS}
    for name, value in flags.items():
        if value != before.get(name) and name not in moved:
            raise InputError(
                f"{name} {value} differs from the run's {before.get(name)}: a resumed run keeps its flags; "
                f"leave {name} out, or train a new run"
            )
    return dataclasses.replace(stored, task=dataclasses.replace(stored.task, **moved))


def check_text(config: RunConfig, text: Mapping[str, list[TextDigest]]) -> None:
    """Raise `InputError` if the digests show that the text of a resumed run has changed since the start."""
    for name, before in config.text.items():
        now = text.get(name, [])
        if now == before:
            continue
        places = config.flags()[name] or config.flags()["hub"]
        files = [str(place) for place in (places if isinstance(places, tuple) else (places,))]
        if len(now) != len(before):
            problem = f"{name} has {len(now)} files, and had {len(before)}"
        elif sorted(map(repr, now)) == sorted(map(repr, before)):
            problem = f"the files of {name} are in a different order: {', '.join(map(repr, files))}"
        else:
            changed = zip(files, before, now, strict=True)
            file, old, new = next((file, old, new) for file, old, new in changed if old != new)
            lines = f"it has {new.lines:,} lines, and had {old.lines:,}"
            if new.lines == old.lines:
                lines = f"it has {new.lines:,} lines as before, but different content"
            problem = f"{name} {file!r} has changed: {lines}"
        raise InputError(
            f"{problem}; a resumed run needs its original text: restore the text, or train a new run"
        )


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
    config = dataclasses.replace(changed_config(without_text(base), flags), text={}, initial=None)
    free = {*base.task_class.texts, *base.task_class.loose, *FREE_MODEL_FLAGS}
    fixed = {*vars(base.task), *vars(base.model), *FIXED_TRAINING_FLAGS} - free
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
    task = dataclasses.replace(config.task, **{name: defaults[name] for name in config.task_class.texts})
    return dataclasses.replace(config, task=task, training=dataclasses.replace(config.training, freeze=()))


def _fixed_flag(name: str, value: object, before: object, run: AnyRun) -> InputError:
    return InputError(
        f"{name} {value} differs from {before} of run {run.where!r}: a run keeps the model and the "
        f"vocabularies of the run from which it starts; leave out {name}, or train without --from"
    )
