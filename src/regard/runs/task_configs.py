"""Config classes of the tasks, for completion in an editor: `regard.train(regard.CountingConfig(steps=500))`.

Each class has all options of a task, of its default model and of its training, with the task's defaults. For
another model, use `regard.make_config(task, {"model": ...})`.

>>> CountingConfig(hidden=32).run_config().model.hidden
32
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, cast

from regard.arguments import public
from regard.models.decoder_only import DecoderOnlyConfig
from regard.models.pooling import PoolingConfig
from regard.models.query import QueryModelConfig
from regard.models.recurrent import RecurrentConfig
from regard.models.transformer import TransformerConfig
from regard.runs.answer_run import AnswerRun
from regard.runs.language_run import LanguageRun
from regard.runs.pair_run import PairRun
from regard.runs.translation_run import TranslationRun
from regard.tasks.base import TaskConfig
from regard.tasks.dates import DatesTaskConfig
from regard.tasks.dyck import DyckTaskConfig
from regard.tasks.induction import InductionTaskConfig
from regard.tasks.modular import ModularTaskConfig
from regard.tasks.mqar import MqarTaskConfig
from regard.tasks.parity import ParityTaskConfig
from regard.tasks.phrases import PhrasesTaskConfig
from regard.tasks.recall import RecallTaskConfig
from regard.tasks.regression import RegressionTaskConfig
from regard.tasks.selective_copy import SelectiveCopyTaskConfig
from regard.tasks.sequences import SequenceConfig
from regard.tasks.text import TextTaskConfig
from regard.tasks.translation_config import TranslationTaskConfig
from regard.training.config import RunConfig, TaskPart, make_config
from regard.training.settings import PoolingTraining, QueryTraining, RecurrentTraining, TransformerTraining
from regard.training.token_settings import TokenTraining
from regard.training.translation_settings import TranslationTraining

RunType = TypeVar("RunType", covariant=True)
Config = TypeVar("Config")


class FlatConfig(Generic[RunType]):
    """Base class of the configs. A config has all options of a run in one flat class. `RunType` is the class of
    the run that `regard.train` returns."""

    on: ClassVar[str]
    """Name of the task."""

    def __post_init__(self) -> None:
        """Raise `InputError` for a value of an incorrect type or out of range."""
        self.run_config()

    def run_config(self) -> RunConfig:
        # A value that equals its default may not have been given, and gives way to the attention mechanism.
        defaults = {option.name: option.default for option in dataclasses.fields(cast(Any, self))}
        return make_config(
            self.on, {name: value for name, value in vars(self).items() if value != defaults[name]}
        )


def _defaults_of(task: str) -> Callable[[type[Config]], type[Config]]:
    """Return a decorator that sets the defaults of a class's fields to the defaults of a task."""

    def decorate(config_class: type[Config]) -> type[Config]:
        defaults = make_config(task).flags()
        annotations: dict[str, object] = {"on": "ClassVar[str]"}
        for base in config_class.__mro__[1:]:
            if dataclasses.is_dataclass(base):
                annotations |= {option.name: option.type for option in dataclasses.fields(base)}
        for name in annotations:
            setattr(config_class, name, defaults.get(name, task))
        config_class.__annotations__ = annotations
        return config_class

    return decorate


class _CountingTask(
    FlatConfig[AnswerRun[TaskConfig, QueryModelConfig, QueryTraining]],
    TaskConfig,
    QueryModelConfig,
    QueryTraining,
):
    """Options of a counting task and of the query model."""


class _RecurrentTask(
    FlatConfig[PairRun[TaskPart, RecurrentConfig, RecurrentTraining]], RecurrentConfig, RecurrentTraining
):
    """Options of the recurrent model."""


class _LanguageTask(
    FlatConfig[LanguageRun[TaskPart, DecoderOnlyConfig, TokenTraining]], DecoderOnlyConfig, TokenTraining
):
    """Options of the decoder-only model."""


@public
@dataclass(frozen=True, kw_only=True)
@_defaults_of("counting")
class CountingConfig(_CountingTask):
    """Options of Counting and of the query model."""


@public
@dataclass(frozen=True, kw_only=True)
@_defaults_of("difference")
class DifferenceConfig(_CountingTask):
    """Options of Difference and of the query model."""


@public
@dataclass(frozen=True, kw_only=True)
@_defaults_of("signal")
class SignalConfig(_CountingTask):
    """Options of Signal and of the query model."""


@public
@dataclass(frozen=True, kw_only=True)
@_defaults_of("signal2")
class Signal2Config(_CountingTask):
    """Options of Signal 2 and of the query model."""


@public
@dataclass(frozen=True, kw_only=True)
@_defaults_of("copy")
class CopyConfig(_RecurrentTask[SequenceConfig], SequenceConfig):
    """Options of Copy and of the recurrent model."""


@public
@dataclass(frozen=True, kw_only=True)
@_defaults_of("reverse")
class ReverseConfig(_RecurrentTask[SequenceConfig], SequenceConfig):
    """Options of Reverse and of the recurrent model."""


@public
@dataclass(frozen=True, kw_only=True)
@_defaults_of("sort")
class SortConfig(_RecurrentTask[SequenceConfig], SequenceConfig):
    """Options of Sort and of the recurrent model."""


@public
@dataclass(frozen=True, kw_only=True)
@_defaults_of("recall")
class RecallConfig(
    FlatConfig[AnswerRun[RecallTaskConfig, PoolingConfig, PoolingTraining]],
    RecallTaskConfig,
    PoolingConfig,
    PoolingTraining,
):
    """Options of Recall and of the pooling classifier."""


@public
@dataclass(frozen=True, kw_only=True)
@_defaults_of("dates")
class DatesConfig(_RecurrentTask[DatesTaskConfig], DatesTaskConfig):
    """Options of Dates and of the recurrent model."""


@public
@dataclass(frozen=True, kw_only=True)
@_defaults_of("phrases")
class PhrasesConfig(
    FlatConfig[PairRun[PhrasesTaskConfig, TransformerConfig, TransformerTraining]],
    PhrasesTaskConfig,
    TransformerConfig,
    TransformerTraining,
):
    """Options of Phrases and of the Transformer."""


@public
@dataclass(frozen=True, kw_only=True)
@_defaults_of("induction")
class InductionConfig(_LanguageTask[InductionTaskConfig], InductionTaskConfig):
    """Options of Induction and of the decoder-only model."""


@public
@dataclass(frozen=True, kw_only=True)
@_defaults_of("mqar")
class MqarConfig(_LanguageTask[MqarTaskConfig], MqarTaskConfig):
    """Options of multi-query associative recall and of the decoder-only model."""


@public
@dataclass(frozen=True, kw_only=True)
@_defaults_of("modular")
class ModularConfig(_LanguageTask[ModularTaskConfig], ModularTaskConfig):
    """Options of modular addition and of the decoder-only model."""


@public
@dataclass(frozen=True, kw_only=True)
@_defaults_of("selective-copy")
class SelectiveCopyConfig(_LanguageTask[SelectiveCopyTaskConfig], SelectiveCopyTaskConfig):
    """Options of selective copy and of the decoder-only model."""


@public
@dataclass(frozen=True, kw_only=True)
@_defaults_of("parity")
class ParityConfig(_LanguageTask[ParityTaskConfig], ParityTaskConfig):
    """Options of Parity and of the decoder-only model."""


@public
@dataclass(frozen=True, kw_only=True)
@_defaults_of("dyck")
class DyckConfig(_LanguageTask[DyckTaskConfig], DyckTaskConfig):
    """Options of Dyck and of the decoder-only model."""


@public
@dataclass(frozen=True, kw_only=True)
@_defaults_of("regression")
class RegressionConfig(_LanguageTask[RegressionTaskConfig], RegressionTaskConfig):
    """Options of in-context regression and of the decoder-only model."""


@public
@dataclass(frozen=True, kw_only=True)
@_defaults_of("text")
class TextConfig(_LanguageTask[TextTaskConfig], TextTaskConfig):
    """Options of Text and of the decoder-only model."""


@public
@dataclass(frozen=True, kw_only=True)
@_defaults_of("translation")
class TranslationConfig(
    FlatConfig[TranslationRun[TranslationTaskConfig, TransformerConfig, TranslationTraining]],
    TranslationTaskConfig,
    TransformerConfig,
    TranslationTraining,
):
    """Options of Translation and of the Transformer, in its default size."""
