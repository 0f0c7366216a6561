"""The mechanisms of `regard card --all`."""

from regard_lab.cards.probe_training import BASELINE

MECHANISMS = (
    BASELINE,
    # scores
    "dot",
    "general",
    "concat",
    "additive",
    "cosine",
    "soft_capped",
    "scalable",
    # positions
    "none",
    "sinusoidal",
    "rotary",
    "alibi",
    "t5",
    # masks
    "window:8",
    "streaming:8:1",
    # normalizers
    "softmax_one",
    "sink",
    "sigmoid",
    "sparsemax",
    "entmax",
    "topk:4",
    # gates
    "output_gate",
    "head_gate",
    # combinations
    "differential",
    "talking_heads",
    "forgetting",
    "selective",
    # keys and values
    "multi_query",
    "grouped",
    "latent",
    "shifted_keys",
    # the linear family
    "linear",
    "gated_linear",
    "delta_rule",
    # several parts
    "alibi,sink",
    "rotary,scalable",
    "none,forgetting",
    "rotary,cosine,output_gate",
)
"""Texts of mechanisms. A mechanism without a position part has learned positions."""
