"""Registry of models: the classes and training options that belong to the name of a model.

To add a model to the package, add its file in `regard.models`, its training options in `settings` if it needs its
own, and an entry in `MODELS`. A custom model derives from `AnswerModel`, `Seq2Seq` or `LanguageModel`, and is
trained with the options of its base class.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard import models
from regard.errors import unknown_choice
from regard.models import AnswerModel, LanguageModel, ModelConfig, Seq2Seq, TaskModel
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
from regard.training.token_settings import TokenTraining

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MODELS: dict[str, tuple[str, str, str, type[TrainingConfig]]] = {
    "query": ("numbers", "QueryModel", "QueryModelConfig", QueryTraining),
    "pooling": ("numbers", "PoolingModel", "PoolingConfig", PoolingTraining),
    "recurrent": ("text", "RecurrentSeq2Seq", "RecurrentConfig", RecurrentTraining),
    "transformer": ("text", "Transformer", "TransformerConfig", TransformerTraining),
    "decoder": ("tokens", "DecoderOnly", "DecoderOnlyConfig", TokenTraining),
}
"""By name of a model: the form of its answers, the names of its class and of its config class in `regard.models`,
and its training options.

The registry has the names of classes instead of the classes, because importing every model slows down each
command. The first model that fits a task is its default, unless the task names another."""


OWN_TRAINING: dict[str, type[TrainingConfig]] = {
    "numbers": OwnAnswerTraining,
    "text": OwnSequenceTraining,
    "tokens": TokenTraining,
}
"""Training options of a custom model, by the form of its answers."""


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """Classes that belong to the name of a model."""

    name: str
    model: type[TaskModel]
    """Class of the model, a subclass of `AnswerModel`, `Seq2Seq` or `LanguageModel`."""
    config: type[ModelConfig]
    """Dataclass of its options."""
    settings: type[TrainingConfig]
    """Dataclass of the model's training options on a synthetic task."""

    def part_classes(self, task: type[AnyTask]) -> "dict[str, type[DataclassInstance]]":
        """Return the dataclasses of the options on a task: task, model, training."""
        training = self.settings if task.draws or task.answers == "tokens" else TranslationTraining
        return {"task": task.config_class, "model": self.config, "training": training}

    def has_presets(self, task: type[AnyTask]) -> bool:
        """Return whether `preset` applies to the model on a task."""
        return self.name == "transformer" and not task.draws


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
    custom = import_plugin("model", name)
    config_class = getattr(custom, "config_class", None)
    if (
        isinstance(custom, type)
        and issubclass(custom, AnswerModel | Seq2Seq | LanguageModel)
        and isinstance(config_class, type)
        and issubclass(config_class, ModelConfig)
    ):
        return ModelSpec(name=name, model=custom, config=config_class, settings=OWN_TRAINING[custom.answers])
    raise PluginError(
        f"model {name!r} is not a class derived from regard.models.AnswerModel, Seq2Seq or LanguageModel, with a "
        f"config_class derived from regard.models.ModelConfig"
    )


def models_for(task: type[AnyTask]) -> list[str]:
    """Return the names of the built-in models that fit a task."""
    return [name for name, (answers, *_) in MODELS.items() if answers == task.answers]
