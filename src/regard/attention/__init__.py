"""Attention: masks, single- and multi-head attention, positions, blocks, recording."""

from regard.attention.blocks import EncoderLayer, FeedForward, attention_layer
from regard.attention.masks import as_weights_mask, length_mask, masked_softmax
from regard.attention.multihead import MultiHeadAttention
from regard.attention.positions import LearnedPositions
from regard.attention.recording import Record, Recordable, record
from regard.attention.single import Attention, scaled_dot_scores

__all__ = [
    "Attention",
    "EncoderLayer",
    "FeedForward",
    "LearnedPositions",
    "MultiHeadAttention",
    "Record",
    "Recordable",
    "as_weights_mask",
    "attention_layer",
    "length_mask",
    "masked_softmax",
    "record",
    "scaled_dot_scores",
]
