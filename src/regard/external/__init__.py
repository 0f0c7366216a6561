"""Load, record, analyze and prune external models, such as PyTorch modules and transformers models."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.external.comparison import ModelComparison
    from regard.external.head_pruning import PrunedExternalModel
    from regard.external.loading import look
    from regard.external.logit_attribution import LogitAttribution, logit_attribution
    from regard.external.logit_lens import LogitLens, logit_lens
    from regard.external.long_inputs import LongRecord, LongRecords, record_long
    from regard.external.model import ExternalModel
    from regard.external.next_tokens import NextToken, NextTokens, mask_token, next_tokens, prediction_kind
    from regard.external.recording import intervene, record
    from regard.external.weighted_values import WeightedValues, weighted_values

late(__name__)

__all__ = [
    "ExternalModel",
    "LogitAttribution",
    "LogitLens",
    "LongRecord",
    "LongRecords",
    "ModelComparison",
    "NextToken",
    "NextTokens",
    "PrunedExternalModel",
    "WeightedValues",
    "intervene",
    "logit_attribution",
    "logit_lens",
    "look",
    "mask_token",
    "next_tokens",
    "prediction_kind",
    "record",
    "record_long",
    "weighted_values",
]
