"""Models built from `regard.attention`: query, pooling, recurrent encoder-decoder, Transformer,
decoder-only language model."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.models.base import AnswerModel, ModelConfig, TaskModel
    from regard.models.decoder_only import DecoderOnly, DecoderOnlyConfig
    from regard.models.language_model import CacheState, LanguageModel
    from regard.models.pooling import PoolingConfig, PoolingModel
    from regard.models.query import QueryModel, QueryModelConfig
    from regard.models.recurrent import RecurrentConfig, RecurrentSeq2Seq
    from regard.models.recurrent_encoder import RecurrentEncoder
    from regard.models.seq2seq import Seq2Seq, State
    from regard.models.transformer import Transformer, TransformerConfig

late(__name__)

__all__ = [
    "AnswerModel",
    "CacheState",
    "DecoderOnly",
    "DecoderOnlyConfig",
    "LanguageModel",
    "ModelConfig",
    "PoolingConfig",
    "PoolingModel",
    "QueryModel",
    "QueryModelConfig",
    "RecurrentConfig",
    "RecurrentEncoder",
    "RecurrentSeq2Seq",
    "Seq2Seq",
    "State",
    "TaskModel",
    "Transformer",
    "TransformerConfig",
]
