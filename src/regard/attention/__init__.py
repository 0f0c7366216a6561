"""Attention: scores, masks, single- and multi-head attention, positions, blocks, recording."""

from regard.attention.blocks import Decoder, DecoderLayer, Encoder, EncoderLayer, FeedForward, attention_layer
from regard.attention.dropout import Dropout
from regard.attention.intervening import Intervention, intervene
from regard.attention.masks import as_weights_mask, causal_mask, length_mask, masked_softmax
from regard.attention.multihead import KeyValues, MultiHeadAttention
from regard.attention.positions import Concatenated, LearnedPositions, Rotary, Sinusoidal
from regard.attention.pruning import keep_heads
from regard.attention.recording import Record, Recordable, explicit, find_layer, record, short_name
from regard.attention.scores import (
    SCORES,
    Additive,
    Concat,
    Dot,
    General,
    ScaledDot,
    Score,
    find_score,
)
from regard.attention.single import Attention

__all__ = [
    "SCORES",
    "Additive",
    "Attention",
    "Concat",
    "Concatenated",
    "Decoder",
    "DecoderLayer",
    "Dot",
    "Dropout",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "General",
    "Intervention",
    "KeyValues",
    "LearnedPositions",
    "MultiHeadAttention",
    "Record",
    "Recordable",
    "Rotary",
    "ScaledDot",
    "Score",
    "Sinusoidal",
    "as_weights_mask",
    "attention_layer",
    "causal_mask",
    "explicit",
    "find_layer",
    "find_score",
    "intervene",
    "keep_heads",
    "length_mask",
    "masked_softmax",
    "record",
    "short_name",
]
