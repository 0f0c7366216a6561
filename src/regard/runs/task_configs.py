"""Config classes of the tasks: `regard.train(regard.CountingConfig(steps=500))`.

Each class has all options of a task, of its default model and of its training, with the task's defaults. For
another model, use `regard.make_config(task, {"model": ...})`.

>>> import regard
>>> regard.CountingConfig(hidden=32) == regard.make_config("counting", {"hidden": 32}).options
True
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard.tasks.all_tasks import TASKS
from regard.training.config import Options, TaskPart, class_name, options_class

if TYPE_CHECKING:
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
    from regard.training.settings import TrainingConfig

    # Type checkers and editors see these classes, which have the same fields. `__getattr__` makes those that run.

    @dataclass(frozen=True, kw_only=True)
    class _CountingTask(
        Options[AnswerRun[TaskConfig, QueryModelConfig]], TaskConfig, QueryModelConfig, TrainingConfig
    ):
        """Options of Counting."""

    @dataclass(frozen=True, kw_only=True)
    class _RecurrentTask(Options[PairRun[TaskPart, RecurrentConfig]], RecurrentConfig, TrainingConfig):
        """Options of Recurrent."""

    @dataclass(frozen=True, kw_only=True)
    class _LanguageTask(Options[LanguageRun[TaskPart, DecoderOnlyConfig]], DecoderOnlyConfig, TrainingConfig):
        """Options of Language."""

    @dataclass(frozen=True, kw_only=True)
    class CountingConfig(_CountingTask):
        """Options of Counting."""

    @dataclass(frozen=True, kw_only=True)
    class DifferenceConfig(_CountingTask):
        """Options of Difference."""

    @dataclass(frozen=True, kw_only=True)
    class SignalConfig(_CountingTask):
        """Options of Signal."""

    @dataclass(frozen=True, kw_only=True)
    class Signal2Config(_CountingTask):
        """Options of Signal2."""

    @dataclass(frozen=True, kw_only=True)
    class CopyConfig(_RecurrentTask[SequenceConfig], SequenceConfig):
        """Options of Copy."""

    @dataclass(frozen=True, kw_only=True)
    class ReverseConfig(_RecurrentTask[SequenceConfig], SequenceConfig):
        """Options of Reverse."""

    @dataclass(frozen=True, kw_only=True)
    class SortConfig(_RecurrentTask[SequenceConfig], SequenceConfig):
        """Options of Sort."""

    @dataclass(frozen=True, kw_only=True)
    class DatesConfig(_RecurrentTask[DatesTaskConfig], DatesTaskConfig):
        """Options of Dates."""

    @dataclass(frozen=True, kw_only=True)
    class RecallConfig(
        Options[AnswerRun[RecallTaskConfig, PoolingConfig]], RecallTaskConfig, PoolingConfig, TrainingConfig
    ):
        """Options of Recall."""

    @dataclass(frozen=True, kw_only=True)
    class PhrasesConfig(
        Options[PairRun[PhrasesTaskConfig, TransformerConfig]],
        PhrasesTaskConfig,
        TransformerConfig,
        TrainingConfig,
    ):
        """Options of Phrases."""

    @dataclass(frozen=True, kw_only=True)
    class TranslationConfig(
        Options[TranslationRun[TranslationTaskConfig, TransformerConfig]],
        TranslationTaskConfig,
        TransformerConfig,
        TrainingConfig,
    ):
        """Options of Translation."""

    @dataclass(frozen=True, kw_only=True)
    class InductionConfig(_LanguageTask[InductionTaskConfig], InductionTaskConfig):
        """Options of Induction."""

    @dataclass(frozen=True, kw_only=True)
    class MqarConfig(_LanguageTask[MqarTaskConfig], MqarTaskConfig):
        """Options of Mqar."""

    @dataclass(frozen=True, kw_only=True)
    class ModularConfig(_LanguageTask[ModularTaskConfig], ModularTaskConfig):
        """Options of Modular."""

    @dataclass(frozen=True, kw_only=True)
    class SelectiveCopyConfig(_LanguageTask[SelectiveCopyTaskConfig], SelectiveCopyTaskConfig):
        """Options of SelectiveCopy."""

    @dataclass(frozen=True, kw_only=True)
    class ParityConfig(_LanguageTask[ParityTaskConfig], ParityTaskConfig):
        """Options of Parity."""

    @dataclass(frozen=True, kw_only=True)
    class DyckConfig(_LanguageTask[DyckTaskConfig], DyckTaskConfig):
        """Options of Dyck."""

    @dataclass(frozen=True, kw_only=True)
    class RegressionConfig(_LanguageTask[RegressionTaskConfig], RegressionTaskConfig):
        """Options of Regression."""

    @dataclass(frozen=True, kw_only=True)
    class TextConfig(_LanguageTask[TextTaskConfig], TextTaskConfig):
        """Options of Text."""


def __getattr__(name: str) -> type[Options]:
    """Return the config class of a task."""
    for task in TASKS:
        if class_name(task) == name:
            return options_class(task)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
