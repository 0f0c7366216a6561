"""A Transformer as a search runs it: the same arithmetic, written out.

A step of a search is a few rows, so what surrounds the products costs as much as they do, and modules that can
be watched, masked and trained do more than a search wants. What is done otherwise stands in `layers` and `past`.
It takes a `Transformer` of attention's usual form that nobody watches; all others go through their own layers, to
the same answers.

Letters: B sources, K hypotheses of each, T steps, L layers, H heads, d width of each, D of all states.
"""

from functools import cache
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from regard.attention import (
    DecoderLayer,
    EncoderLayer,
    LearnedPositions,
    MultiHeadAttention,
    ScaledDot,
    Sinusoidal,
    attention_layers,
)
from regard.attention.weights import LANES
from regard.decoding.products import vocabulary_layer
from regard.fast.kv_cache import KVCache, SourceCache
from regard.fast.transformer_layers import DecoderStep, EncoderSteps, Norm
from regard.models import Seq2Seq, Transformer


def supports(model: Seq2Seq) -> TypeGuard[Transformer]:
    """Whether a model is one that is written out here, for a CPU, and nobody watches it."""
    if type(model) is not Transformer or model.training or torch.is_autocast_enabled("cpu"):
        return False
    weight = model.target_embedding.weight
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.float64):
        return False
    blocks: list[Any] = [*model.encoder.layers, *model.decoder.layers]
    if not all(type(each) in (EncoderLayer, DecoderLayer) for each in blocks):
        return False
    layers: list[Any] = list(attention_layers(model).values())
    usual = all(type(each) is MultiHeadAttention and type(each.score) is ScaledDot for each in layers)
    alike = len({(each.heads, each.groups, each.head_width) for each in layers}) == 1  # but for pruned ones
    watched = any(each.hook is not None for each in layers)
    hooked = any(each._forward_hooks or each._forward_pre_hooks for each in model.modules())
    return usual and alike and not watched and not hooked


class FastTransformer:
    """What a search asks of a Transformer, with its parameters as they are now; threads may share it."""

    def __init__(self, model: Transformer) -> None:
        self.model = model
        encoder, decoder = ([*each.layers] for each in (model.encoder, model.decoder))
        layers: list[Any] = list(decoder)
        own = layers[0].self_attention
        self.heads, self.width, self.rotary = own.heads, own.head_width, own.rotary
        self.encoder: list[Any] = [EncoderSteps(each) for each in encoder]
        self.decoder: list[Any] = [DecoderStep(each) for each in decoder]
        self.norms = [
            Norm(each.norm) if isinstance(each.norm, nn.LayerNorm) else None
            for each in (model.encoder, model.decoder)
        ]
        self.logits = vocabulary_layer(model)
        self.turn, self.added = cache(self._turn), cache(self._added)

    def encode(self, source: Tensor, source_mask: Tensor) -> SourceCache:
        """Return the memory of sources (B, Ts); `source_mask` (B, Ts), True before the end."""
        sources, steps = source.shape
        sums = self.model.embedded(source).flatten(0, 1)
        own = SourceCache.of(
            sums.new_zeros(1, 2, sources, self.heads, max(steps, LANES), self.width), source_mask
        )
        slot, [seen], turn = own.states[0, ..., :steps, :], own.layers(), self.turn(0, steps)
        for layer in self.encoder:
            sums = layer(sums, slot, seen, turn)
        states = sums if self.norms[0] is None else self.norms[0](sums)
        found = own.states.new_zeros(len(self.decoder), *own.states.shape[1:])
        for layer, room in zip(self.decoder, found, strict=True):
            layer.cross.project_to(room[..., :steps, :], states)
        # A source of nothing but padding has weights all the same, but nothing to give.
        found[..., :steps, :].mul_(source_mask[:, None, :, None])
        return SourceCache(found, own.hidden)

    def start(self, memory: SourceCache) -> KVCache:
        """Return the state before the first step, with one hypothesis for each source."""
        return KVCache(memory)

    def step(self, tokens: Tensor, state: KVCache) -> tuple[Tensor, KVCache]:
        """Feed one token to each hypothesis, (B, K): returns the decoder's states (B, K, D) and the state after
        it."""
        time, (slots, past) = state.time, state.after(tokens.shape[1])
        sums, turn = self._embed(tokens.flatten(), time), self.turn(time, 1)
        for layer, slot, own, memory in zip(self.decoder, slots, past, state.known, strict=True):
            sums = layer(sums, slot, own, memory, turn)
        states = sums if self.norms[1] is None else self.norms[1](sums)
        return states.view(*tokens.shape, -1), state

    def _embed(self, tokens: Tensor, time: int) -> Tensor:
        """Return what the decoder is fed for tokens (N) at a step, (N, D)."""
        if type(self.model.target_positions) in (Sinusoidal, LearnedPositions):
            embedded: Tensor = self.model.target_embedding(tokens)
            return embedded.mul_(self.model.scale).add_(self.added(time))
        return self.model.embed(tokens.unsqueeze(1), time).squeeze(1)

    def _added(self, time: int) -> Tensor:
        """Return what is added to embeddings at a step, (1, D)."""
        positions: Any = self.model.target_positions
        found: Tensor = positions.vectors(time, 1)
        return found.to(self.model.target_embedding.weight.dtype)

    def _turn(self, first: int, count: int) -> Tensor | None:
        """Return by what the queries and keys of `count` steps are turned: complex numbers (T, H d)."""
        if self.rotary is None:
            return None
        waves = self.rotary.waves.vectors(first, count).to(self.model.target_embedding.weight.dtype)
        sin, cos = waves.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.complex(cos, sin).repeat(1, 2 * self.heads)
