"""Layers of a Transformer for searches, without gradients, hooks or dropout.

Replaces `EncoderLayer.forward` and `DecoderLayer.forward`.
Gain and conditions: see `fast_transformer`.

One product computes queries, keys and values. Its matrix includes the scaling factor of the scores. Outputs are
added to the residual stream in place. `sums` is the residual stream, (N, D) for N steps of all sequences. Each
layer changes `sums` in place and returns it.

Letters: B sequences, T steps or K hypotheses per sequence, H heads, d width of a head, D width of states.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

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


class Part(NamedTuple):
    """What the hypotheses of some sources attend to in a decoder layer. Parts that decode together share the
    products with the layer's matrices, and may differ in the numbers of steps and of hypotheses."""

    place: Tensor
    """Part of the cache for the keys and values of the step, (2, B, H, K, d)."""
    cache: LayerCache
    """Keys and values of all decoded steps."""
    memory: LayerCache
    """Keys and values of the sources."""
    kept: list[Tensor]
    """List to which the weights of the sources, (B H, K, Ts), are appended."""


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

    def projections(self, sums: Tensor, steps: int, rotation: Tensor | None) -> Tensor:
        """Return scaled queries, keys and values (N, 3 H d) of sequences of T `steps`.

        `rotation` (T or 1, H d): complex factors for rotary positions, or None.
        """
        projected = self.project(self.residual.before(sums))
        if rotation is not None:
            pairs = projected.view(-1, steps, projected.shape[1] // 2, 2)[:, :, : rotation.shape[1]]
            torch.view_as_complex(pairs).mul_(rotation)
        return projected

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

    def __call__(self, sums: Tensor, parts: Sequence[Part]) -> Tensor:
        """Attend to the memory of each part, and append the weights to its `kept`."""
        queries = _split(self.query(self.residual.before(sums)), parts)
        contexts = [
            attend(rows, part.place.shape[3], part.memory, part.kept)
            for rows, part in zip(queries, parts, strict=True)
        ]
        return self.residual.after(self.output.add_to(sums, join_rows(contexts)))


class FastFeedForward:
    """The point-wise network."""

    def __init__(self, layer: Any, residual: Any) -> None:
        self.residual = FastResidual(residual)
        self.activate = torch.relu_ if layer.activate is F.relu else layer.activate
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
        steps = place.shape[3]
        queries = store(self.attention.projections(sums, steps, rotation), place)
        return self.feed_forward(self.attention.add_output(sums, attend(queries, steps, cache)))


class FastDecoderLayer:
    """A decoder layer, for one step of the hypotheses."""

    def __init__(self, layer: Any) -> None:
        self.attention = FastSelfAttention(layer.self_attention, layer.self_residual)
        self.cross = FastCrossAttention(layer.cross, layer.cross_residual)
        self.feed_forward = FastFeedForward(layer.feed_forward, layer.feed_forward_residual)

    def __call__(self, sums: Tensor, parts: Sequence[Part], rotation: Tensor | None) -> Tensor:
        """Attend to all decoded steps and to the memory of each part. `rotation`: see `FastSelfAttention`."""
        projected = _split(self.attention.projections(sums, len(sums), rotation), parts)
        contexts = [
            attend(store(rows, part.place), part.place.shape[3], part.cache)
            for rows, part in zip(projected, parts, strict=True)
        ]
        sums = self.attention.add_output(sums, join_rows(contexts))
        return self.feed_forward(self.cross(sums, parts))


def store(projected: Tensor, place: Tensor) -> Tensor:
    """Write keys and values to `place` (2, B, H, T, d), and return queries (B T, H d).

    `projected` (B T, 3 H d): see `FastSelfAttention.projections`.
    """
    _, sequences, heads, steps, width = place.shape
    queries: Tensor
    queries, keys_values = projected.split([heads * width, 2 * heads * width], dim=1)
    place.copy_(keys_values.view(sequences, steps, 2, heads, width).permute(2, 0, 3, 1, 4))
    return queries


def join_rows(parts: Sequence[Tensor]) -> Tensor:
    """Return the rows (N, D) of all parts."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _split(rows: Tensor, parts: Sequence[Part]) -> Sequence[Tensor]:
    """Return the rows of each part."""
    return (
        [rows] if len(parts) == 1 else rows.split([part.place.shape[1] * part.place.shape[3] for part in parts])
    )


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
