"""Everything that decides a run: what is chosen of the task, of the model and of the training.

config = make_config("signal2", {"heads": 8})
config.training.steps
"""

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic

from typing_extensions import TypeVar

from regard.data.parallel import TextDigest
from regard.models import ModelConfig
from regard.tasks import AnyTask, find_task
from regard.training.registry import ModelSpec, find_model
from regard.training.settings import TrainingConfig

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

TaskPart = TypeVar("TaskPart", covariant=True, bound="DataclassInstance", default="DataclassInstance")
ModelPart = TypeVar("ModelPart", covariant=True, bound=ModelConfig, default=ModelConfig)
TrainingPart = TypeVar("TrainingPart", covariant=True, bound=TrainingConfig, default=TrainingConfig)
PARTS = ("task", "model", "training")
"""The dataclasses of a `RunConfig`; the names of their fields, which are the flags, are distinct."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The run that another one began from, as it was then."""

    run: str
    """Absolute path of its folder."""
    step: int
    """Training steps behind its model."""
    weights: str
    """SHA-256 of its model.safetensors."""


@dataclass(frozen=True, kw_only=True)
class RunConfig(Generic[TaskPart, ModelPart, TrainingPart]):
    """All of a run: stored with it, so that nothing needs to be said twice."""

    on: str
    """Name of the task, or absolute path of the Python file that defines it."""
    kind: str
    """Name of the kind of model, or module:Class."""
    task: TaskPart
    """What is chosen of the task."""
    model: ModelPart
    """The parts of the model."""
    training: TrainingPart
    """How it is trained."""
    tokenizer: str | None = None
    """Digest of the vocabularies that were learned from text; None where there are none."""
    bleu_tokenizer: str | None = None
    """sacrebleu's tokenizer that its validation, and its tests, work out BLEU with; None where nothing is
    validated."""
    kept_heads: dict[str, list[int]] = field(default_factory=dict)
    """By layer: the heads that pruning has left in it, in ascending order."""
    origin: Origin | None = None
    """The run whose parameters and vocabularies it began with; None for one that was drawn from its seed."""
    text: dict[str, list[TextDigest]] = field(default_factory=dict)
    """By flag: the files of text that it began to learn from. Empty for earlier runs, and tasks without text."""
    initial: str | None = None
    """SHA-256 of its parameters before the first step; None for earlier runs."""

    @property
    def name(self) -> str:
        """The task's name, and that of the run's folder."""
        return self.task_class.name

    @property
    def task_class(self) -> type[AnyTask]:
        """The task's class."""
        return find_task(self.on)

    @property
    def model_spec(self) -> ModelSpec:
        """The kind of model."""
        return find_model(self.kind)

    def parts(self) -> "dict[str, DataclassInstance]":
        """Return the dataclasses of task, model and training, by the name of the part."""
        return {"task": self.task, "model": self.model, "training": self.training}

    def flags(self) -> dict[str, object]:
        """Return all flags, by name."""
        named = {
            each.name: getattr(part, each.name)
            for part in self.parts().values()
            for each in dataclasses.fields(part)
        }
        return {"model": self.kind, **named}

    def resolved(self) -> "RunConfig[TaskPart, ModelPart, TrainingPart]":
        """Return the config with the recipe's own learning rate, where none was given."""
        if self.training.lr is not None:
            return self
        lr = self.training.how.default_lr(self.model)
        return dataclasses.replace(self, training=dataclasses.replace(self.training, lr=lr))
