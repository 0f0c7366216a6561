"""Models that were not built here, as subjects: PyTorch's layers, Hugging Face's models, anybody's own."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.external.comparing import Beside
    from regard.external.intervening import intervene
    from regard.external.long import LongRecord, LongRecords, record_long
    from regard.external.looking import look
    from regard.external.model import ForeignModel
    from regard.external.patching import Patched, patch
    from regard.external.pruned import ForeignPruned
    from regard.external.recording import record

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
