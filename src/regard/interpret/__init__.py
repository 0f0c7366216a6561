"""Examination: what attention means. Shares on what is relevant, importance of heads, probing, alignment."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.interpret.agreement import Agreement
    from regard.interpret.alignment import Alignment, alignment, error_rate
    from regard.interpret.head_selection import AligningHeads, AlignmentChoice, By, KeptHeads, choose_heads, combine_heads
    from regard.interpret.estimates import Estimate
    from regard.interpret.examination import Examination, examine
    from regard.interpret.explanation_result import StepAnswer, Explanation
    from regard.interpret.explanation import explain
    from regard.interpret.findings import HeadFindings
    from regard.interpret.importance import HeadImportance, PrunedHeads, head_importance, prune_heads
    from regard.interpret.saved_examination import load_examination
    from regard.interpret.word_links import Head, all_weights, extract_links, cross_attention_heads, word_weights
    from regard.interpret.probing import Probe, probe
    from regard.interpret.pruning import Pruned
    from regard.interpret.relevance import RelevanceShare, attention_mass, relevance_share
    from regard.interpret.roles import HeadRole, HeadRoles, head_roles
    from regard.interpret.samples import HeadSample, HeadSamples, head_samples
    from regard.interpret.intermediates import with_sums

late(__name__)

__all__ = [
    "Agreement",
    "AligningHeads",
    "Alignment",
    "AlignmentChoice",
    "StepAnswer",
    "By",
    "Estimate",
    "Examination",
    "Explanation",
    "Head",
    "HeadFindings",
    "HeadImportance",
    "HeadRole",
    "HeadRoles",
    "HeadSample",
    "HeadSamples",
    "KeptHeads",
    "Probe",
    "Pruned",
    "RelevanceShare",
    "PrunedHeads",
    "alignment",
    "all_weights",
    "choose_heads",
    "combine_heads",
    "error_rate",
    "examine",
    "load_examination",
    "explain",
    "head_importance",
    "head_roles",
    "head_samples",
    "extract_links",
    "attention_mass",
    "probe",
    "cross_attention_heads",
    "relevance_share",
    "prune_heads",
    "with_sums",
    "word_weights",
]
