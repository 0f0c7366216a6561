"""Runs: train a model, load it, and test, attend, translate, align or prune with it.

    run = regard.train("signal2", heads=8)
    run.test()
    run.attend("BCCCBAABACCCA")

    run = regard.train("dates")
    run.translate(["3. Mai 1979", "14 juillet 1989"])

The command line calls the same functions.
"""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.runs.alignment import LinkedPair
    from regard.runs.answer_run import AnswerRun, TestReport
    from regard.runs.averaging import average
    from regard.runs.drawing import draw_model
    from regard.runs.head_timeline import timeline
    from regard.runs.language_run import LanguageReport, LanguageRun
    from regard.runs.loading import SAVEPATH, load, load_translator
    from regard.runs.pair_run import PairReport, PairRun
    from regard.runs.pruning import PruneReport, prune
    from regard.runs.run import Figures, Run
    from regard.runs.run_config import without_text
    from regard.runs.run_types import AnyRun
    from regard.runs.sequence_run import SequenceRun
    from regard.runs.task_configs import (
        CopyConfig,
        CountingConfig,
        DatesConfig,
        DifferenceConfig,
        DyckConfig,
        InductionConfig,
        ModularConfig,
        MqarConfig,
        ParityConfig,
        PhrasesConfig,
        RecallConfig,
        RegressionConfig,
        ReverseConfig,
        SelectiveCopyConfig,
        Signal2Config,
        SignalConfig,
        SortConfig,
        TextConfig,
        TranslationConfig,
    )
    from regard.runs.training import train, train_seeds
    from regard.runs.translation_run import TranslationReport, TranslationRun

late(__name__)

__all__ = [
    "SAVEPATH",
    "AnswerRun",
    "AnyRun",
    "CopyConfig",
    "CountingConfig",
    "DatesConfig",
    "DifferenceConfig",
    "DyckConfig",
    "Figures",
    "InductionConfig",
    "LanguageReport",
    "LanguageRun",
    "LinkedPair",
    "ModularConfig",
    "MqarConfig",
    "PairReport",
    "PairRun",
    "ParityConfig",
    "PhrasesConfig",
    "PruneReport",
    "RecallConfig",
    "RegressionConfig",
    "ReverseConfig",
    "Run",
    "SelectiveCopyConfig",
    "SequenceRun",
    "Signal2Config",
    "SignalConfig",
    "SortConfig",
    "TestReport",
    "TextConfig",
    "TranslationConfig",
    "TranslationReport",
    "TranslationRun",
    "average",
    "draw_model",
    "load",
    "load_translator",
    "prune",
    "timeline",
    "train",
    "train_seeds",
    "without_text",
]
