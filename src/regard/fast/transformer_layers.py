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

from regard.fast.kv_cache import LayerCache, LayerMemory
from regard.fast.onednn import PackedLinear

MIN_KERNEL = 64
"""Number of queries per sequence above which PyTorch's fused kernel is faster, because it never stores all
scores."""


class Norm:
    """A layer normalization."""

    def __init__(self, norm: nn.LayerNorm) -> None:
        self.arguments = norm.normalized_shape, norm.weight, norm.bias, norm.eps

    def __call__(self, states: Tensor) -> Tensor:
        return torch.layer_norm(states, *self.arguments)


class FastResidual:
    """The normalization before or after a layer (see `attention.blocks.Residual`)."""

    def __init__(self, residual: Any) -> None:
        self.norm, self.pre_norm = Norm(residual.norm), residual.pre_norm

    def before(self, sums: Tensor) -> Tensor:
        return self.norm(sums) if self.pre_norm else sums

    def after(self, sums: Tensor) -> Tensor:
        return sums if self.pre_norm else self.norm(sums)


class ProjectionBuffer:
    """Memory for scaled queries, keys and values (N, 3 H d) of T steps of B sequences. All layers use the same
    memory, so that its views are made once."""

    def __init__(self, rows: Tensor, shape: tuple[int, int, int, int], rotation: Tensor | None) -> None:
        """`shape`: (B, T, H, d). `rotation` (T or 1, H d): complex factors for rotary positions, or None."""
        sequences, steps, heads, width = shape
        self.rows, self.shape, self.rotation = rows, shape, rotation
        parts = rows.view(sequences, steps, 3, heads, width).permute(2, 0, 3, 1, 4)
        self.queries, self.keys_values = parts[0].transpose(1, 2), parts[1:]  # (B, T, H, d) and (2, B, H, T, d)
        if rotation is not None:
            pairs = rows.view(sequences, steps, -1, 2)[:, :, : rotation.shape[1]]
            self.pairs = torch.view_as_complex(pairs)

    def rotate(self) -> None:
        if self.rotation is not None:
            self.pairs.mul_(self.rotation)


class FastSelfAttention:
    """Self-attention with explicit keys and values."""

    def __init__(self, layer: Any, residual: Any) -> None:
        self.residual, self.output = FastResidual(residual), join_linears(layer.output)
        self.project = join_linears(layer.query, layer.key, layer.value, scale=layer.head_width**-0.5)

    def __call__(self, sums: Tensor, projections: ProjectionBuffer, place: Tensor, cache: LayerCache) -> Tensor:
        """Write keys and values to `place` (2, B, H, T, d), which is part of `cache`, and attend to `cache`."""
        self.project.write(projections.rows, self.residual.before(sums))
        projections.rotate()
        place.copy_(projections.keys_values)
        context, _ = attend(projections.queries, cache)
        return self.residual.after(self.output.add_to(sums, context))


class FastCrossAttention:
    """Attention of target steps to the source."""

    def __init__(self, layer: Any, residual: Any) -> None:
        self.residual, self.output = FastResidual(residual), join_linears(layer.output)
        self.query = join_linears(layer.query, scale=layer.head_width**-0.5)

    def __call__(
        self, sums: Tensor, shape: tuple[int, int, int, int], cache: LayerCache
    ) -> tuple[Tensor, Tensor]:
        """Attend to `cache`, and also return the weights; `shape`: (B, K, H, d)."""
        queries = self.query(self.residual.before(sums)).view(shape)
        context, weights = attend(queries, cache)
        return self.residual.after(self.output.add_to(sums, context)), weights


class FastFeedForward:
    """The point-wise network."""

    def __init__(self, layer: Any, residual: Any) -> None:
        self.residual = FastResidual(residual)
        self.activate = torch.relu_ if layer.activate is F.relu else layer.activate
        self.inner, self.outer = join_linears(layer.inner), join_linears(layer.outer)

    def __call__(self, sums: Tensor) -> Tensor:
        inner = self.activate(self.inner(self.residual.before(sums)))
        return self.residual.after(self.outer.add_to(sums, inner))


class FastEncoderLayer:
    """An encoder layer, for all steps of the sources."""

    def __init__(self, layer: Any) -> None:
        self.attention = FastSelfAttention(layer.self_attention, layer.attention_residual)
        self.feed_forward = FastFeedForward(layer.feed_forward, layer.feed_forward_residual)

    def __call__(self, sums: Tensor, projections: ProjectionBuffer, place: Tensor, cache: LayerCache) -> Tensor:
        return self.feed_forward(self.attention(sums, projections, place, cache))


class FastDecoderLayer:
    """A decoder layer, for one step of the hypotheses."""

    def __init__(self, layer: Any) -> None:
        self.attention = FastSelfAttention(layer.self_attention, layer.self_residual)
        self.cross = FastCrossAttention(layer.cross, layer.cross_residual)
        self.feed_forward = FastFeedForward(layer.feed_forward, layer.feed_forward_residual)

    def __call__(
        self, sums: Tensor, projections: ProjectionBuffer, layer: LayerMemory, kept: list[Tensor]
    ) -> Tensor:
        sums = self.attention(sums, projections, layer.place, layer.cache)
        sums, weights = self.cross(sums, projections.shape, layer.memory)
        kept.append(weights)
        return self.feed_forward(sums)


def attend(queries: Tensor, cache: LayerCache) -> tuple[Tensor, Tensor]:
    """Return the contexts (B T, H d) and the weights (B H, T, N) for scaled queries (B, T, H, d).

    Above `MIN_KERNEL` queries, no weights are computed, and the returned weights are empty.
    """
    keys, values, offsets = cache
    sources, steps, heads, width = queries.shape
    # A single step needs no transposition.
    by_head = (queries if steps == 1 else queries.transpose(1, 2)).reshape(-1, steps, width)
    if steps > MIN_KERNEL:
        states = by_head[None], keys.transpose(1, 2)[None], values[None]
        weights = offsets.new_empty(0)
        contexts = F.scaled_dot_product_attention(*states, attn_mask=offsets[None], scale=1.0)[0]
    else:
        weights = torch.baddbmm(offsets, by_head, keys).softmax(-1)
        contexts = torch.bmm(weights, values)
    if steps > 1:
        contexts = contexts.view(sources, heads, steps, width).transpose(1, 2)
    return contexts.reshape(sources * steps, heads * width), weights


def join_linears(*layers: nn.Linear, scale: float = 1.0) -> PackedLinear:
    """Join linear layers with the same input into one layer. `scale`: factor for the output of the first
    layer."""
    weight = torch.cat([layers[0].weight * scale, *(layer.weight for layer in layers[1:])])
    if layers[0].bias is None:
        return PackedLinear(weight)
    return PackedLinear(weight, torch.cat([layers[0].bias * scale, *(layer.bias for layer in layers[1:])]))
