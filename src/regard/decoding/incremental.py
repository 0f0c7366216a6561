"""Incremental decoders: the interface between a search and a model, and its implementations."""

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from regard import fast
from regard.attention.blocks import DecoderLayer, EncoderLayer
from regard.attention.hooks import attention_layers
from regard.attention.multihead import MultiHeadAttention
from regard.attention.positions import LearnedPositions, Sinusoidal
from regard.fast.fast_transformer import FastTransformer, has_forward_hooks
from regard.fast.onednn import packed_logits
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Transformer

MAX_FAST_WIDTH = 16
"""Maximum number of prefixes for which `FastTransformer` is faster, because each prefix computes scores for the
keys of all prefixes."""


class IncrementalDecoder(Protocol):
    """Decoder of a search, with the methods of `Seq2Seq`. A step may change the previous state."""

    def encode(self, source: Tensor, source_mask: Tensor) -> Any:
        """Return the memory of sources (B, Ts)."""

    def start(self, memory: Any) -> Any:
        """Return the state before the first step."""

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Decode tokens (B, K), and return states (B, K, D) and the next state."""

    def logits(self, states: Tensor) -> Tensor:
        """Return logits (..., V) of states (..., D). The caller may change the logits."""


class ModuleDecoder:
    """Decoder that calls the methods of a model."""

    def __init__(self, model: Seq2Seq) -> None:
        self.encode, self.start, self.step = model.encode, model.start, model.step
        self.logits = packed_logits(model)


def make_decoder(model: Seq2Seq | IncrementalDecoder, width: int = 1) -> IncrementalDecoder:
    """Return a decoder for a search with `width` prefixes, valid until the parameters of the model change.

    A `model` that is not a `Seq2Seq` is already a decoder, and is returned unchanged.
    """
    if not isinstance(model, Seq2Seq):
        return model
    if width > MAX_FAST_WIDTH or not supports(model):
        return ModuleDecoder(model)
    positions: Any = model.target_positions
    return FastTransformer(model, adds_vectors=type(positions) in (Sinusoidal, LearnedPositions))


def supports(model: Seq2Seq) -> bool:
    """Return whether `FastTransformer` can decode a model: a standard Transformer on a CPU without hooks."""
    if type(model) is not Transformer or not fast.enabled() or model.training or torch.is_autocast_enabled("cpu"):
        return False
    weight = model.target_embedding.weight
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.float64):
        return False
    blocks: list[Any] = [*model.encoder.layers, *model.decoder.layers]
    if not all(type(block) in (EncoderLayer, DecoderLayer) for block in blocks):
        return False
    if not isinstance(blocks[0].feed_forward_residual.norm, nn.LayerNorm):
        return False
    layers: list[Any] = list(attention_layers(model).values())
    standard = all(type(layer) is MultiHeadAttention and layer.standard for layer in layers)
    same_heads = len({(layer.heads, layer.head_width) for layer in layers}) == 1  # not if pruned
    own_keys = all(layer.groups == layer.heads for layer in layers)
    hooked = any(layer.hook is not None for layer in layers) or has_forward_hooks(model)
    return standard and same_heads and own_keys and not hooked
