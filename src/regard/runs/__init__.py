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
    from regard.runs.alignment import LinkedPair as LinkedPair
    from regard.runs.answer_run import AnswerRun as AnswerRun, TestReport as TestReport
    from regard.runs.averaging import average as average
    from regard.runs.examined_runs import examine_runs as examine_runs
    from regard.runs.head_timeline import timeline as timeline
    from regard.runs.language_run import LanguageReport as LanguageReport, LanguageRun as LanguageRun
    from regard.runs.loading import SAVEPATH as SAVEPATH, load as load, load_translator as load_translator
    from regard.runs.pair_run import PairReport as PairReport, PairRun as PairRun
    from regard.runs.pruning import PruneReport as PruneReport, prune as prune
    from regard.runs.run import Figures as Figures, Run as Run
    from regard.runs.run_config import without_text as without_text
    from regard.runs.run_types import AnyRun as AnyRun
    from regard.runs.sequence_run import SequenceRun as SequenceRun
    from regard.runs.task_configs import (
        CopyConfig as CopyConfig,
        CountingConfig as CountingConfig,
        DatesConfig as DatesConfig,
        DifferenceConfig as DifferenceConfig,
        DyckConfig as DyckConfig,
        InductionConfig as InductionConfig,
        ModularConfig as ModularConfig,
        MqarConfig as MqarConfig,
        ParityConfig as ParityConfig,
        PhrasesConfig as PhrasesConfig,
        RecallConfig as RecallConfig,
        RegressionConfig as RegressionConfig,
        ReverseConfig as ReverseConfig,
        SelectiveCopyConfig as SelectiveCopyConfig,
        Signal2Config as Signal2Config,
        SignalConfig as SignalConfig,
        SortConfig as SortConfig,
        TextConfig as TextConfig,
        TranslationConfig as TranslationConfig,
    )
    from regard.runs.training import train as train
    from regard.runs.translation_run import (
        TranslationReport as TranslationReport,
        TranslationRun as TranslationRun,
    )

late(__name__)
