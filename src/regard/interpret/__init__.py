"""Examination: what attention means. Shares on what is relevant, importance of heads, probing, alignment."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.interpret.agreement import Agreement
    from regard.interpret.alignment import Alignment, alignment, error_rate
    from regard.interpret.head_selection import AligningHeads, AlignmentChoice, By, KeptHeads, choose_heads, combined
    from regard.interpret.estimates import Estimate
    from regard.interpret.examination import Examination, examine
    from regard.interpret.explanation_result import Answered, Explanation
    from regard.interpret.explanation import explain
    from regard.interpret.findings import HeadFindings
    from regard.interpret.importance import HeadImportance, Taken, head_importance, take_out
    from regard.interpret.saved_examination import examined_in
    from regard.interpret.word_links import Head, all_weights, links_of, reading_heads, word_weights
    from regard.interpret.probing import Probe, probe
    from regard.interpret.pruning import Pruned
    from regard.interpret.relevance import RelevanceShare, mass_on, relevance_share
    from regard.interpret.roles import HeadRole, HeadRoles, head_roles
    from regard.interpret.samples import HeadSample, HeadSamples, head_samples
    from regard.interpret.intermediates import with_sums

late(__name__)

__all__ = [
    "Agreement",
    "AligningHeads",
    "Alignment",
    "AlignmentChoice",
    "Answered",
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
    "Taken",
    "alignment",
    "all_weights",
    "choose_heads",
    "combined",
    "error_rate",
    "examine",
    "examined_in",
    "explain",
    "head_importance",
    "head_roles",
    "head_samples",
    "links_of",
    "mass_on",
    "probe",
    "reading_heads",
    "relevance_share",
    "take_out",
    "with_sums",
    "word_weights",
]
