"""Config classes of the tasks: `regard.train(regard.CountingConfig(steps=500))`.

Each class has all options of a task, of its default model and of its training, with the task's defaults. For
another model, use `regard.make_config(task, {"model": ...})`.

>>> import regard
>>> regard.CountingConfig(hidden=32) == regard.make_config("counting", {"hidden": 32}).options
True
"""

from typing import TYPE_CHECKING, dataclass_transform

from regard.tasks.all_tasks import TASKS
from regard.training.config import Options, RunType, TaskPart, TrainingConfig, class_name, options_class

if TYPE_CHECKING:
    from regard.models.decoder_only import DecoderOnlyConfig
    from regard.models.pooling import PoolingConfig
    from regard.models.query import QueryModelConfig
    from regard.models.recurrent import RecurrentConfig
    from regard.models.transformer import TransformerConfig
    from regard.runs.sequence_run import PairRun, TranslationRun
    from regard.runs.tensor_run import AnswerRun, LanguageRun
    from regard.tasks.base import TaskConfig
    from regard.tasks.dates import DatesTaskConfig
    from regard.tasks.language_tasks import (
        DyckTaskConfig,
        InductionTaskConfig,
        ModularTaskConfig,
        MqarTaskConfig,
        ParityTaskConfig,
        RegressionTaskConfig,
        SelectiveCopyTaskConfig,
    )
    from regard.tasks.pairs import SequenceConfig
    from regard.tasks.phrases import PhrasesTaskConfig
    from regard.tasks.recall import RecallTaskConfig
    from regard.tasks.text import TextTaskConfig
    from regard.tasks.translation import TranslationTaskConfig

    # Type checkers and editors see these classes, which have the same fields. `__getattr__` makes those that run.

    @dataclass_transform(frozen_default=True, kw_only_default=True)
    class _Task(Options[RunType], TrainingConfig): ...

    class _Counting(_Task[AnswerRun[TaskConfig, QueryModelConfig]], TaskConfig, QueryModelConfig): ...

    class _Sequence(_Task[PairRun[TaskPart, RecurrentConfig]], RecurrentConfig): ...

    class _Language(_Task[LanguageRun[TaskPart, DecoderOnlyConfig]], DecoderOnlyConfig): ...

    class CountingConfig(_Counting): ...

    class DifferenceConfig(_Counting): ...

    class SignalConfig(_Counting): ...

    class Signal2Config(_Counting): ...

    class RecallConfig(_Task[AnswerRun[RecallTaskConfig, PoolingConfig]], RecallTaskConfig, PoolingConfig): ...

    class CopyConfig(_Sequence[SequenceConfig], SequenceConfig): ...

    class ReverseConfig(_Sequence[SequenceConfig], SequenceConfig): ...

    class SortConfig(_Sequence[SequenceConfig], SequenceConfig): ...

    class DatesConfig(_Sequence[DatesTaskConfig], DatesTaskConfig): ...

    class PhrasesConfig(_Task[PairRun[PhrasesTaskConfig, TransformerConfig]], PhrasesTaskConfig, TransformerConfig): ...

    class TranslationConfig(
        _Task[TranslationRun[TranslationTaskConfig, TransformerConfig]], TranslationTaskConfig, TransformerConfig
    ): ...

    class InductionConfig(_Language[InductionTaskConfig], InductionTaskConfig): ...

    class MqarConfig(_Language[MqarTaskConfig], MqarTaskConfig): ...

    class ModularConfig(_Language[ModularTaskConfig], ModularTaskConfig): ...

    class SelectiveCopyConfig(_Language[SelectiveCopyTaskConfig], SelectiveCopyTaskConfig): ...

    class ParityConfig(_Language[ParityTaskConfig], ParityTaskConfig): ...

    class DyckConfig(_Language[DyckTaskConfig], DyckTaskConfig): ...

    class RegressionConfig(_Language[RegressionTaskConfig], RegressionTaskConfig): ...

    class TextConfig(_Language[TextTaskConfig], TextTaskConfig): ...


def __getattr__(name: str) -> type[Options]:
    """Return the config class of a task."""
    for task in TASKS:
        if class_name(task) == name:
            return options_class(task)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
