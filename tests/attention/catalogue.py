"""All parts of `regard.attention.mechanism` for the tests, with numbers that act on short sequences."""

from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.multihead import MultiHeadAttention
from regard.attention.parts import AttentionKind

KINDS: tuple[AttentionKind, ...] = ("causal", "self", "cross")
WIDTH, HEADS, MEMORY = 12, 2, 10
SLOTS: dict[str, list[str]] = {
    "score": ["scaled_dot", "dot", "general", "concat:3", "additive", "cosine", "soft_capped:0.5", "scalable"],
    "position": ["rotary", "rotary:100:0.5", "alibi", "t5:4:6"],
    "mask": ["causal", "window:2", "streaming:1:2"],
    "normalizer": ["softmax", "softmax_one", "sink", "sigmoid", "sparsemax", "entmax", "topk:2"],
    "gate": ["output_gate", "head_gate"],
    "combination": ["differential", "talking_heads", "forgetting", "selective"],
    "sharing": ["multi_query", "grouped:1", "latent:3", "shifted_keys"],
    "linear": ["linear", "gated_linear", "delta_rule"],
}
PARTS_OF_LAYERS = [part for parts in SLOTS.values() for part in parts]
ONLY_CAUSAL = ("forgetting", "selective", "gated_linear", "delta_rule")
NOT_CROSS = (*ONLY_CAUSAL, "rotary", "alibi", "t5", "causal", "window", "streaming", "shifted_keys")


def fits(part: str, kind: AttentionKind) -> bool:
    """Return whether a part has a meaning in a layer of this kind; written down here independently of `PARTS`."""
    name = part.split(":")[0]
    return not (name in ONLY_CAUSAL and kind != "causal") and not (name in NOT_CROSS and kind == "cross")


CASES = [(part, kind) for part in PARTS_OF_LAYERS for kind in KINDS if fits(part, kind)]
"""Each part in each kind of layer in which it has a meaning."""


def make_layer(text: str, kind: AttentionKind = "causal", heads: int = HEADS, **options: Any) -> MultiHeadAttention:
    """Return a float64 layer whose parameters are all random, in evaluation mode."""
    torch.manual_seed(1)
    options = {"memory_width": MEMORY if kind == "cross" else WIDTH, **options}
    layer = MultiHeadAttention(WIDTH, heads, mechanism=text, kind=kind, **options).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.6)
    return layer.eval()


def make_states(kind: AttentionKind, batch: int = 2, time: int = 6) -> tuple[Tensor, Tensor]:
    """Return random float64 states of the queries, and of the memory: the same ones unless the layer is cross."""
    torch.manual_seed(2)
    states = torch.randn(batch, time, WIDTH, dtype=torch.float64)
    return states, torch.randn(batch, time - 2, MEMORY, dtype=torch.float64) if kind == "cross" else states
