"""Inspection: attention maps in the terminal, as a picture and as a page; relevance."""

from regard.inspection.endings import check_ending
from regard.inspection.maps import AttentionMap, LayerMap, attend, attend_pair
from regard.inspection.records import Records, record
from regard.inspection.relevance import RelevanceShare, relevance_share

__all__ = [
    "AttentionMap",
    "LayerMap",
    "Records",
    "RelevanceShare",
    "attend",
    "attend_pair",
    "check_ending",
    "record",
    "relevance_share",
]
