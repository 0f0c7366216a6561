"""Models that were not built here, as subjects: PyTorch's layers, Hugging Face's models, anybody's own."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.external.comparison import ModelComparison
    from regard.external.intervening import intervene
    from regard.external.loading import look
    from regard.external.long_inputs import LongRecord, LongRecords, record_long
    from regard.external.model import ExternalModel
    from regard.external.patching import PatchingResult, patch
    from regard.external.pruned import PrunedExternalModel
    from regard.external.recording import record

late(__name__)

__all__ = [
    "ExternalModel",
    "LongRecord",
    "LongRecords",
    "ModelComparison",
    "PatchingResult",
    "PrunedExternalModel",
    "intervene",
    "look",
    "patch",
    "record",
    "record_long",
]
