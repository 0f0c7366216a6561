"""Registry of models: classes and training options for the name of a model.

To add a model, add its file in `regard.models`, an entry in `MODELS`, and, if necessary, a class of training
options in `settings`. Custom models are trained with the options of their base class, such as `AnswerModel`.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from regard.errors import unknown_choice
from regard.models.base import AnswerModel, ModelConfig, TaskModel
from regard.models.language_model import LanguageModel
from regard.models.seq2seq import Seq2Seq
from regard.plugins import PluginError, import_plugin
from regard.tasks.base import AnyTask
from regard.training.settings import (
    OwnAnswerTraining,
    OwnSequenceTraining,
    PoolingTraining,
    QueryTraining,
    RecurrentTraining,
    TrainingConfig,
    TransformerTraining,
)
from regard.training.token_settings import TokenTraining
from regard.training.translation_settings import TranslationTraining

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MODELS: dict[str, tuple[str, str, str, str, type[TrainingConfig]]] = {
    "query": ("numbers", "query", "QueryModel", "QueryModelConfig", QueryTraining),
    "pooling": ("numbers", "pooling", "PoolingModel", "PoolingConfig", PoolingTraining),
    "recurrent": ("text", "recurrent", "RecurrentSeq2Seq", "RecurrentConfig", RecurrentTraining),
    "transformer": ("text", "transformer", "Transformer", "TransformerConfig", TransformerTraining),
    "decoder": ("tokens", "decoder_only", "DecoderOnly", "DecoderOnlyConfig", TokenTraining),
}
"""By name of a model: the form of its answers, its module in `regard.models`, the names of its class and of its
config class, and its training options.

The registry contains names of classes instead of classes, because importing every model would slow down each
command. The default model of a task is the first compatible model, unless the task sets a default."""


OWN_TRAINING: dict[str, type[TrainingConfig]] = {
    "numbers": OwnAnswerTraining,
    "text": OwnSequenceTraining,
    "tokens": TokenTraining,
}
"""Training options of a custom model, by the form of its answers."""


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """Classes for the name of a model."""

    name: str
    model: type[TaskModel]
    """Class of the model, a subclass of `AnswerModel`, `Seq2Seq` or `LanguageModel`."""
    config: type[ModelConfig]
    """Dataclass of the options of the model."""
    settings: type[TrainingConfig]
    """Dataclass of the training options of the model on a synthetic task."""

    def part_classes(self, task: type[AnyTask]) -> "dict[str, type[DataclassInstance]]":
        training = self.settings if task.draws or task.answers == "tokens" else TranslationTraining
        return {"task": task.config_class, "model": self.config, "training": training}

    def has_presets(self, task: type[AnyTask]) -> bool:
        return self.name == "transformer" and not task.draws


def find_model(name: str) -> ModelSpec:
    """Return the classes for the name of a model, or for the custom model `module:Class`.

    Raises `InputError` for an unknown name, or a class that cannot be imported or has an invalid base class.

    >>> find_model("query").model.__name__
    'QueryModel'
    """
    if name in MODELS:
        _, module_name, model, config, settings = MODELS[name]
        module = import_module(f"regard.models.{module_name}")
        return ModelSpec(
            name=name, model=getattr(module, model), config=getattr(module, config), settings=settings
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
        f"model {name!r} is not a class derived from AnswerModel, Seq2Seq or LanguageModel, with a "
        f"config_class derived from regard.models.base.ModelConfig"
    )


def models_for(task: type[AnyTask]) -> list[str]:
    return [name for name, (answers, *_) in MODELS.items() if answers == task.answers]
