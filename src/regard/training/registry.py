"""Registry of models: the class, options and training options of each model name.

    spec = find_model("transformer")         # or "module:Class", a custom model
    model = spec.model(config, **task.sizes)

To add a model to the package, add its file in `regard.models`, its training options in `settings` if it needs its
own, and an entry in `MODELS`. A custom model derives from `AnswerModel` or `Seq2Seq`, and is trained with the
options of its base class.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard import models
from regard.errors import InputError, unknown_choice
from regard.models import AnswerModel, ModelConfig, Seq2Seq, TaskModel
from regard.plugins import PluginError, import_plugin
from regard.tasks import AnyTask
from regard.training.settings import (
    OwnAnswerTraining,
    OwnSequenceTraining,
    PoolingTraining,
    QueryTraining,
    RecurrentTraining,
    TrainingConfig,
    TransformerTraining,
    TranslationTraining,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """Classes that belong to a model name."""

    name: str
    model: type[TaskModel]
    """Class of the model, a subclass of `AnswerModel` or `Seq2Seq`."""
    config: type[ModelConfig]
    """Dataclass of its options."""
    settings: type[TrainingConfig]
    """Dataclass of its training options on a synthetic task."""

    def fits(self, task: type[AnyTask]) -> bool:
        """Return whether the model answers in the form that the task needs: numbers or text."""
        return self.model.answers == task.answers

    def part_classes(self, task: type[AnyTask]) -> "dict[str, type[DataclassInstance]]":
        """Return the dataclasses of the options on a task: task, model, training."""
        training = self.settings if task.draws else TranslationTraining
        return {"task": task.config_class, "model": self.config, "training": training}


MODELS: dict[str, tuple[str, str, str, type[TrainingConfig]]] = {
    "query": ("numbers", "QueryModel", "QueryModelConfig", QueryTraining),
    "pooling": ("numbers", "PoolingModel", "PoolingConfig", PoolingTraining),
    "recurrent": ("text", "RecurrentSeq2Seq", "RecurrentConfig", RecurrentTraining),
    "transformer": ("text", "Transformer", "TransformerConfig", TransformerTraining),
}
"""By name: form of the answers, names of the model class and of its config in `regard.models`, training options.

Classes are named, not imported: importing every model would slow each command. The first model that fits a task
is its default, unless the task names another."""
OWN_TRAINING: dict[type[TaskModel], type[TrainingConfig]] = {
    AnswerModel: OwnAnswerTraining,
    Seq2Seq: OwnSequenceTraining,
}
"""Training options of custom models by base class."""


def find_model(name: str) -> ModelSpec:
    """Return the classes of a model name, or of the custom model `module:Class`.

    Raises `InputError` for an unknown name, and for a class that cannot be imported or has the wrong base class.

    >>> find_model("query").model.__name__
    'QueryModel'
    """
    if name in MODELS:
        _, model, config, settings = MODELS[name]
        return ModelSpec(
            name=name, model=getattr(models, model), config=getattr(models, config), settings=settings
        )
    if ":" not in name:
        raise unknown_choice("model", name, MODELS, other="module:Class")
    return _custom_model(name, import_plugin("model", name))


def model_for(task: type[AnyTask], name: object = None) -> ModelSpec:
    """Return the classes of a model for a task; None selects the first model that fits.

    Raises `InputError` for a model that does not fit the task.
    """
    names = models_for(task)
    if name is None:
        return find_model(names[0])
    if not isinstance(name, str):
        raise InputError(f"model {name!r} is not a name: choose {' or '.join(names)}, or module:Class")
    spec = find_model(name)
    if not spec.fits(task):
        raise InputError(f"model {name!r} does not fit task {task.name}: choose {' or '.join(names)}")
    return spec


def models_for(task: type[AnyTask]) -> list[str]:
    """Return the names of the built-in models that fit a task."""
    return [name for name, (answers, *_) in MODELS.items() if answers == task.answers]


def _custom_model(name: str, model: object) -> ModelSpec:
    if isinstance(model, type) and issubclass(model, TaskModel) and _is_config(model.config_class):
        for base, settings in OWN_TRAINING.items():
            if issubclass(model, base):
                return ModelSpec(name=name, model=model, config=model.config_class, settings=settings)
    raise PluginError(
        f"model {name!r} is not a class derived from regard.models.AnswerModel or Seq2Seq, with a config_class "
        f"derived from regard.models.ModelConfig"
    )


def _is_config(config_class: object) -> bool:
    return isinstance(config_class, type) and issubclass(config_class, ModelConfig)
