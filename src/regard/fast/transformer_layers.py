"""Layers of a Transformer for searches, without gradients, hooks or dropout.

Replaces `EncoderLayer.forward` and `DecoderLayer.forward`.
Gain and conditions: see `fast_transformer`.

One product computes queries, keys and values. Its matrix includes the scaling factor of the scores. Outputs are
added to the residual stream in place. `sums` is the residual stream, (N, D) for N steps of all sequences. Each
layer changes `sums` in place and returns it.

Letters: B sequences, T steps or K hypotheses per sequence, H heads, d width of a head, D width of states.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.fast.kv_cache import LayerCache
from regard.fast.onednn import PackedLinear

MIN_KERNEL = 64
"""Number of queries per sequence above which PyTorch's fused kernel is faster, because it never stores all
scores."""


class Norm:
    """A layer normalization."""

    def __init__(self, norm: nn.LayerNorm) -> None:
        self.arguments = norm.normalized_shape, norm.weight, norm.bias, norm.eps

    def __call__(self, states: Tensor) -> Tensor:
        """Return normalized states (N, D)."""
        return torch.layer_norm(states, *self.arguments)


class FastResidual:
    """The normalization before or after a layer (see `attention.blocks.Residual`)."""

    def __init__(self, residual: Any) -> None:
        self.norm, self.pre_norm = Norm(residual.norm), residual.pre_norm

    def before(self, sums: Tensor) -> Tensor:
        """Return the input of the layer."""
        return self.norm(sums) if self.pre_norm else sums

    def after(self, sums: Tensor) -> Tensor:
        """Return the input of the next layer for the residual sum after this layer."""
        return sums if self.pre_norm else self.norm(sums)


class FastSelfAttention:
    """Self-attention with explicit keys and values."""

    def __init__(self, layer: Any, residual: Any) -> None:
        self.residual, self.output = FastResidual(residual), join_linears(layer.output)
        self.project = join_linears(layer.query, layer.key, layer.value, scale=layer.head_width**-0.5)

    def queries(self, sums: Tensor, place: Tensor, rotation: Tensor | None) -> Tensor:
        """Write keys and values to `place` (2, B, H, T, d), and return the scaled queries (N, H d).

        `rotation` (T or 1, H d): complex factors for rotary positions, or None.
        """
        _, sequences, heads, steps, width = place.shape
        projected = self.project(self.residual.before(sums))
        if rotation is not None:
            pairs = projected.view(sequences, steps, -1, 2)[:, :, : rotation.shape[1]]
            torch.view_as_complex(pairs).mul_(rotation)
        queries: Tensor
        queries, keys_values = projected.split([heads * width, 2 * heads * width], dim=1)
        place.copy_(keys_values.view(sequences, steps, 2, heads, width).permute(2, 0, 3, 1, 4))
        return queries

    def add_output(self, sums: Tensor, context: Tensor) -> Tensor:
        """Add the output of the layer for the context (N, H d) to `sums`."""
        return self.residual.after(self.output.add_to(sums, context))


class FastCrossAttention:
    """Attention of target steps to the source."""

    def __init__(self, layer: Any, residual: Any) -> None:
        self.residual, self.output = FastResidual(residual), join_linears(layer.output)
        self.query = join_linears(layer.query, scale=layer.head_width**-0.5)
        self.project = join_linears(layer.key, layer.value)

    def project_to(self, place: Tensor, states: Tensor) -> None:
        """Write keys and values of the encoder's states (N, D) to `place` (2, B, H, T, d)."""
        _, sources, heads, steps, width = place.shape
        place.copy_(self.project(states).view(sources, steps, 2, heads, width).permute(2, 0, 3, 1, 4))

    def __call__(self, sums: Tensor, count: int, memory: LayerCache, kept: list[Tensor]) -> Tensor:
        """Attend to the memory with `count` hypotheses of each source, and append the weights to `kept`."""
        context = attend(self.query(self.residual.before(sums)), count, memory, kept)
        return self.residual.after(self.output.add_to(sums, context))


class FastFeedForward:
    """The point-wise network."""

    def __init__(self, layer: Any, residual: Any) -> None:
        self.residual, self.activate = FastResidual(residual), layer.activate
        self.inner, self.outer = join_linears(layer.inner), join_linears(layer.outer)

    def __call__(self, sums: Tensor) -> Tensor:
        """Add the feed-forward output of each step to `sums`."""
        inner = self.activate(self.inner(self.residual.before(sums)))
        return self.residual.after(self.outer.add_to(sums, inner))


class FastEncoderLayer:
    """An encoder layer, for all steps of the sources."""

    def __init__(self, layer: Any) -> None:
        self.attention = FastSelfAttention(layer.self_attention, layer.attention_residual)
        self.feed_forward = FastFeedForward(layer.feed_forward, layer.feed_forward_residual)

    def __call__(self, sums: Tensor, place: Tensor, cache: LayerCache, rotation: Tensor | None) -> Tensor:
        """Attend to all steps. `place` (2, B, H, T, d) is the part of `cache` for their keys and values."""
        queries = self.attention.queries(sums, place, rotation)
        return self.feed_forward(self.attention.add_output(sums, attend(queries, place.shape[3], cache)))


class FastDecoderLayer:
    """A decoder layer, for one step of the hypotheses."""

    def __init__(self, layer: Any) -> None:
        self.attention = FastSelfAttention(layer.self_attention, layer.self_residual)
        self.cross = FastCrossAttention(layer.cross, layer.cross_residual)
        self.feed_forward = FastFeedForward(layer.feed_forward, layer.feed_forward_residual)

    def __call__(
        self,
        sums: Tensor,
        place: Tensor,
        cache: LayerCache,
        memory: LayerCache,
        rotation: Tensor | None,
        kept: list[Tensor],
    ) -> Tensor:
        """Attend to all decoded steps and to the memory. `place` (2, B, H, K, d) is the part of `cache` for the
        new step. `kept`: see `FastCrossAttention`."""
        count = place.shape[3]
        context = attend(self.attention.queries(sums, place, rotation), count, cache)
        sums = self.attention.add_output(sums, context)
        return self.feed_forward(self.cross(sums, count, memory, kept))


def attend(queries: Tensor, count: int, cache: LayerCache, kept: list[Tensor] | None = None) -> Tensor:
    """Return the contexts (B K, H d) for scaled queries (B K, H d), with `count` queries per source.

    The weights (B H, K, N) of at most `MIN_KERNEL` queries are appended to `kept`.
    """
    keys, values, offsets = cache
    by_head = _split_heads(queries, count, values.shape[2])
    if count > MIN_KERNEL:
        mask = None if offsets is None else offsets[None]
        states = by_head[None], keys.transpose(1, 2)[None], values[None]
        return _join_heads(F.scaled_dot_product_attention(*states, attn_mask=mask, scale=1.0)[0], queries.shape)
    scores = torch.bmm(by_head, keys) if offsets is None else torch.baddbmm(offsets, by_head, keys)
    weights = scores.softmax(-1)
    if kept is not None:
        kept.append(weights)
    return _join_heads(torch.bmm(weights, values), queries.shape)


def _split_heads(states: Tensor, count: int, width: int) -> Tensor:
    """Reshape (B K, H d) to (B H, K, d)."""
    if count == 1:
        return states.reshape(-1, 1, width)
    heads = states.shape[1] // width
    return states.view(-1, count, heads, width).transpose(1, 2).reshape(-1, count, width)


def _join_heads(states: Tensor, shape: torch.Size) -> Tensor:
    """Reshape (B H, K, d) to `shape`, (B K, H d)."""
    count, width = states.shape[1:]
    if count == 1:
        return states.view(shape)
    return states.view(-1, shape[1] // width, count, width).transpose(1, 2).reshape(shape)


def join_linears(*layers: nn.Linear, scale: float = 1.0) -> PackedLinear:
    """Join linear layers with the same input into one layer. `scale`: factor for the output of the first
    layer."""
    weight = torch.cat([layers[0].weight * scale, *(layer.weight for layer in layers[1:])])
    if layers[0].bias is None:
        return PackedLinear(weight)
    return PackedLinear(weight, torch.cat([layers[0].bias * scale, *(layer.bias for layer in layers[1:])]))
