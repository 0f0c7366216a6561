"""The kinds of model, in one table: what each is called, configured, trained and made by.

    kind = find_kind("transformer")         or "module:Class", a model of one's own
    model = kind.model(config, **task.sizes)

Adding a model to the package is its file in `regard.models`, its settings in `settings` where it needs some of
its own, and a line here. A model of one's own derives from `AnswerModel` or `Seq2Seq`; it is trained as the
settings of its contract say.
"""

from dataclasses import dataclass

from regard import models
from regard.errors import unknown_choice
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


@dataclass(frozen=True, kw_only=True)
class ModelKind:
    """One kind of model."""

    name: str
    model: type[TaskModel]
    """Its class, which derives from the contract that it satisfies: `AnswerModel` or `Seq2Seq`."""
    config: type[ModelConfig]
    """The dataclass of its parts."""
    settings: type[TrainingConfig]
    """How it is trained on a task that draws its samples, with the recipe in it."""

    def fits(self, task: type[AnyTask]) -> bool:
        """Whether it answers as the task asks: with numbers, or with text."""
        return self.model.answers == task.answers

    def settings_for(self, task: type[AnyTask]) -> type[TrainingConfig]:
        """Return the dataclass of its training on a task."""
        return self.settings if task.draws else TranslationTraining


KINDS: dict[str, tuple[str, str, str, type[TrainingConfig]]] = {
    "query": ("numbers", "QueryModel", "QueryModelConfig", QueryTraining),
    "pooling": ("numbers", "PoolingModel", "PoolingConfig", PoolingTraining),
    "recurrent": ("text", "RecurrentSeq2Seq", "RecurrentConfig", RecurrentTraining),
    "transformer": ("text", "Transformer", "TransformerConfig", TransformerTraining),
}
"""Of each kind by name: what it answers with, its class and that of its parts, both in `regard.models` and loaded
when they are asked for, and its training. A task's own is the first that fits, unless the task says otherwise."""
OWN_TRAINING: dict[type[TaskModel], type[TrainingConfig]] = {
    AnswerModel: OwnAnswerTraining,
    Seq2Seq: OwnSequenceTraining,
}
"""How models of one's own are trained, by the contract that they keep."""


def find_kind(name: str) -> ModelKind:
    """Return the kind called `name`, or that of the class that `module:Class` names.

    Raises `InputError` for a name that is unknown, or a class that cannot be imported or keeps no contract.
    """
    if name in KINDS:
        _, model, config, settings = KINDS[name]
        return ModelKind(
            name=name, model=getattr(models, model), config=getattr(models, config), settings=settings
        )
    if ":" not in name:
        raise unknown_choice("model", name, KINDS, other="module:Class")
    return _own(name, import_plugin("model", name))


def _own(name: str, found: object) -> ModelKind:
    if isinstance(found, type) and issubclass(found, TaskModel) and _is_config(found.config_class):
        for contract, settings in OWN_TRAINING.items():
            if issubclass(found, contract):
                return ModelKind(name=name, model=found, config=found.config_class, settings=settings)
    raise PluginError(
        f"model {name!r} is no class derived from regard.models.AnswerModel or Seq2Seq, with a config_class "
        f"derived from regard.models.ModelConfig"
    )


def _is_config(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, ModelConfig)


def kinds_for(task: type[AnyTask]) -> list[str]:
    """Return the names of the package's models that can be trained on a task."""
    return [name for name, (answers, *_) in KINDS.items() if answers == task.answers]
