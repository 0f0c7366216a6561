"""Correct solutions to the exercises, as plain loops over 64-bit Python numbers: slow and easy to verify.

These modules share no code with Regard, so a single error cannot affect both sides of a comparison.
"""

from tests.course.reference.analysis_loops import (
    auroc,
    distance_from_uniform,
    fourier_power,
    logit_lens,
    sink_softmax,
)
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
from tests.course.reference.language_loops import (
    apply_merges,
    attention_rollout,
    cached_causal_mask,
    cached_step,
    grouped_attention,
    induction_score,
    learn_merges,
    next_token_probabilities,
    patching_effect,
    rms_norm,
    swiglu,
)
from tests.course.reference.transformer_loops import (
    decoder_layer,
    encoder_layer,
    feed_forward,
    multi_head_attention,
    transformer,
)

__all__ = [
    "apply_merges",
    "attention",
    "attention_rollout",
    "auroc",
    "bahdanau_step",
    "beam_search",
    "cached_causal_mask",
    "cached_step",
    "concatenate_positions",
    "decoder_layer",
    "distance_from_uniform",
    "encoder_layer",
    "feed_forward",
    "fourier_power",
    "greedy_search",
    "grouped_attention",
    "induction_score",
    "label_smoothed_loss",
    "learn_merges",
    "logit_lens",
    "luong_step",
    "masked_softmax",
    "multi_head_attention",
    "next_token_probabilities",
    "patching_effect",
    "rms_norm",
    "score",
    "sink_softmax",
    "sinusoidal_positions",
    "swiglu",
    "train_copy",
    "transformer",
]
