"""Interpretation: test with relevance, ablation, probing and alignment whether attention is meaningful."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.interpret.agreement import Agreement
    from regard.interpret.alignment import Alignment, alignment, error_rate
    from regard.interpret.attribution import METHODS, Attribution, Method, Trial, attribute
    from regard.interpret.composition import Composition, composition
    from regard.interpret.estimates import Estimate
    from regard.interpret.examination import Examination, examine
    from regard.interpret.examined_runs import ExaminedRuns
    from regard.interpret.explanation import explain
    from regard.interpret.explanation_result import Explanation, StepAnswer
    from regard.interpret.figures import KINDS as FIGURE_KINDS
    from regard.interpret.figures import plot
    from regard.interpret.findings import HeadFindings
    from regard.interpret.formation import Development, MedianInterval, Order, RoleHead
    from regard.interpret.head_scores import HeadScores, measure_heads
    from regard.interpret.head_selection import (
        AligningHeads,
        AlignmentChoice,
        By,
        KeptHeads,
        choose_heads,
        combine_heads,
    )
    from regard.interpret.importance import HeadImportance, Pruned, PrunedHeads, head_importance, prune_heads
    from regard.interpret.intermediates import with_sums
    from regard.interpret.patching import PatchingResult, patch
    from regard.interpret.path_patching import PathPatchingResult, patch_paths
    from regard.interpret.probing import Probe, probe_inputs
    from regard.interpret.relevance import RelevanceShare, attention_mass, relevance_share
    from regard.interpret.roles import HeadRole, HeadRoles, head_roles
    from regard.interpret.samples import HeadSample, HeadSamples, head_samples
    from regard.interpret.saved_examination import load_examination
    from regard.interpret.single_heads import (
        HeadEffect,
        HeadsBetween,
        HeadWeight,
        HeadWrites,
        OutputEffect,
        head_effect,
        head_writes,
        heads_between,
    )
    from regard.interpret.timeline import RoleTimeline, Timeline
    from regard.interpret.why import why
    from regard.interpret.why_result import ScorePart, Trace, TraceNode, Why
    from regard.interpret.word_links import Head, all_weights, cross_attention_heads, extract_links, word_weights

late(__name__)

__all__ = [
    "FIGURE_KINDS",
    "METHODS",
    "Agreement",
    "AligningHeads",
    "Alignment",
    "AlignmentChoice",
    "Attribution",
    "By",
    "Composition",
    "Development",
    "Estimate",
    "Examination",
    "ExaminedRuns",
    "Explanation",
    "Head",
    "HeadEffect",
    "HeadFindings",
    "HeadImportance",
    "HeadRole",
    "HeadRoles",
    "HeadSample",
    "HeadSamples",
    "HeadScores",
    "HeadWeight",
    "HeadWrites",
    "HeadsBetween",
    "KeptHeads",
    "MedianInterval",
    "Method",
    "Order",
    "OutputEffect",
    "PatchingResult",
    "PathPatchingResult",
    "Probe",
    "Pruned",
    "PrunedHeads",
    "RelevanceShare",
    "RoleHead",
    "RoleTimeline",
    "ScorePart",
    "StepAnswer",
    "Timeline",
    "Trace",
    "TraceNode",
    "Trial",
    "Why",
    "alignment",
    "all_weights",
    "attention_mass",
    "attribute",
    "choose_heads",
    "combine_heads",
    "composition",
    "cross_attention_heads",
    "error_rate",
    "examine",
    "explain",
    "extract_links",
    "head_effect",
    "head_importance",
    "head_roles",
    "head_samples",
    "head_writes",
    "heads_between",
    "load_examination",
    "measure_heads",
    "patch",
    "patch_paths",
    "plot",
    "probe_inputs",
    "prune_heads",
    "relevance_share",
    "why",
    "with_sums",
    "word_weights",
]
