"""Attention: scores, masks, single- and multi-head attention, positions, blocks, hooks, records."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.attention.attend import attention_forward
    from regard.attention.blocks import (
        EPSILON,
        STANDARD,
        Block,
        Decoder,
        DecoderLayer,
        Encoder,
        EncoderLayer,
        Norm,
        Residual,
        attention_layer,
        check_encoder_layer,
        make_encoder_layer,
        make_norm,
    )
    from regard.attention.dropout import Dropout
    from regard.attention.feed_forward import Activation, FeedForward, GatedActivation
    from regard.attention.functional import (
        attention_weights,
        tempered_weights,
        uniform_weights,
        weighted_sum,
    )
    from regard.attention.hooks import (
        AttentionHook,
        AttentionLayer,
        attention_layers,
        explicit_weights,
        find_layer,
        trace_layer,
    )
    from regard.attention.interventions import Intervention, intervene, temper
    from regard.attention.layer_record import AttentionTrace, Record
    from regard.attention.masks import as_weights_mask, causal_mask, length_mask
    from regard.attention.mechanism import PARTS, Mechanism, list_parts
    from regard.attention.multihead import KeyValues, MultiHeadAttention, keep_heads
    from regard.attention.parts import (
        AttentionKind,
        Combination,
        Gate,
        LayerSizes,
        LinearAttention,
        MaskPart,
        Normalizer,
        Part,
        PositionBias,
        Sharing,
        Slot,
    )
    from regard.attention.positions import (
        Concatenated,
        LearnedPositions,
        NoPositions,
        Positions,
        Rotary,
        Sinusoidal,
        find_positions,
        make_positions,
    )
    from regard.attention.records import Records, short_name
    from regard.attention.scores import (
        SCORES,
        Additive,
        Concat,
        Dot,
        General,
        ScaledDot,
        Score,
        find_score,
        make_score,
    )
    from regard.attention.single import Attention
    from regard.attention.torch_conversion import from_torch, to_torch

late(__name__)

__all__ = [
    "EPSILON",
    "PARTS",
    "SCORES",
    "STANDARD",
    "Activation",
    "Additive",
    "Attention",
    "AttentionHook",
    "AttentionKind",
    "AttentionLayer",
    "AttentionTrace",
    "Block",
    "Combination",
    "Concat",
    "Concatenated",
    "Decoder",
    "DecoderLayer",
    "Dot",
    "Dropout",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "Gate",
    "GatedActivation",
    "General",
    "Intervention",
    "KeyValues",
    "LayerSizes",
    "LearnedPositions",
    "LinearAttention",
    "MaskPart",
    "Mechanism",
    "MultiHeadAttention",
    "NoPositions",
    "Norm",
    "Normalizer",
    "Part",
    "PositionBias",
    "Positions",
    "Record",
    "Records",
    "Residual",
    "Rotary",
    "ScaledDot",
    "Score",
    "Sharing",
    "Sinusoidal",
    "Slot",
    "as_weights_mask",
    "attention_forward",
    "attention_layer",
    "attention_layers",
    "attention_weights",
    "causal_mask",
    "check_encoder_layer",
    "explicit_weights",
    "find_layer",
    "find_positions",
    "find_score",
    "from_torch",
    "intervene",
    "keep_heads",
    "length_mask",
    "list_parts",
    "make_encoder_layer",
    "make_norm",
    "make_positions",
    "make_score",
    "short_name",
    "temper",
    "tempered_weights",
    "to_torch",
    "trace_layer",
    "uniform_weights",
    "weighted_sum",
]
