"""Everything that decides a run: the task's size, the model and the training, from flags or as a run stores
them."""

import dataclasses
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from regard.errors import InputError
from regard.models import PoolingConfig, QueryModelConfig, RecurrentConfig, TransformerConfig
from regard.tasks import AnyTask, SequenceTask, Translation, TranslationConfig, find_task
from regard.training.settings import (
    PoolingTraining,
    QueryTraining,
    RecurrentTraining,
    TrainingConfig,
    TransformerTraining,
    TranslationTraining,
)

MODELS: dict[str, tuple[type, type[TrainingConfig]]] = {
    "query": (QueryModelConfig, QueryTraining),
    "pooling": (PoolingConfig, PoolingTraining),
    "recurrent": (RecurrentConfig, RecurrentTraining),
    "transformer": (TransformerConfig, TransformerTraining),
}
"""Each model by name, with the dataclasses of its parts and of its training."""
FOR_SEQUENCES = ("recurrent", "transformer")
"""Models from sequence to sequence; the others answer with a number for each output step."""


def models_for(task: type[AnyTask]) -> list[str]:
    """Return the names of the models that can be trained on a task."""
    return [name for name in MODELS if (name in FOR_SEQUENCES) == issubclass(task, SequenceTask)]


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """All of a run: stored with it, so that nothing needs to be said twice."""

    task: str
    """Name of the task, or absolute path of the Python file that defines it."""
    kind: str
    """Name of the model."""
    size: Any
    """The task's size, a dataclass of its own."""
    model: Any
    """The parts of the model: the first dataclass of its name in `MODELS`."""
    training: Any
    """The training: the second one."""
    tokenizer: str | None = None
    """Digest of the vocabularies that were learned from text; None where there are none."""
    kept_heads: dict[str, list[int]] = field(default_factory=dict)
    """By layer: the heads that pruning has left in it, in ascending order."""

    @property
    def name(self) -> str:
        """The task's name, and that of the run's folder."""
        return find_task(self.task).name

    def flags(self) -> dict[str, Any]:
        """Return all flags, by name."""
        parts = (getattr(self, part) for part in PARTS)
        named = {each.name: getattr(part, each.name) for part in parts for each in dataclasses.fields(part)}
        return {"model": self.kind, **named}

    def resolved(self) -> "RunConfig":
        """Return the config with the recipe's own learning rate where none was given, and absolute paths."""
        training, size = self.training, self.size
        if training.lr is None:
            training = dataclasses.replace(training, lr=training.how.default_lr(self.model))
        if isinstance(size, TranslationConfig):
            texts: dict[str, Any] = {name: getattr(size, name) for name in ("train", "valid", "test")}
            absolute: dict[str, Any] = {
                name: tuple(str(Path(path).absolute()) for path in paths) for name, paths in texts.items()
            }
            size = dataclasses.replace(size, **absolute)
        return dataclasses.replace(self, training=training, size=size)


PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"hidden": 128, "heads": 4, "inner": 256, "enc_layers": 4, "dec_layers": 4, "lr": 0.003},
    "small": {"hidden": 256, "heads": 4, "inner": 1024, "enc_layers": 4, "dec_layers": 4, "lr": 0.002},
    "base": {
        "hidden": 512,
        "heads": 8,
        "inner": 2048,
        "enc_layers": 6,
        "dec_layers": 6,
        "lr": 0.001,
        "dropout": 0.1,
    },
    "big": {
        "hidden": 1024,
        "heads": 16,
        "inner": 4096,
        "enc_layers": 6,
        "dec_layers": 6,
        "lr": 0.0005,
        "dropout": 0.3,
    },
}
"""Sizes of a Transformer for translation; base and big are the paper's (Vaswani et al. 2017, table 3)."""
PARTS = ("size", "model", "training")
"""The dataclasses of a `RunConfig`; the names of their fields, which are the flags, are distinct."""


def make_config(task: str, flags: dict[str, Any] | None = None) -> RunConfig:
    """Return the config of `task` with its own defaults, changed by `flags` (field name to value).

    The flag `model` names the model, and `preset` the size of a Transformer for translation. Raises `InputError`
    for a flag that does not exist, a value of the wrong type or out of range, or a model that does not fit the
    task.
    """
    found = find_task(task)
    given = dict(flags or {})
    choices = models_for(found)
    kind = given.pop("model", found.defaults.get("model", choices[0]))
    if kind not in choices:
        raise InputError(f"model {kind!r} does not fit task {found.name}: choose {' or '.join(choices)}")
    values = {name: value for name, value in found.defaults.items() if name != "model"}
    values |= _preset(found, kind, given.pop("preset", None)) | given
    parts, known = {}, ["model"]
    for part, concept in concepts(found, kind).items():
        names = [each.name for each in dataclasses.fields(concept)]
        known += names
        parts[part] = _structure(concept, {name: values.pop(name) for name in names if name in values})
    for name in values:
        if name in given:  # a task's default for another model does not matter
            near = get_close_matches(name, known, n=1)
            raise InputError(f"flag {name!r} is unknown: {f'did you mean {near[0]!r}?' if near else known}")
    if getattr(parts["training"], "r_drop", 0.0) and not parts["model"].dropout:
        raise InputError("r_drop compares two passes that drop differently: give dropout too")
    if getattr(parts["training"], "compile", False) and kind != "transformer":
        raise InputError(f"compile is for the layers of a transformer: leave it out for model {kind}")
    return RunConfig(task=str(Path(task).resolve()) if task.endswith(".py") else task, kind=kind, **parts)


def _preset(task: type[AnyTask], kind: str, name: str | None) -> dict[str, Any]:
    if name is None:
        return PRESETS["tiny"] if kind == "transformer" and issubclass(task, Translation) else {}
    if name not in PRESETS or kind != "transformer" or not issubclass(task, Translation):
        raise InputError(
            f"preset {name!r} does not fit model {kind} on task {task.name}: choose {', '.join(PRESETS)} for a "
            f"transformer on translation"
        )
    return PRESETS[name]


def concepts(task: type[AnyTask], kind: str) -> dict[str, type]:
    """Return the dataclass of each part of a config."""
    model, training = MODELS[kind]
    training = TranslationTraining if issubclass(task, Translation) else training
    return dict(zip(PARTS, (task.size_class, model, training), strict=True))


def config_from_json(stored: Any) -> RunConfig:
    """Rebuild a config from what `dataclasses.asdict` made of it; raises `InputError` where it is off."""
    if (
        not isinstance(stored, dict)
        or set(stored) != {"task", "kind", "tokenizer", "kept_heads", *PARTS}
        or not isinstance(stored["task"], str)
        or stored["kind"] not in MODELS
    ):
        raise InputError(f"config needs exactly task, kind, tokenizer, kept_heads, {', '.join(PARTS)}")
    parts = {}
    for part, concept in concepts(find_task(stored["task"]), stored["kind"]).items():
        names = {each.name for each in dataclasses.fields(concept)}
        if not isinstance(stored[part], dict) or set(stored[part]) != names:
            raise InputError(f"config {part!r} needs exactly {', '.join(sorted(names))}")
        parts[part] = _structure(concept, stored[part])
    others = {name: stored[name] for name in ("task", "kind", "tokenizer", "kept_heads")}
    return RunConfig(**others, **parts)


def _structure(concept: type, values: dict[str, Any]) -> Any:
    """Make a dataclass from values whose types are checked; an int is accepted for a float."""
    hints = get_type_hints(concept)
    for name, value in values.items():
        if get_origin(hints[name]) is tuple:
            values = {**values, name: _texts(name, value)}
            continue
        allowed = _types(hints[name])
        if float in allowed:
            allowed.add(int)
        if type(value) not in allowed:
            wanted = " or ".join(sorted("None" if each is type(None) else each.__name__ for each in allowed))
            raise InputError(f"{name} {value!r} is of type {type(value).__name__}: give {wanted}")
    return concept(**values)


def _texts(name: str, value: Any) -> tuple[str, ...]:
    """Return one or several texts or paths, which JSON knows as a list, as a tuple."""
    found = [value] if isinstance(value, str | Path) else value
    if not isinstance(found, list | tuple) or not all(isinstance(each, str | Path) for each in found):
        raise InputError(f"{name} {value!r} is of type {type(value).__name__}: give one or several texts")
    return tuple(map(str, found))


def _types(hint: Any) -> set[type]:
    """Return the types of values that a hint allows: of a type, a union of types, or a choice of values."""
    if getattr(hint, "__origin__", None) is Literal:
        return {type(choice) for choice in get_args(hint)}
    return set().union(*map(_types, get_args(hint))) if get_args(hint) else {hint}
