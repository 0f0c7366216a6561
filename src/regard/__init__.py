"""Regard: train attention models, inspect what they attend to, and test whether their attention is meaningful.

    run = regard.train("signal2")
    print(run.test())
    print(run.attend("BCCCBAABACCCA"))

Names are imported when they are first used, so `import regard` is instant.
"""

from typing import TYPE_CHECKING

from regard.errors import InputError, MachineError, RegardError
from regard.late import late
from regard.version import __version__

if TYPE_CHECKING:
    from regard.attention import Record, Records
    from regard.convert import export, import_model
    from regard.course import CaseReport, CheckReport, Diagnosis, ExerciseReport, Finding, check
    from regard.data.datasets import fetch
    from regard.data.word_alignment import WordAlignment, read_links
    from regard.decoding import Candidate, SearchTree
    from regard.evaluation import Quality, Scored
    from regard.external import (
        ExternalModel,
        LongRecord,
        LongRecords,
        ModelComparison,
        PatchingResult,
        PrunedExternalModel,
        intervene,
        look,
        patch,
        record,
        record_long,
    )
    from regard.fast.memory import keep_memory
    from regard.interpret import (
        Agreement,
        AligningHeads,
        Alignment,
        AlignmentChoice,
        Estimate,
        Examination,
        Explanation,
        HeadFindings,
        HeadImportance,
        HeadRole,
        HeadRoles,
        HeadSamples,
        KeptHeads,
        RelevanceShare,
        examine,
        explain,
        head_importance,
        plot,
    )
    from regard.runs import (
        AnswerRun,
        AnyRun,
        CopyConfig,
        CountingConfig,
        DatesConfig,
        DifferenceConfig,
        Figures,
        LinkedPair,
        PairReport,
        PairRun,
        PhrasesConfig,
        PruneReport,
        RecallConfig,
        ReverseConfig,
        Run,
        SequenceRun,
        Signal2Config,
        SignalConfig,
        SortConfig,
        TestReport,
        TranslationConfig,
        TranslationReport,
        TranslationRun,
        draw_model,
        load,
        load_translator,
        prune,
        train,
    )
    from regard.server import show
    from regard.sweep import Comparison, Contrast, Interval, Measured, Variant, compare
    from regard.tasks import Example, Pair
    from regard.tasks import examples as list_tasks
    from regard.training import RunConfig, make_config
    from regard.viz import (
        AttentionMap,
        Layer,
        LayerMap,
        Maps,
        PaperFigure,
        Playback,
        ProbeInput,
        Subject,
        make_maps,
        view_weights,
    )

late(__name__)

__all__ = [
    "Agreement",
    "AligningHeads",
    "Alignment",
    "AlignmentChoice",
    "AnswerRun",
    "AnyRun",
    "AttentionMap",
    "Candidate",
    "CaseReport",
    "CheckReport",
    "Comparison",
    "Contrast",
    "CopyConfig",
    "CountingConfig",
    "DatesConfig",
    "Diagnosis",
    "DifferenceConfig",
    "Estimate",
    "Examination",
    "Example",
    "ExerciseReport",
    "Explanation",
    "ExternalModel",
    "Figures",
    "Finding",
    "HeadFindings",
    "HeadImportance",
    "HeadRole",
    "HeadRoles",
    "HeadSamples",
    "InputError",
    "Interval",
    "KeptHeads",
    "Layer",
    "LayerMap",
    "LinkedPair",
    "LongRecord",
    "LongRecords",
    "MachineError",
    "Maps",
    "Measured",
    "ModelComparison",
    "Pair",
    "PairReport",
    "PairRun",
    "PaperFigure",
    "PatchingResult",
    "PhrasesConfig",
    "Playback",
    "ProbeInput",
    "PruneReport",
    "PrunedExternalModel",
    "Quality",
    "RecallConfig",
    "Record",
    "Records",
    "RegardError",
    "RelevanceShare",
    "ReverseConfig",
    "Run",
    "RunConfig",
    "Scored",
    "SearchTree",
    "SequenceRun",
    "Signal2Config",
    "SignalConfig",
    "SortConfig",
    "Subject",
    "TestReport",
    "TranslationConfig",
    "TranslationReport",
    "TranslationRun",
    "Variant",
    "WordAlignment",
    "__version__",
    "check",
    "compare",
    "draw_model",
    "examine",
    "explain",
    "export",
    "fetch",
    "head_importance",
    "import_model",
    "intervene",
    "keep_memory",
    "list_tasks",
    "load",
    "load_translator",
    "look",
    "make_config",
    "make_maps",
    "patch",
    "plot",
    "prune",
    "read_links",
    "record",
    "record_long",
    "show",
    "train",
    "view_weights",
]
