"""Examination: what attention means. Shares on what is relevant, importance of heads, probing, alignment."""

from regard.examination.alignment import Alignment, alignment, error_rate
from regard.examination.estimates import Estimate
from regard.examination.examination import Examination, examine
from regard.examination.findings import HeadFindings
from regard.examination.importance import HeadImportance, head_importance
from regard.examination.kept import sentences_in
from regard.examination.probing import Probe, probe
from regard.examination.relevance import RelevanceShare, mass_on, relevance_share

__all__ = [
    "Alignment",
    "Estimate",
    "Examination",
    "HeadFindings",
    "HeadImportance",
    "Probe",
    "RelevanceShare",
    "alignment",
    "error_rate",
    "examine",
    "head_importance",
    "mass_on",
    "probe",
    "relevance_share",
    "sentences_in",
]
