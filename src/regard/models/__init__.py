"""Models built from `regard.attention`: query, pooling, recurrent encoder-decoder, Transformer,
decoder-only language model."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.models.base import AnswerModel as AnswerModel, ModelConfig as ModelConfig, TaskModel as TaskModel
    from regard.models.decoder_only import DecoderOnly as DecoderOnly, DecoderOnlyConfig as DecoderOnlyConfig
    from regard.models.language_model import CacheState as CacheState, LanguageModel as LanguageModel
    from regard.models.pooling import PoolingConfig as PoolingConfig, PoolingModel as PoolingModel
    from regard.models.query import QueryModel as QueryModel, QueryModelConfig as QueryModelConfig
    from regard.models.recurrent import RecurrentConfig as RecurrentConfig, RecurrentSeq2Seq as RecurrentSeq2Seq
    from regard.models.recurrent_encoder import RecurrentEncoder as RecurrentEncoder
    from regard.models.seq2seq import Seq2Seq as Seq2Seq, State as State
    from regard.models.transformer import Transformer as Transformer, TransformerConfig as TransformerConfig

late(__name__)
