"""From flags, or from what a run has stored, to a config: every value checked against the type of its field."""

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from regard.errors import InputError, unknown_choice
from regard.tasks import AnyTask, find_task
from regard.training.config import PARTS, RunConfig
from regard.training.kinds import ModelKind, find_kind, kinds_for
from regard.training.presets import preset_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Part = TypeVar("Part", bound="DataclassInstance")
LATER = {
    *("positions", "layer", "batchsize", "enc_hidden", "bidirectional", "start", "score_width", "weights"),
    *("norm_epsilon", "activation", "bias", "tied", "output_bias", "freeze", "origin", "guide", "guide_weight"),
    *("text", "initial"),
    *("lenient", "bleu_tokenize", "bleu_tokenizer"),
}
"""Flags that older runs have not stored, and whose defaults are what they did."""


def make_config(task: str, flags: Mapping[str, object] | None = None) -> RunConfig:
    """Return the config of `task` with its own defaults, changed by `flags` (field name to value).

    The flag `model` names the model, and `preset` the size of a Transformer for translation. Raises `InputError`
    for a flag that does not exist, a value of the wrong type or out of range, or a model that does not fit the
    task.
    """
    found = find_task(task)
    given = dict(flags or {})
    kind = _kind_for(found, given.pop("model", found.defaults.get("model", kinds_for(found)[0])))
    defaults = {name: value for name, value in found.defaults.items() if name != "model"}
    values = defaults | preset_of(found, kind.name, given.pop("preset", None)) | given
    concepts = concepts_of(found, kind)
    known = {name: _names(concept) for name, concept in concepts.items()}
    for name in given:
        if name not in (every := [each for names in known.values() for each in names]):
            raise unknown_choice("flag", name, ["model", *every])
    parts: dict[str, Any] = {
        part: structure(concept, _only(values, known[part])) for part, concept in concepts.items()
    }
    config = RunConfig(on=str(Path(task).resolve()) if task.endswith(".py") else task, kind=kind.name, **parts)
    _check_together(config)
    return config


def changed_config(config: RunConfig, flags: Mapping[str, object]) -> RunConfig:
    """Return a config with some flags changed; raises `InputError` as `make_config` does."""
    concepts = concepts_of(config.task_class, config.model_kind)
    known = {part: _names(concept) for part, concept in concepts.items()}
    for name in flags:
        if name not in (every := [each for names in known.values() for each in names]):
            raise unknown_choice("flag", name, every)
    parts: dict[str, Any] = {
        part: structure(concept, {**vars(config.parts()[part]), **_only(flags, known[part])})
        for part, concept in concepts.items()
    }
    found = dataclasses.replace(config, **parts)
    _check_together(found)
    return found


def _only(flags: Mapping[str, object], names: Collection[str]) -> dict[str, object]:
    return {name: value for name, value in flags.items() if name in names}


def _kind_for(task: type[AnyTask], name: object) -> ModelKind:
    """Return the kind of model called `name`; raises `InputError` where it does not fit the task."""
    choices = kinds_for(task)
    if not isinstance(name, str):
        raise InputError(f"model {name!r} is no name: choose {' or '.join(choices)}, or module:Class")
    kind = find_kind(name)
    if not kind.fits(task):
        raise InputError(f"model {name!r} does not fit task {task.name}: choose {' or '.join(choices)}")
    return kind


def _check_together(config: RunConfig) -> None:
    """Raise `InputError` where choices of model and training exclude each other."""
    training = config.training
    if training.r_drop and not config.model.dropout:
        raise InputError("r_drop compares two passes that drop differently: give dropout too")
    if training.compile and not config.model_kind.model.compilable:
        raise InputError(f"compile is for the layers of a transformer: leave it out for model {config.kind}")


def concepts_of(task: type[AnyTask], kind: ModelKind) -> "dict[str, type[DataclassInstance]]":
    """Return the dataclass of each part of a config."""
    return {"task": task.config_class, "model": kind.config, "training": kind.settings_for(task)}


def stored_config(stored: Mapping[str, Any]) -> RunConfig:
    """Rebuild a config from what `dataclasses.asdict` made of it; raises `InputError` where it is off."""
    names = {each.name for each in dataclasses.fields(RunConfig)}
    if not names - LATER <= set(stored) <= names:
        raise InputError(f"config needs exactly {', '.join(sorted(names))}")
    texts = {name: _convert(name, stored[name], str) for name in ("on", "kind")}
    parts: dict[str, Any] = {}
    for part, concept in concepts_of(find_task(texts["on"]), find_kind(texts["kind"])).items():
        fields = set(_names(concept))
        if not isinstance(stored[part], dict) or not fields - LATER <= set(stored[part]) <= fields:
            raise InputError(f"config {part!r} needs exactly {', '.join(sorted(fields))}")
        parts[part] = structure(concept, stored[part])
    hints = get_type_hints(RunConfig)
    others = {name: _convert(name, stored[name], hints[name]) for name in set(stored) - set(PARTS) - set(texts)}
    return RunConfig(**texts, **parts, **others)


def structure(concept: type[Part], values: Mapping[str, object]) -> Part:
    """Make a dataclass of values whose types are checked; an int is accepted for a float, a text for a path.

    Raises `InputError` for a value of another type, or one that the dataclass refuses.
    """
    hints = get_type_hints(concept)
    return concept(**{name: _convert(name, value, hints[name]) for name, value in values.items()})


def _convert(name: str, value: object, hint: Any) -> Any:
    """Return a value as its type has it."""
    several = get_origin(hint) is tuple and not isinstance(value, list | tuple)  # which one may stand for
    try:
        return msgspec.convert(_without_paths([value] if several else value), hint)
    except UnicodeEncodeError:
        raise InputError(f"{name} {value!r} holds half a character: give a text of whole ones") from None
    except msgspec.ValidationError:
        if get_origin(hint) is Literal and isinstance(value, str):
            raise unknown_choice(name, value, map(str, get_args(hint))) from None
        given = said if len(said := repr(value)) <= 60 else f"{said[:59]}…"
        raise InputError(f"{name} {given} is of type {type(value).__name__}: give {_said(hint)}") from None


def _without_paths(value: object) -> object:
    if isinstance(value, list | tuple):
        return [_without_paths(each) for each in value]
    return str(value) if isinstance(value, Path) else value


def _said(hint: Any) -> str:
    """Say which values a type has."""
    if get_origin(hint) is tuple:
        return "one or several " + ("texts" if str in get_args(hint) else "numbers")
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    if get_origin(hint) is None:
        return "None" if hint is type(None) else str(hint.__name__)
    if get_args(hint) and get_origin(hint) not in (dict, list):
        return " or ".join(sorted(map(_said, get_args(hint))))
    return "for each name a list of whole numbers" if hint == dict[str, list[int]] else str(hint)


def _names(concept: "type[DataclassInstance]") -> list[str]:
    return [each.name for each in dataclasses.fields(concept)]


def changed(config: RunConfig, base: RunConfig) -> dict[str, object]:
    """Return the flags of `config` that differ from those of `base`."""
    before = base.flags()
    return {name: value for name, value in config.flags().items() if name in before and value != before[name]}
