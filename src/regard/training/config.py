"""Configuration of a run: one frozen dataclass that composes task, model and training.

>>> config = make_config("signal2", {"heads": 8})
>>> config.model.heads, config.training.steps
(8, 2000)

A config is made from flags (`make_config`, `changed_config`) or from a stored run (`config_from_json`). Both
check every value against the type of its field, and refuse names that no field has.
"""

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, get_args, get_origin, get_type_hints

import msgspec
from typing_extensions import TypeVar

from regard.data.parallel import TextDigest
from regard.errors import InputError, unknown_choice
from regard.models import ModelConfig
from regard.tasks import AnyTask, find_task
from regard.training.model_sizes import size_flags
from regard.training.registry import ModelSpec, find_model, model_for
from regard.training.settings import TrainingConfig

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

TaskPart = TypeVar("TaskPart", covariant=True, bound="DataclassInstance", default="DataclassInstance")
ModelPart = TypeVar("ModelPart", covariant=True, bound=ModelConfig, default=ModelConfig)
TrainingPart = TypeVar("TrainingPart", covariant=True, bound=TrainingConfig, default=TrainingConfig)
Part = TypeVar("Part", bound="DataclassInstance")
PARTS = ("task", "model", "training")
"""The dataclasses of a `RunConfig`. Their field names are distinct, so that each field is one flag."""
OPTIONAL_WHEN_STORED = {
    *("positions", "layer", "batchsize", "enc_hidden", "bidirectional", "start", "score_width", "weights"),
    *("norm_epsilon", "activation", "bias", "tied", "output_bias", "freeze", "origin", "guide", "guide_weight"),
    *("text", "initial"),
    *("lenient", "bleu_tokenize", "bleu_tokenizer"),
}
"""Fields that older runs did not store. Their defaults give the behaviour of those runs."""
LONGEST_SHOWN = 60
"""Characters of a refused value in an error message."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The run that another run started from."""

    run: str
    """Absolute path of its folder."""
    step: int
    """Training steps of its model at that time."""
    weights: str
    """SHA-256 of its model.safetensors at that time."""


@dataclass(frozen=True, kw_only=True)
class RunConfig(Generic[TaskPart, ModelPart, TrainingPart]):
    """Everything that determines a run. It is stored with the run."""

    on: str
    """Name of the task, or absolute path of the Python file that defines it."""
    kind: str
    """Name of the model, or module:Class."""
    task: TaskPart
    """Options of the task."""
    model: ModelPart
    """Options of the model."""
    training: TrainingPart
    """Options of the training."""
    tokenizer: str | None = None
    """Digest of the vocabularies that were learned from text; None without such vocabularies."""
    bleu_tokenizer: str | None = None
    """sacrebleu's tokenizer for BLEU in validation and tests; None without validation."""
    kept_heads: dict[str, list[int]] = field(default_factory=dict)
    """By layer: the heads that remain after pruning, in ascending order."""
    origin: Origin | None = None
    """The run that provided the first parameters and the vocabularies; None for a run drawn from its seed."""
    text: dict[str, list[TextDigest]] = field(default_factory=dict)
    """By flag: digests of the text files at the start. Empty for older runs and for tasks without text."""
    initial: str | None = None
    """SHA-256 of the parameters before the first step; None for older runs."""

    @property
    def name(self) -> str:
        """Name of the task and of the run's folder."""
        return self.task_class.name

    @property
    def task_class(self) -> type[AnyTask]:
        """Class of the task."""
        return find_task(self.on)

    @property
    def model_spec(self) -> ModelSpec:
        """Class and options of the model."""
        return find_model(self.kind)

    def parts(self) -> "dict[str, DataclassInstance]":
        """Return the dataclasses of task, model and training by name."""
        return {"task": self.task, "model": self.model, "training": self.training}

    def flags(self) -> dict[str, object]:
        """Return all flags by name, `model` (the model's name) among them."""
        values = {
            option.name: getattr(part, option.name)
            for part in self.parts().values()
            for option in dataclasses.fields(part)
        }
        return {"model": self.kind, **values}

    def resolved(self) -> "RunConfig[TaskPart, ModelPart, TrainingPart]":
        """Return the config with the recipe's learning rate, unless a rate was given."""
        if self.training.lr is not None:
            return self
        lr = self.training.optimization.default_lr(self.model)
        return dataclasses.replace(self, training=dataclasses.replace(self.training, lr=lr))


def make_config(task: str, flags: Mapping[str, object] | None = None) -> RunConfig:
    """Return the config of a task: its defaults, changed by `flags` (field name to value).

    The flag `model` names the model, and `preset` the size of a Transformer for translation. Raises `InputError`
    for an unknown flag, a value of the wrong type or out of range, and a model that does not fit the task.

    >>> make_config("counting", {"model": "pooling", "steps": 100}).kind
    'pooling'
    """
    task_class, values = find_task(task), dict(flags or {})
    spec = model_for(task_class, values.pop("model", task_class.defaults.get("model")))
    classes = spec.part_classes(task_class)
    size = size_flags(task_class, spec.name, values.pop("preset", None))
    _check_names(values, classes, ["model"])
    defaults = {name: value for name, value in task_class.defaults.items() if name != "model"}
    values = defaults | size | values
    parts: dict[str, Any] = {
        part: from_values(part_class, _select(values, _names(part_class))) for part, part_class in classes.items()
    }
    on = str(Path(task).resolve()) if task.endswith(".py") else task
    config = RunConfig(on=on, kind=spec.name, **parts)
    _check_together(config)
    return config


def changed_config(config: RunConfig, flags: Mapping[str, object]) -> RunConfig:
    """Return a config with some flags changed. Raises `InputError` as `make_config` does."""
    classes = config.model_spec.part_classes(config.task_class)
    _check_names(flags, classes)
    parts: dict[str, Any] = {
        part: from_values(part_class, {**vars(config.parts()[part]), **_select(flags, _names(part_class))})
        for part, part_class in classes.items()
    }
    changed = dataclasses.replace(config, **parts)
    _check_together(changed)
    return changed


def changed_flags(config: RunConfig, base: RunConfig) -> dict[str, object]:
    """Return the flags of `config` whose values differ from those of `base`."""
    before = base.flags()
    return {name: value for name, value in config.flags().items() if name in before and value != before[name]}


def config_from_json(stored: Mapping[str, Any]) -> RunConfig:
    """Return the config that `dataclasses.asdict` turned into plain data; raises `InputError` for wrong data."""
    names = {option.name for option in dataclasses.fields(RunConfig)}
    if not names - OPTIONAL_WHEN_STORED <= set(stored) <= names:
        raise InputError(f"config needs exactly {', '.join(sorted(names))}")
    identity = {name: _convert(name, stored[name], str) for name in ("on", "kind")}
    parts: dict[str, Any] = {}
    for part, part_class in find_model(identity["kind"]).part_classes(find_task(identity["on"])).items():
        options = set(_names(part_class))
        if (
            not isinstance(stored[part], dict)
            or not options - OPTIONAL_WHEN_STORED <= set(stored[part]) <= options
        ):
            raise InputError(f"config {part!r} needs exactly {', '.join(sorted(options))}")
        parts[part] = from_values(part_class, stored[part])
    hints = get_type_hints(RunConfig)
    rest = {name: _convert(name, stored[name], hints[name]) for name in set(stored) - set(PARTS) - set(identity)}
    return RunConfig(**identity, **parts, **rest)


def from_values(part_class: type[Part], values: Mapping[str, object]) -> Part:
    """Return an instance of a dataclass whose values have the types of its fields.

    An int is accepted for a float, a text for a path, and a single value for a tuple. Raises `InputError` for any
    other type, and for values that the dataclass refuses.
    """
    hints = get_type_hints(part_class)
    return part_class(**{name: _convert(name, value, hints[name]) for name, value in values.items()})


def _check_names(
    flags: Mapping[str, object], classes: "Mapping[str, type[DataclassInstance]]", others: Collection[str] = ()
) -> None:
    known = [*others, *(name for part_class in classes.values() for name in _names(part_class))]
    for name in flags:
        if name not in known:
            raise unknown_choice("flag", name, known)


def _check_together(config: RunConfig) -> None:
    """Raise `InputError` for options of model and training that exclude each other."""
    training = config.training
    if training.r_drop and not config.model.dropout:
        raise InputError("r_drop compares two passes with different dropout: give dropout too")
    if training.compile and not config.model_spec.model.compilable:
        raise InputError(f"compile works on Transformer layers only: leave it out for model {config.kind}")


def _select(flags: Mapping[str, object], names: Collection[str]) -> dict[str, object]:
    return {name: value for name, value in flags.items() if name in names}


def _names(part_class: "type[DataclassInstance]") -> list[str]:
    return [option.name for option in dataclasses.fields(part_class)]


def _convert(name: str, value: object, hint: Any) -> Any:
    """Return a value in the type of its field; `name` is for errors."""
    single = get_origin(hint) is tuple and not isinstance(value, list | tuple)
    try:
        return msgspec.convert(_plain_paths([value] if single else value), hint)
    except UnicodeEncodeError:
        raise InputError(f"{name} {value!r} contains an unpaired surrogate: give valid Unicode text") from None
    except msgspec.ValidationError:
        if get_origin(hint) is Literal and isinstance(value, str):
            raise unknown_choice(name, value, map(str, get_args(hint))) from None
        shown = repr(value)
        shown = shown if len(shown) <= LONGEST_SHOWN else f"{shown[: LONGEST_SHOWN - 1]}…"
        raise InputError(f"{name} {shown} is of type {type(value).__name__}: give {_describe(hint)}") from None


def _plain_paths(value: object) -> object:
    if isinstance(value, list | tuple):
        return [_plain_paths(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _describe(hint: Any) -> str:
    """Describe the values of a type for an error message."""
    if get_origin(hint) is tuple:
        return "one or several " + ("texts" if str in get_args(hint) else "numbers")
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    if get_origin(hint) is None:
        return "None" if hint is type(None) else str(hint.__name__)
    if get_args(hint) and get_origin(hint) not in (dict, list):
        return " or ".join(sorted(map(_describe, get_args(hint))))
    return "a list of whole numbers for each name" if hint == dict[str, list[int]] else str(hint)
