"""Load, record, analyze and prune external models, such as PyTorch modules and transformers models."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.external.comparison import ModelComparison as ModelComparison
    from regard.external.head_pruning import PrunedExternalModel as PrunedExternalModel
    from regard.external.loading import look as look
    from regard.external.logit_attribution import (
        LogitAttribution as LogitAttribution,
        logit_attribution as logit_attribution,
    )
    from regard.external.logit_lens import LogitLens as LogitLens, logit_lens as logit_lens
    from regard.external.long_inputs import (
        LongRecord as LongRecord,
        LongRecords as LongRecords,
        record_long as record_long,
    )
    from regard.external.model import ExternalModel as ExternalModel
    from regard.external.next_tokens import (
        NextToken as NextToken,
        NextTokens as NextTokens,
        mask_token as mask_token,
        next_tokens as next_tokens,
        prediction_kind as prediction_kind,
    )
    from regard.external.recording import intervene as intervene, record as record
    from regard.external.weighted_values import (
        WeightedValues as WeightedValues,
        weighted_values as weighted_values,
    )

late(__name__)
