"""Inspection: attention maps in the terminal, as a picture and as a page; relevance."""

from regard.inspection.endings import check_ending
from regard.inspection.examination import Examination, examine
from regard.inspection.importance import HeadImportance, head_importance
from regard.inspection.maps import AttentionMap, LayerMap, attend, attend_pair
from regard.inspection.probing import Probe, probe
from regard.inspection.records import Records, record
from regard.inspection.relevance import CROSS, RelevanceShare, relevance_share

__all__ = [
    "CROSS",
    "AttentionMap",
    "Examination",
    "HeadImportance",
    "LayerMap",
    "Probe",
    "Records",
    "RelevanceShare",
    "attend",
    "attend_pair",
    "check_ending",
    "examine",
    "head_importance",
    "probe",
    "record",
    "relevance_share",
]
