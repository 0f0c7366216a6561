"""Load, record, analyse and prune models that Regard did not build, such as PyTorch modules and transformers
models.
"""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.external.comparison import ModelComparison
    from regard.external.head_pruning import PrunedExternalModel
    from regard.external.loading import look
    from regard.external.long_inputs import LongRecord, LongRecords, record_long
    from regard.external.model import ExternalModel
    from regard.external.patching import PatchingResult, patch
    from regard.external.recording import intervene, record

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
