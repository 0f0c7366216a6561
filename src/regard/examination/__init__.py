"""Examination: what attention means. Shares on what is relevant, importance of heads, probing, alignment."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.examination.agreement import Agreement
    from regard.examination.alignment import Alignment, alignment, error_rate
    from regard.examination.choosing import AligningHeads, AlignmentChoice, By, KeptHeads, choose_heads, combined
    from regard.examination.estimates import Estimate
    from regard.examination.examination import Examination, examine
    from regard.examination.explained import Answered, Explanation
    from regard.examination.explanation import explain
    from regard.examination.findings import HeadFindings
    from regard.examination.importance import HeadImportance, Taken, head_importance, take_out
    from regard.examination.kept import examined_in
    from regard.examination.linking import Head, all_weights, links_of, reading_heads, word_weights
    from regard.examination.probing import Probe, probe
    from regard.examination.pruned import Pruned
    from regard.examination.relevance import RelevanceShare, mass_on, relevance_share
    from regard.examination.roles import HeadRole, HeadRoles, head_roles
    from regard.examination.samples import HeadSample, HeadSamples, head_samples
    from regard.examination.sums import with_sums

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
