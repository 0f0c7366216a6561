"""Regard: train attention models, inspect their attention, and test whether the attention is meaningful.

    run = regard.train("signal2")
    print(run.test())
    print(run.attend("BCCCBAABACCCA"))

Names are imported on first use, so `import regard` takes almost no time.
"""

from typing import TYPE_CHECKING

from regard.errors import InputError as InputError, MachineError as MachineError, RegardError as RegardError
from regard.late import late
from regard.version import __version__ as __version__

if TYPE_CHECKING:
    from regard.attention import Record as Record, Records as Records
    from regard.bench import BenchResult as BenchResult, bench as bench, write_bench_page as write_bench_page
    from regard.convert import export as export, import_model as import_model
    from regard.course import (
        CaseReport as CaseReport,
        CheckReport as CheckReport,
        Diagnosis as Diagnosis,
        ExerciseReport as ExerciseReport,
        Finding as Finding,
        check as check,
    )
    from regard.data.datasets import fetch as fetch
    from regard.data.word_alignment import WordAlignment as WordAlignment, read_links as read_links
    from regard.decoding import Candidate as Candidate, Controls as Controls, SearchTree as SearchTree
    from regard.doubts import (
        Doubt as Doubt,
        FaultResult as FaultResult,
        TrustReport as TrustReport,
        calibrate_doubt as calibrate_doubt,
        doubt as doubt,
    )
    from regard.evaluation import Quality as Quality, Scored as Scored
    from regard.external import (
        ExternalModel as ExternalModel,
        LogitAttribution as LogitAttribution,
        LogitLens as LogitLens,
        LongRecord as LongRecord,
        LongRecords as LongRecords,
        ModelComparison as ModelComparison,
        NextToken as NextToken,
        NextTokens as NextTokens,
        PrunedExternalModel as PrunedExternalModel,
        WeightedValues as WeightedValues,
        intervene as intervene,
        logit_attribution as logit_attribution,
        logit_lens as logit_lens,
        look as look,
        next_tokens as next_tokens,
        record as record,
        record_long as record_long,
        weighted_values as weighted_values,
    )
    from regard.fast.memory import keep_memory as keep_memory
    from regard.interpret import (
        Agreement as Agreement,
        AligningHeads as AligningHeads,
        Alignment as Alignment,
        AlignmentChoice as AlignmentChoice,
        Attribution as Attribution,
        Composition as Composition,
        Development as Development,
        Estimate as Estimate,
        Examination as Examination,
        ExaminedRuns as ExaminedRuns,
        Explanation as Explanation,
        HeadEffect as HeadEffect,
        HeadFindings as HeadFindings,
        HeadImportance as HeadImportance,
        HeadRole as HeadRole,
        HeadRoles as HeadRoles,
        HeadSamples as HeadSamples,
        HeadsBetween as HeadsBetween,
        HeadWeight as HeadWeight,
        HeadWrites as HeadWrites,
        KeptHeads as KeptHeads,
        MedianInterval as MedianInterval,
        Order as Order,
        OutputEffect as OutputEffect,
        PatchingResult as PatchingResult,
        PathPatchingResult as PathPatchingResult,
        RelevanceShare as RelevanceShare,
        RoleHead as RoleHead,
        RoleTimeline as RoleTimeline,
        ScorePart as ScorePart,
        Timeline as Timeline,
        Trace as Trace,
        TraceNode as TraceNode,
        Why as Why,
        attribute as attribute,
        composition as composition,
        examine as examine,
        explain as explain,
        head_effect as head_effect,
        head_importance as head_importance,
        head_writes as head_writes,
        heads_between as heads_between,
        patch as patch,
        patch_paths as patch_paths,
        plot as plot,
        why as why,
    )
    from regard.runs import (
        AnswerRun as AnswerRun,
        AnyRun as AnyRun,
        CopyConfig as CopyConfig,
        CountingConfig as CountingConfig,
        DatesConfig as DatesConfig,
        DifferenceConfig as DifferenceConfig,
        DyckConfig as DyckConfig,
        Figures as Figures,
        InductionConfig as InductionConfig,
        LanguageReport as LanguageReport,
        LanguageRun as LanguageRun,
        LinkedPair as LinkedPair,
        ModularConfig as ModularConfig,
        MqarConfig as MqarConfig,
        PairReport as PairReport,
        PairRun as PairRun,
        ParityConfig as ParityConfig,
        PhrasesConfig as PhrasesConfig,
        PruneReport as PruneReport,
        RecallConfig as RecallConfig,
        RegressionConfig as RegressionConfig,
        ReverseConfig as ReverseConfig,
        Run as Run,
        SelectiveCopyConfig as SelectiveCopyConfig,
        SequenceRun as SequenceRun,
        Signal2Config as Signal2Config,
        SignalConfig as SignalConfig,
        SortConfig as SortConfig,
        TestReport as TestReport,
        TextConfig as TextConfig,
        TranslationConfig as TranslationConfig,
        TranslationReport as TranslationReport,
        TranslationRun as TranslationRun,
        average as average,
        examine_runs as examine_runs,
        load as load,
        load_translator as load_translator,
        prune as prune,
        timeline as timeline,
        train as train,
    )
    from regard.server import show as show, write_live_page as write_live_page
    from regard.statistics import Interval as Interval
    from regard.sweep import (
        Comparison as Comparison,
        Contrast as Contrast,
        Measured as Measured,
        Variant as Variant,
        compare as compare,
    )
    from regard.tasks import Example as Example, Pair as Pair, list_tasks as list_tasks
    from regard.training import RunConfig as RunConfig, make_config as make_config
    from regard.viz import (
        AttentionMap as AttentionMap,
        Layer as Layer,
        LayerMap as LayerMap,
        Maps as Maps,
        PaperFigure as PaperFigure,
        Playback as Playback,
        ProbeInput as ProbeInput,
        Subject as Subject,
        make_maps as make_maps,
        view_weights as view_weights,
    )

late(__name__)
