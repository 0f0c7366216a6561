"""Correct solutions to the exercises, as plain loops over 64-bit Python numbers: slow and easy to verify.

These modules share no code with Regard, so a single error cannot affect both sides of a comparison.
"""

from tests.course.reference.attention_loops import (
    attention,
    concatenate_positions,
    masked_softmax,
    score,
    sinusoidal_positions,
)
from tests.course.reference.decoding_loops import (
    bahdanau_step,
    beam_search,
    greedy_search,
    label_smoothed_loss,
    luong_step,
    train_copy,
)
from tests.course.reference.transformer_loops import (
    decoder_layer,
    encoder_layer,
    feed_forward,
    multi_head_attention,
    transformer,
)

__all__ = [
    "attention",
    "bahdanau_step",
    "beam_search",
    "concatenate_positions",
    "decoder_layer",
    "encoder_layer",
    "feed_forward",
    "greedy_search",
    "label_smoothed_loss",
    "luong_step",
    "masked_softmax",
    "multi_head_attention",
    "score",
    "sinusoidal_positions",
    "train_copy",
    "transformer",
]
