"""Attention: scores, masks, single- and multi-head attention, positions, blocks, hooks, records."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.attention.attend import attention_forward as attention_forward
    from regard.attention.blocks import (
        EPSILON as EPSILON,
        STANDARD as STANDARD,
        Block as Block,
        Decoder as Decoder,
        DecoderLayer as DecoderLayer,
        Encoder as Encoder,
        EncoderLayer as EncoderLayer,
        Norm as Norm,
        Residual as Residual,
        attention_layer as attention_layer,
        check_encoder_layer as check_encoder_layer,
        make_encoder_layer as make_encoder_layer,
        make_norm as make_norm,
    )
    from regard.attention.dropout import Dropout as Dropout
    from regard.attention.feed_forward import (
        Activation as Activation,
        FeedForward as FeedForward,
        GatedActivation as GatedActivation,
    )
    from regard.attention.functional import (
        attention_weights as attention_weights,
        tempered_weights as tempered_weights,
        uniform_weights as uniform_weights,
        weighted_sum as weighted_sum,
    )
    from regard.attention.hooks import (
        AttentionHook as AttentionHook,
        AttentionLayer as AttentionLayer,
        attention_layers as attention_layers,
        explicit_weights as explicit_weights,
        find_layer as find_layer,
        trace_layer as trace_layer,
    )
    from regard.attention.interventions import (
        Intervention as Intervention,
        intervene as intervene,
        temper as temper,
    )
    from regard.attention.key_values import KeyValues as KeyValues
    from regard.attention.layer_record import AttentionTrace as AttentionTrace, Record as Record
    from regard.attention.masks import (
        as_weights_mask as as_weights_mask,
        causal_mask as causal_mask,
        length_mask as length_mask,
    )
    from regard.attention.mechanism import PARTS as PARTS, Mechanism as Mechanism, list_parts as list_parts
    from regard.attention.multihead import MultiHeadAttention as MultiHeadAttention, keep_heads as keep_heads
    from regard.attention.names import short_name as short_name
    from regard.attention.parts import (
        AttentionKind as AttentionKind,
        Combination as Combination,
        Gate as Gate,
        LayerSizes as LayerSizes,
        LinearAttention as LinearAttention,
        MaskPart as MaskPart,
        Normalizer as Normalizer,
        Part as Part,
        PositionBias as PositionBias,
        Sharing as Sharing,
        Slot as Slot,
    )
    from regard.attention.positions import (
        Concatenated as Concatenated,
        LearnedPositions as LearnedPositions,
        NoPositions as NoPositions,
        Positions as Positions,
        Rotary as Rotary,
        Sinusoidal as Sinusoidal,
        find_positions as find_positions,
        make_positions as make_positions,
    )
    from regard.attention.records import Records as Records
    from regard.attention.scores import (
        SCORES as SCORES,
        Additive as Additive,
        Concat as Concat,
        Dot as Dot,
        General as General,
        ScaledDot as ScaledDot,
        Score as Score,
        find_score as find_score,
        make_score as make_score,
    )
    from regard.attention.single import Attention as Attention

late(__name__)
