"""Models that were not built here, as subjects: PyTorch's layers, Hugging Face's models, anybody's own."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.foreign.comparing import Beside
    from regard.foreign.intervening import intervene
    from regard.foreign.long import LongRecord, LongRecords, record_long
    from regard.foreign.looking import look
    from regard.foreign.model import ForeignModel
    from regard.foreign.patching import Patched, patch
    from regard.foreign.pruned import ForeignPruned
    from regard.foreign.recording import record

late(__name__)

__all__ = [
    "Beside",
    "ForeignModel",
    "ForeignPruned",
    "LongRecord",
    "LongRecords",
    "Patched",
    "intervene",
    "look",
    "patch",
    "record",
    "record_long",
]
