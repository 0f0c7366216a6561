"""Encoder and decoding steps of a `Transformer` in a search.

Replaces `Transformer.encode`, `start`, `step` and `logits` in greedy search, beam search and sampling.
Gain: searches take 4.4x (beam of 5) to 2.9x (greedy) less time than Hugging Face's on the same model
  (docs/dev/benchmarks.md, "Translation").
The fast path is not used while attention is recorded or changed, with forward hooks, with more than 16 prefixes,
  in training mode, under autocast, on other devices, in half precision, for custom or pruned layers, for scores
  other than `scaled_dot`, or with `REGARD_REFERENCE=1` (`decoding.incremental.supports` decides).

A step of a search has few rows, so the operations around the matrix products take as long as the products.
Log-probabilities agree with those of the modules within 2e-5.

Letters: B sources, K hypotheses of each, T steps, L layers, H heads, d width of a head, D width of states.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from regard.fast.kv_cache import KVCache, SourceCache
from regard.fast.onednn import packed_logits
from regard.fast.softmax import LANES
from regard.fast.transformer_layers import FastDecoderLayer, FastEncoderLayer, Norm


def has_forward_hooks(model: nn.Module) -> bool:
    """Return whether any module of a model has forward hooks, which this decoder does not call."""
    return any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


class FastTransformer:
    """Decoder of a Transformer with its present parameters; threads may share it.

    `model`: a `Transformer` for which `decoding.incremental.supports` is true. `adds_vectors`: whether its target
    positions add the same vector to each embedding of a step.
    """

    def __init__(self, model: Any, *, adds_vectors: bool) -> None:
        self.model, self.adds_vectors = model, adds_vectors
        attention = model.decoder.layers[0].self_attention
        self.heads, self.width, self.rotary = attention.heads, attention.head_width, attention.rotary
        self.encoder = [FastEncoderLayer(layer) for layer in model.encoder.layers]
        self.decoder = [FastDecoderLayer(layer) for layer in model.decoder.layers]
        self.norms = [
            Norm(stack.norm) if isinstance(stack.norm, nn.LayerNorm) else None
            for stack in (model.encoder, model.decoder)
        ]
        self.logits = packed_logits(model)
        self.rotation, self.position = cache(self._rotation), cache(self._position)

    def encode(self, source: Tensor, source_mask: Tensor) -> SourceCache:
        """Return the memory of sources (B, Ts); `source_mask` (B, Ts), True before the end."""
        sources, steps = source.shape
        sums = self.model.embedded(source).flatten(0, 1)
        shape = (1, 2, sources, self.heads, max(steps, LANES), self.width)
        own = SourceCache.masked(sums.new_zeros(*shape), source_mask)
        place, [layer_cache], rotation = own.states[0, ..., :steps, :], own.layers(), self.rotation(0, steps)
        for layer in self.encoder:
            sums = layer(sums, place, layer_cache, rotation)
        states = sums if self.norms[0] is None else self.norms[0](sums)
        memory = own.states.new_zeros(len(self.decoder), *own.states.shape[1:])
        for decoder_layer, keys_values in zip(self.decoder, memory, strict=True):
            decoder_layer.cross.project_to(keys_values[..., :steps, :], states)
        # A source that is only padding still gets weights; zero values make its context zero.
        memory[..., :steps, :].mul_(source_mask[:, None, :, None])
        return SourceCache(memory, own.offsets)

    def start(self, memory: SourceCache) -> KVCache:
        """Return the state before the first step, with one hypothesis for each source."""
        return KVCache(memory)

    def step(self, tokens: Tensor, state: KVCache) -> tuple[Tensor, KVCache]:
        """Feed one token to each hypothesis, (B, K): returns states (B, K, D) and the changed cache."""
        time, (places, caches) = state.time, state.advance(tokens.shape[1])
        sums, rotation = self._embed(tokens.flatten(), time), self.rotation(time, 1)
        for layer, place, layer_cache, memory in zip(
            self.decoder, places, caches, state.memory_layers, strict=True
        ):
            sums = layer(sums, place, layer_cache, memory, rotation)
        states = sums if self.norms[1] is None else self.norms[1](sums)
        return states.view(*tokens.shape, -1), state

    def _embed(self, tokens: Tensor, time: int) -> Tensor:
        """Return the input of the decoder for tokens (N) at a step, (N, D)."""
        if self.adds_vectors:
            embedded: Tensor = self.model.target_embedding(tokens)
            return embedded.mul_(self.model.scale).add_(self.position(time))
        states: Tensor = self.model.embed(tokens.unsqueeze(1), time).squeeze(1)
        return states

    def _position(self, time: int) -> Tensor:
        """Return the position vector of a step, (1, D)."""
        vectors: Tensor = self.model.target_positions.vectors(time, 1)
        return vectors.to(self.model.target_embedding.weight.dtype)

    def _rotation(self, first: int, count: int) -> Tensor | None:
        """Return the complex factors of queries and keys at `count` steps, (T, H d); None without rotation."""
        if self.rotary is None:
            return None
        waves = self.rotary.waves.vectors(first, count).to(self.model.target_embedding.weight.dtype)
        sin, cos = waves.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.complex(cos, sin).repeat(1, 2 * self.heads)
