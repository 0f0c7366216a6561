"""Regard: train a model whose heart is attention, see what it attends to, test whether that means anything.

    run = regard.train("signal2")
    print(run.test())
    print(run.attend("BCCCBAABACCCA"))

Names are imported when first used, so that `import regard` is instant.
"""

import importlib
from typing import TYPE_CHECKING, Any

from regard.errors import InputError, MachineError, RegardError
from regard.version import __version__

if TYPE_CHECKING:
    from regard.attention import Record, Records
    from regard.comparison import Comparison, Contrast, Interval, Measured, Variant, compare
    from regard.course import CaseReport, CheckReport, Diagnosis, ExerciseReport, Finding, check
    from regard.decoding import Candidate, SearchTree
    from regard.evaluation import Quality, Scored
    from regard.examination import (
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
    )
    from regard.exchange import export, import_model
    from regard.foreign import Beside, ForeignModel, ForeignPruned, Patched, intervene, look, patch, record
    from regard.inspection import AttentionMap, Layer, LayerMap, Maps, Playback, Subject, Trial, maps_of, view_of
    from regard.memory import keep_memory
    from regard.runs import (
        AnswerRun,
        AnyRun,
        Figures,
        LinkedPair,
        PairReport,
        PairRun,
        PruneReport,
        Run,
        SequenceRun,
        TestReport,
        TranslationReport,
        TranslationRun,
        draw_model,
        load,
        load_translator,
        plot_positions,
        prune,
        train,
    )
    from regard.serving import show
    from regard.tasks import Example, Pair
    from regard.tasks import examples as list_tasks
    from regard.text.datasets import fetch
    from regard.text.links import KnownLinks, read_links
    from regard.training import RunConfig, make_config

_HOMES = {
    "Agreement": "regard.examination",
    "AligningHeads": "regard.examination",
    "Alignment": "regard.examination",
    "AlignmentChoice": "regard.examination",
    "AnswerRun": "regard.runs",
    "AnyRun": "regard.runs",
    "AttentionMap": "regard.inspection",
    "Beside": "regard.foreign",
    "Candidate": "regard.decoding",
    "CaseReport": "regard.course",
    "CheckReport": "regard.course",
    "Comparison": "regard.comparison",
    "Contrast": "regard.comparison",
    "Diagnosis": "regard.course",
    "Estimate": "regard.examination",
    "Examination": "regard.examination",
    "Example": "regard.tasks",
    "ExerciseReport": "regard.course",
    "Explanation": "regard.examination",
    "Figures": "regard.runs",
    "Finding": "regard.course",
    "ForeignModel": "regard.foreign",
    "ForeignPruned": "regard.foreign",
    "HeadFindings": "regard.examination",
    "HeadImportance": "regard.examination",
    "HeadRole": "regard.examination",
    "HeadRoles": "regard.examination",
    "HeadSamples": "regard.examination",
    "Interval": "regard.comparison",
    "KeptHeads": "regard.examination",
    "KnownLinks": "regard.text.links",
    "Layer": "regard.inspection",
    "LayerMap": "regard.inspection",
    "LinkedPair": "regard.runs",
    "Maps": "regard.inspection",
    "Measured": "regard.comparison",
    "Pair": "regard.tasks",
    "PairReport": "regard.runs",
    "PairRun": "regard.runs",
    "Patched": "regard.foreign",
    "Playback": "regard.inspection",
    "PruneReport": "regard.runs",
    "Quality": "regard.evaluation",
    "Record": "regard.attention",
    "Records": "regard.attention",
    "RelevanceShare": "regard.examination",
    "Run": "regard.runs",
    "RunConfig": "regard.training",
    "Scored": "regard.evaluation",
    "SearchTree": "regard.decoding",
    "SequenceRun": "regard.runs",
    "Subject": "regard.inspection",
    "TestReport": "regard.runs",
    "TranslationReport": "regard.runs",
    "TranslationRun": "regard.runs",
    "Trial": "regard.inspection",
    "Variant": "regard.comparison",
    "check": "regard.course",
    "compare": "regard.comparison",
    "draw_model": "regard.runs",
    "examine": "regard.examination",
    "explain": "regard.examination",
    "export": "regard.exchange",
    "fetch": "regard.text.datasets",
    "head_importance": "regard.examination",
    "import_model": "regard.exchange",
    "intervene": "regard.foreign",
    "keep_memory": "regard.memory",
    "list_tasks": "regard.tasks",
    "load": "regard.runs",
    "load_translator": "regard.runs",
    "look": "regard.foreign",
    "make_config": "regard.training",
    "maps_of": "regard.inspection",
    "patch": "regard.foreign",
    "plot_positions": "regard.runs",
    "prune": "regard.runs",
    "read_links": "regard.text.links",
    "record": "regard.foreign",
    "show": "regard.serving",
    "train": "regard.runs",
    "view_of": "regard.inspection",
}
_RENAMED = {"list_tasks": "examples"}
"""What is called otherwise in its room, where nothing else has its name."""

__all__ = [
    "Agreement",
    "AligningHeads",
    "Alignment",
    "AlignmentChoice",
    "AnswerRun",
    "AnyRun",
    "AttentionMap",
    "Beside",
    "Candidate",
    "CaseReport",
    "CheckReport",
    "Comparison",
    "Contrast",
    "Diagnosis",
    "Estimate",
    "Examination",
    "Example",
    "ExerciseReport",
    "Explanation",
    "Figures",
    "Finding",
    "ForeignModel",
    "ForeignPruned",
    "HeadFindings",
    "HeadImportance",
    "HeadRole",
    "HeadRoles",
    "HeadSamples",
    "InputError",
    "Interval",
    "KeptHeads",
    "KnownLinks",
    "Layer",
    "LayerMap",
    "LinkedPair",
    "MachineError",
    "Maps",
    "Measured",
    "Pair",
    "PairReport",
    "PairRun",
    "Patched",
    "Playback",
    "PruneReport",
    "Quality",
    "Record",
    "Records",
    "RegardError",
    "RelevanceShare",
    "Run",
    "RunConfig",
    "Scored",
    "SearchTree",
    "SequenceRun",
    "Subject",
    "TestReport",
    "TranslationReport",
    "TranslationRun",
    "Trial",
    "Variant",
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
    "maps_of",
    "patch",
    "plot_positions",
    "prune",
    "read_links",
    "record",
    "show",
    "train",
    "view_of",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), _RENAMED.get(name, name))
    raise AttributeError(f"module 'regard' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
