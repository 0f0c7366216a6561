"""Configuration of a run: a frozen dataclass of task, model and training options.

>>> config = make_config("signal2", {"heads": 8})
>>> config.model.heads, config.training.steps
(8, 2000)

A config is created from flags (`make_config`, `changed_config`) or from a stored run (`stored_config`). These
functions check the type of every value and raise an error for unknown names.

The registry of models is in `registry`.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, get_args, get_origin, get_type_hints

from typing_extensions import TypeVar

from regard.arguments import check_value, public
from regard.attention.mechanism import Mechanism, custom_parts
from regard.data.parallel import TextDigest
from regard.errors import InputError, unknown_choice
from regard.models.base import ModelConfig, check_replaced
from regard.tasks.all_tasks import TASKS, find_task
from regard.tasks.base import AnyTask
from regard.training.registry import ModelSpec, find_model, models_for
from regard.training.settings import TrainingConfig
from regard.training.trust_code import code_digests

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

TaskPart = TypeVar("TaskPart", covariant=True, bound="DataclassInstance", default="DataclassInstance")
ModelPart = TypeVar("ModelPart", covariant=True, bound=ModelConfig, default=ModelConfig)
TrainingPart = TypeVar("TrainingPart", covariant=True, bound=TrainingConfig, default=TrainingConfig)
Part = TypeVar("Part", bound="DataclassInstance")
PARTS = ("task", "model", "training")
"""The dataclasses of a `RunConfig`. Field names are unique among these dataclasses, so that each field is one
flag."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Earlier run whose parameters initialize a run."""

    run: str
    """Absolute path of the folder of the earlier run."""
    step: int
    """Number of training steps of the earlier run at the start."""
    weights: str
    """SHA-256 digest of model.safetensors of the earlier run at the start."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Learning-rate schedule of a part of a training run."""

    first: int
    """Number of finished training steps at its start."""
    steps: int
    """Number of finished training steps at its end."""
    lr: float
    """Peak learning rate."""

    def __str__(self) -> str:
        return f"steps {self.first:,} to {self.steps:,} with learning rate {self.lr:g}"


@public
@dataclass(frozen=True, kw_only=True)
class RunConfig(Generic[TaskPart, ModelPart, TrainingPart]):
    """All options that determine a run. Every run stores its config."""

    on: str
    """Name of the task, or absolute path of the Python file that defines it."""
    kind: str
    """Name of the model, or module:Class."""
    task: TaskPart
    """Options of the task."""
    model: ModelPart
    """Options of the model."""
    training: TrainingPart
    """Options of training."""
    tokenizer: str | None = None
    """Digest of the vocabularies that were learned from text; None without such vocabularies."""
    bleu_tokenizer: str | None = None
    """sacrebleu tokenizer for BLEU in validation and tests; None without validation."""
    kept_heads: dict[str, list[int]] = field(default_factory=dict)
    """Heads that remain after pruning, in ascending order, by layer."""
    origin: Origin | None = None
    """Earlier run that provides the initial parameters and the vocabularies; None for random initialization."""
    text: dict[str, list[TextDigest]] = field(default_factory=dict)
    """Digests of the text files at the start of training, by flag. Empty for tasks without text."""
    initial: str | None = None
    """SHA-256 digest of the parameters before the first step; None until training begins."""
    schedules: list[Schedule] = field(default_factory=list)
    """All learning-rate schedules of a run that was resumed with other `steps` or another `lr`, oldest first.
    Empty for a run with a single schedule. An earlier schedule may have ended before its last step."""
    averaged: list[int] = field(default_factory=list)
    """Steps of the kept models whose mean is the model; empty for other models."""
    code: dict[str, str] = field(default_factory=dict)
    """Digests of the custom code at the start of training, by description (`regard.training.code_digests`)."""
    measured: dict[str, str] = field(default_factory=dict)
    """Measured choices at the start of training that affect the losses, by name (`regard.machine`)."""

    @property
    def name(self) -> str:
        """Name of the task, and of the folder of the run."""
        return self.task_class.name

    @property
    def task_class(self) -> type[AnyTask]:
        """Class of the task."""
        return find_task(self.on)

    @property
    def model_spec(self) -> ModelSpec:
        """Class and options of the model."""
        return find_model(self.kind)

    @property
    def first_step(self) -> int:
        """Number of finished training steps at the start of the learning-rate schedule."""
        return self.schedules[-1].first if self.schedules else 0

    @property
    def history(self) -> str:
        """Description of the earlier run, of several schedules and of averaging; otherwise empty."""
        parts = [f"started from {self.origin.run} at step {self.origin.step:,}"] if self.origin else []
        parts += map(str, self.schedules)
        if self.averaged:
            parts.append(f"mean of the models after {', '.join(map(str, self.averaged))} steps")
        return "; ".join(parts)

    def parts(self) -> "dict[str, DataclassInstance]":
        """Return the dataclasses of task, model and training by name."""
        return {"task": self.task, "model": self.model, "training": self.training}

    def flags(self) -> dict[str, object]:
        """Return all flags by name, including `model` (the name of the model)."""
        values = {
            option.name: getattr(part, option.name)
            for part in self.parts().values()
            for option in dataclasses.fields(part)
        }
        return {"model": self.kind, **values}

    @property
    def custom_parts(self) -> list[str]:
        """Descriptions of the parts of the run that are custom code."""
        parts = {"score": self.model.score, "positions": self.model.positions, "layer": self.model.layer}
        return [
            *([f"task file {self.on!r}"] if self.on not in TASKS else []),
            *([f"model {self.kind!r}"] if ":" in self.kind else []),
            *(f"{part} {name!r}" for part, name in parts.items() if ":" in name),
            *(f"attention part {name!r}" for name in custom_parts(self.model.attention)),
        ]

    def resolved(self) -> Self:
        """Return the config of a new run: the learning rate of the recipe as default, and digests of its code."""
        code = code_digests(dataclasses.asdict(self)) if self.custom_parts else {}
        training = self.training
        if training.lr is None:
            training = dataclasses.replace(training, lr=training.optimization.default_lr(self.model))
        return dataclasses.replace(self, training=training, code=code)


@public
def make_config(task: str, flags: Mapping[str, object] | None = None) -> RunConfig:
    """Return the config of a task: its defaults, overridden by `flags` (field name to value).

    The flag `model` is the name of the model, and `preset` is the size of a Transformer for translation. Raises
    `InputError` for an unknown flag, a value with an incorrect type or out of range, or a model that is
    incompatible with the task.

    >>> make_config("counting", {"model": "pooling", "steps": 100}).kind
    'pooling'
    """
    task_class, values = find_task(task), dict(flags or {})
    spec = _fitting_model(task_class, values.pop("model", None))
    preset = _preset_values(task_class, spec, values.pop("preset", None))
    if isinstance(attention := values.get("attention"), str):
        mechanism = Mechanism.parse(attention)
        check_replaced(mechanism, values)
        if mechanism.position and "positions" not in values:
            preset.pop("positions", None)  # the mechanism replaces the positions of a preset
    classes = spec.part_classes(task_class)
    _check_names(values, classes, "model")
    parts = _make_parts(classes, {**task_class.defaults, **preset, **values})
    parts["training"].check_task(parts["task"])
    on = str(Path(task).resolve()) if task.endswith(".py") else task
    return _checked(RunConfig(on=on, kind=spec.name, **parts))


def changed_config(config: RunConfig, flags: Mapping[str, object]) -> RunConfig:
    """Return a copy of a config with changed flags. Raises the same errors as `make_config`.

    >>> changed_config(make_config("counting"), {"steps": 10}).training.steps
    10
    """
    classes = config.model_spec.part_classes(config.task_class)
    _check_names(flags, classes)
    return _checked(dataclasses.replace(config, **_make_parts(classes, {**config.flags(), **flags})))


def changed_flags(config: RunConfig, base: RunConfig) -> dict[str, object]:
    before = base.flags()
    return {name: value for name, value in config.flags().items() if name in before and value != before[name]}


def _fitting_model(task: type[AnyTask], name: object) -> ModelSpec:
    """Return the classes of a model for a task. None selects the default model of the task."""
    names = models_for(task)
    if name is None:
        name = task.defaults.get("model", names[0])
    if not isinstance(name, str):
        raise InputError(f"model {name!r} is not a name: choose {' or '.join(names)}, or module:Class")
    spec = find_model(name)
    if spec.model.answers != task.answers:
        raise InputError(f"model {name!r} does not fit task {task.name}: choose {' or '.join(names)}")
    return spec


def _preset_values(task: type[AnyTask], spec: ModelSpec, preset: object) -> dict[str, object]:
    """Return the options of a preset by name; empty for models and tasks without presets."""
    if preset is None and not spec.has_presets(task):
        return {}
    from regard.training.presets import PRESETS  # importing this module imports the Transformer

    name = "tiny" if preset is None else preset
    if not spec.has_presets(task) or not isinstance(name, str) or name not in PRESETS:
        raise InputError(
            f"preset {preset!r} does not fit model {spec.name} on task {task.name}: choose {', '.join(PRESETS)} "
            f"for a transformer on translation"
        )
    chosen = PRESETS[name]()
    return vars(chosen.model) | vars(chosen.training)


def _check_names(
    flags: Mapping[str, object], classes: "Mapping[str, type[DataclassInstance]]", *extra: str
) -> None:
    """Raise `InputError` for a flag that is not a field of any dataclass."""
    known = [*extra, *(option.name for part in classes.values() for option in dataclasses.fields(part))]
    for name in flags:
        if name not in known:
            raise unknown_choice("flag", name, known)


def _make_parts(classes: "Mapping[str, type[DataclassInstance]]", values: Mapping[str, object]) -> dict[str, Any]:
    """Return an instance of each dataclass. Values without a field are ignored."""
    # Check all types before ranges, so that ranges are only compared with values of the correct type.
    converted = {part: convert_values(part_class, values) for part, part_class in classes.items()}
    return {part: part_class(**converted[part]) for part, part_class in classes.items()}


def _checked(config: RunConfig) -> RunConfig:
    """Return a config. Raises `InputError` for incompatible options of model and training."""
    training = config.training
    if training.r_drop and not config.model.dropout:
        raise InputError("r_drop compares two passes with different dropout: also give --dropout")
    if training.compile and not config.model_spec.model.compilable:
        raise InputError(f"compile works only on Transformer layers: leave it out for model {config.kind}")
    return config


def convert_values(part_class: "type[DataclassInstance]", values: Mapping[str, object]) -> dict[str, Any]:
    """Return the values for the fields of a dataclass, converted to the types of the fields.

    A float field also accepts an int, a path field a str, and a tuple field a single value. Raises `InputError`
    for other types.
    """
    hints = get_type_hints(part_class)
    names = [option.name for option in dataclasses.fields(part_class)]
    return {name: convert_value(name, values[name], hints[name]) for name in names if name in values}


def convert_value(name: str, value: object, hint: Any) -> Any:
    """Return a value converted to the type of its field. `name`: name of the field in errors."""
    plain = _plain_paths(value)
    try:
        for text in plain if isinstance(plain, list) else [plain]:
            str(text).encode()
        if get_origin(hint) is tuple and not isinstance(plain, list):
            return (check_value(name, plain, get_args(hint)[0]),)
        return check_value(name, plain, hint)
    except UnicodeEncodeError:
        raise InputError(f"{name} {value!r} contains an unpaired surrogate: give valid Unicode text") from None


def _plain_paths(value: object) -> object:
    if isinstance(value, list | tuple):
        return [_plain_paths(item) for item in value]
    return str(value) if isinstance(value, Path) else value
