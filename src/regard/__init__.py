"""Regard: train attention models, inspect their attention, and test whether the attention is meaningful.

    run = regard.train("signal2")
    print(run.test())
    print(run.attend("BCCCBAABACCCA"))

Names are imported on first use, so `import regard` takes almost no time.
"""

import importlib
from typing import Any

from regard.errors import InputError as InputError, MachineError as MachineError, RegardError as RegardError
from regard.version import __version__ as __version__

MODULES = {
    "regard.attention.records": "Record Records",
    "regard.convert.exchange": "export import_model",
    "regard.data.datasets": "fetch",
    "regard.data.word_alignment": "read_links WordAlignment",
    "regard.decoding.controls": "Controls",
    "regard.decoding.search_tree": "SearchTree",
    "regard.decoding.translation": "Candidate",
    "regard.evaluation.bleu": "Quality",
    "regard.evaluation.scoring": "Scored",
    "regard.external.comparison": "ModelComparison",
    "regard.external.head_pruning": "PrunedExternalModel",
    "regard.external.layer_maps": "LongRecord LongRecords record_long",
    "regard.external.loading": "look",
    "regard.external.logit_attribution": "logit_attribution LogitAttribution WeightedValues weighted_values",
    "regard.external.logit_lens": "logit_lens LogitLens",
    "regard.external.model": "ExternalModel",
    "regard.external.next_tokens": "next_tokens NextToken NextTokens",
    "regard.activations.interface": "ActivationNames Activations activation_names record replace",
    "regard.activations.weights": "intervene",
    "regard.fast.memory": "keep_memory",
    "regard.interpret.alignment": "Agreement AligningHeads Alignment AlignmentChoice KeptHeads RelevanceShare",
    "regard.interpret.attribution.methods": "attribute Attribution",
    "regard.interpret.circuits": "CircuitScores Faithfulness faithfulness find_circuit",
    "regard.interpret.composition": "composition Composition",
    "regard.interpret.estimates": "Estimate",
    "regard.interpret.examination": "Examination examine HeadFindings",
    "regard.interpret.explanation": "explain Explanation",
    "regard.interpret.figures": "plot",
    "regard.interpret.health": "TrainingWatch watch WatchCallback WatchRecord read_watch",
    "regard.interpret.importance": "head_importance HeadImportance",
    "regard.interpret.patching": "patch patch_paths PatchingResult PathPatchingResult",
    "regard.interpret.roles": "HeadRole HeadRoles",
    "regard.interpret.single_heads": (
        "head_effect head_writes heads_between HeadEffect HeadsBetween HeadSamples HeadWeight HeadWrites OutputEffect"
    ),
    "regard.interpret.timeline": "Development MedianInterval RoleHead RoleTimeline Timeline",
    "regard.interpret.why": "why ScorePart Trace TraceNode Why",
    "regard.runs.alignment": "LinkedPair",
    "regard.runs.tensor_run": "AnswerRun LanguageReport LanguageRun TestReport",
    "regard.runs.loading": "load load_translator",
    "regard.runs.derived_runs": "average prune PruneReport",
    "regard.runs.run": "Figures Run",
    "regard.runs.run_types": "AnyRun",
    "regard.runs.seeds": "examine_runs ExaminedRuns timeline",
    "regard.runs.sequence_run": "PairReport PairRun SequenceRun TranslationReport TranslationRun",
    "regard.runs.task_configs": (
        "CopyConfig CountingConfig DatesConfig DifferenceConfig DyckConfig InductionConfig ModularConfig "
        "MqarConfig ParityConfig PhrasesConfig RecallConfig RegressionConfig ReverseConfig "
        "SelectiveCopyConfig Signal2Config SignalConfig SortConfig TextConfig TranslationConfig"
    ),
    "regard.runs.training": "train",
    "regard.runs.live_page": "write_live_page",
    "regard.server.serve": "show",
    "regard.statistics": "Interval",
    "regard.sweep.comparison": "compare Comparison Contrast Variant",
    "regard.sweep.job": "Measured",
    "regard.tasks.all_tasks": "Example list_tasks",
    "regard.tasks.pairs": "Pair",
    "regard.training.config": "make_config RunConfig",
    "regard.viz.attention_map": "AttentionMap make_maps Maps Playback view_weights",
    "regard.viz.maps": "LayerMap",
    "regard.viz.plots": "PaperFigure",
    "regard.viz.subject": "ForwardPass Layer ProbeInput Subject",
    "regard_course.check": "check",
    "regard_course.report": "CaseReport CheckReport Diagnosis ExerciseReport Finding",
    "regard_lab.bench.bench": "bench BenchResult",
    "regard_lab.bench.page": "write_bench_page",
    "regard_lab.doubts.calibration": "calibrate_doubt FaultResult TrustReport",
    "regard_lab.doubts.doubt": "check_doubt_file doubt Doubt Doubter write_doubts",
}
"""The public names of each module. Type checkers read them from `__init__.pyi`."""
_HOMES = {name: module for module, names in MODULES.items() for name in names.split()}
__all__ = sorted(["InputError", "MachineError", "RegardError", "__version__", *_HOMES])


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
