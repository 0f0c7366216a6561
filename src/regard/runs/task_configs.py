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

from regard import tasks
from regard.models import DecoderOnlyConfig, PoolingConfig, QueryModelConfig, RecurrentConfig, TransformerConfig
from regard.runs.answer_run import AnswerRun
from regard.runs.language_run import LanguageRun
from regard.runs.pair_run import PairRun
from regard.runs.translation_run import TranslationRun
from regard.tasks import SequenceConfig, TaskConfig
from regard.training import (
    PoolingTraining,
    QueryTraining,
    RecurrentTraining,
    RunConfig,
    TaskPart,
    TokenTraining,
    TransformerTraining,
    TranslationTraining,
    make_config,
)

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
        """Return the config with separate parts for task, model and training."""
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


@dataclass(frozen=True, kw_only=True)
@_defaults_of("counting")
class CountingConfig(_CountingTask):
    """Options of Counting and of the query model."""


@dataclass(frozen=True, kw_only=True)
@_defaults_of("difference")
class DifferenceConfig(_CountingTask):
    """Options of Difference and of the query model."""


@dataclass(frozen=True, kw_only=True)
@_defaults_of("signal")
class SignalConfig(_CountingTask):
    """Options of Signal and of the query model."""


@dataclass(frozen=True, kw_only=True)
@_defaults_of("signal2")
class Signal2Config(_CountingTask):
    """Options of Signal 2 and of the query model."""


@dataclass(frozen=True, kw_only=True)
@_defaults_of("copy")
class CopyConfig(_RecurrentTask[SequenceConfig], SequenceConfig):
    """Options of Copy and of the recurrent model."""


@dataclass(frozen=True, kw_only=True)
@_defaults_of("reverse")
class ReverseConfig(_RecurrentTask[SequenceConfig], SequenceConfig):
    """Options of Reverse and of the recurrent model."""


@dataclass(frozen=True, kw_only=True)
@_defaults_of("sort")
class SortConfig(_RecurrentTask[SequenceConfig], SequenceConfig):
    """Options of Sort and of the recurrent model."""


@dataclass(frozen=True, kw_only=True)
@_defaults_of("recall")
class RecallConfig(
    FlatConfig[AnswerRun[tasks.RecallTaskConfig, PoolingConfig, PoolingTraining]],
    tasks.RecallTaskConfig,
    PoolingConfig,
    PoolingTraining,
):
    """Options of Recall and of the pooling classifier."""


@dataclass(frozen=True, kw_only=True)
@_defaults_of("dates")
class DatesConfig(_RecurrentTask[tasks.DatesTaskConfig], tasks.DatesTaskConfig):
    """Options of Dates and of the recurrent model."""


@dataclass(frozen=True, kw_only=True)
@_defaults_of("phrases")
class PhrasesConfig(
    FlatConfig[PairRun[tasks.PhrasesTaskConfig, TransformerConfig, TransformerTraining]],
    tasks.PhrasesTaskConfig,
    TransformerConfig,
    TransformerTraining,
):
    """Options of Phrases and of the Transformer."""


@dataclass(frozen=True, kw_only=True)
@_defaults_of("induction")
class InductionConfig(_LanguageTask[tasks.InductionTaskConfig], tasks.InductionTaskConfig):
    """Options of Induction and of the decoder-only model."""


@dataclass(frozen=True, kw_only=True)
@_defaults_of("mqar")
class MqarConfig(_LanguageTask[tasks.MqarTaskConfig], tasks.MqarTaskConfig):
    """Options of multi-query associative recall and of the decoder-only model."""


@dataclass(frozen=True, kw_only=True)
@_defaults_of("modular")
class ModularConfig(_LanguageTask[tasks.ModularTaskConfig], tasks.ModularTaskConfig):
    """Options of modular addition and of the decoder-only model."""


@dataclass(frozen=True, kw_only=True)
@_defaults_of("selective-copy")
class SelectiveCopyConfig(_LanguageTask[tasks.SelectiveCopyTaskConfig], tasks.SelectiveCopyTaskConfig):
    """Options of selective copy and of the decoder-only model."""


@dataclass(frozen=True, kw_only=True)
@_defaults_of("parity")
class ParityConfig(_LanguageTask[tasks.ParityTaskConfig], tasks.ParityTaskConfig):
    """Options of Parity and of the decoder-only model."""


@dataclass(frozen=True, kw_only=True)
@_defaults_of("dyck")
class DyckConfig(_LanguageTask[tasks.DyckTaskConfig], tasks.DyckTaskConfig):
    """Options of Dyck and of the decoder-only model."""


@dataclass(frozen=True, kw_only=True)
@_defaults_of("regression")
class RegressionConfig(_LanguageTask[tasks.RegressionTaskConfig], tasks.RegressionTaskConfig):
    """Options of in-context regression and of the decoder-only model."""


@dataclass(frozen=True, kw_only=True)
@_defaults_of("text")
class TextConfig(_LanguageTask[tasks.TextTaskConfig], tasks.TextTaskConfig):
    """Options of Text and of the decoder-only model."""


@dataclass(frozen=True, kw_only=True)
@_defaults_of("translation")
class TranslationConfig(
    FlatConfig[TranslationRun[tasks.TranslationTaskConfig, TransformerConfig, TranslationTraining]],
    tasks.TranslationTaskConfig,
    TransformerConfig,
    TranslationTraining,
):
    """Options of Translation and of the Transformer, in its default size."""
