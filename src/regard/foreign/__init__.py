"""Models that were not built here, as subjects: PyTorch's layers, Hugging Face's models, anybody's own."""

from regard.foreign.intervening import intervene
from regard.foreign.long import LongRecord, LongRecords, record_long
from regard.foreign.recording import record

__all__ = ["LongRecord", "LongRecords", "intervene", "record", "record_long"]
