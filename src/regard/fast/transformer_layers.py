"""The layers of a Transformer as a search runs them: the same arithmetic as in `regard.attention`, written out.

One product makes queries, keys and values; the factor on scores is in its matrix; and what a product makes is
added to the residual in place. `sums` are the residual, (N, D) of N steps of all sequences, which each layer
takes over from the one before.

Letters: B sequences, T steps of each at once or K hypotheses, H heads, d width of each, D of all states.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention import DecoderLayer, EncoderLayer, MultiHeadAttention
from regard.attention.blocks import ACTIVATIONS, FeedForward, Residual
from regard.decoding.products import Product
from regard.fast.kv_cache import LayerCache

MANY = 64
"""Queries of a sequence from which PyTorch's kernel is faster, which never holds all scores."""


class Norm:
    """A layer normalisation."""

    def __init__(self, norm: nn.LayerNorm) -> None:
        self.given = norm.normalized_shape, norm.weight, norm.bias, norm.eps

    def __call__(self, states: Tensor) -> Tensor:
        """Return states (N, D), normalised."""
        return torch.layer_norm(states, *self.given)


class Around:
    """What surrounds a layer (see `Residual`)."""

    def __init__(self, residual: Residual) -> None:
        self.norm, self.pre_norm = Norm(residual.norm), residual.pre_norm

    def before(self, sums: Tensor) -> Tensor:
        """Return what the layer reads."""
        return self.norm(sums) if self.pre_norm else sums

    def after(self, sums: Tensor) -> Tensor:
        """Return the sums, with what the layer has added, as the next one takes them."""
        return sums if self.pre_norm else self.norm(sums)


class OwnAttention:
    """Attention of steps to their own sequence."""

    def __init__(self, layer: MultiHeadAttention, residual: Residual) -> None:
        self.around, self.output = Around(residual), side_by_side(layer.output)
        self.project = side_by_side(layer.query, layer.key, layer.value, scale=layer.head_width**-0.5)

    def projected(self, sums: Tensor, slot: Tensor, turn: Tensor | None) -> Tensor:
        """Put keys and values where they belong (2, B, H, T, d), and return the queries (N, H d).

        `turn` (T or 1, H d) are the complex numbers by which queries and keys are turned, if they are.
        """
        _, sequences, heads, steps, width = slot.shape
        made = self.project(self.around.before(sums))
        if turn is not None:
            pairs = made.view(sequences, steps, -1, 2)[:, :, : turn.shape[1]]
            torch.view_as_complex(pairs).mul_(turn)
        queries: Tensor
        queries, both = made.split([heads * width, 2 * heads * width], dim=1)
        slot.copy_(both.view(sequences, steps, 2, heads, width).permute(2, 0, 3, 1, 4))
        return queries

    def added(self, sums: Tensor, context: Tensor) -> Tensor:
        """Add what is made of the context (N, H d)."""
        return self.around.after(self.output.add_to(sums, context))


class Crossing:
    """Attention of the target's steps to the source."""

    def __init__(self, layer: MultiHeadAttention, residual: Residual) -> None:
        self.around, self.output = Around(residual), side_by_side(layer.output)
        self.ask = side_by_side(layer.query, scale=layer.head_width**-0.5)
        self.project = side_by_side(layer.key, layer.value)

    def project_to(self, slot: Tensor, states: Tensor) -> None:
        """Put the keys and values of the encoder's states (N, D) where they belong, (2, B, H, T, d)."""
        _, sources, heads, steps, width = slot.shape
        slot.copy_(self.project(states).view(sources, steps, 2, heads, width).permute(2, 0, 3, 1, 4))

    def __call__(self, sums: Tensor, count: int, memory: LayerCache) -> Tensor:
        """Attend to the memory with `count` hypotheses of each source."""
        context = attend(self.ask(self.around.before(sums)), count, memory)
        return self.around.after(self.output.add_to(sums, context))


class Forward:
    """The point-wise network."""

    def __init__(self, layer: FeedForward, residual: Residual) -> None:
        self.around, self.activation = Around(residual), ACTIVATIONS[layer.activation]
        self.inner, self.outer = side_by_side(layer.inner), side_by_side(layer.outer)

    def __call__(self, sums: Tensor) -> Tensor:
        """Add what it makes of each step."""
        inner = self.activation(self.inner(self.around.before(sums)))
        return self.around.after(self.outer.add_to(sums, inner))


class EncoderSteps:
    """An encoder layer, over all steps of some sources."""

    def __init__(self, layer: EncoderLayer) -> None:
        own: Any = layer.self_attention
        self.own = OwnAttention(own, layer.attention_residual)
        self.forward = Forward(layer.feed_forward, layer.feed_forward_residual)

    def __call__(self, sums: Tensor, slot: Tensor, seen: LayerCache, turn: Tensor | None) -> Tensor:
        """Attend to all steps, whose keys and values belong into `slot`, (2, B, H, T, d), and are `seen` then."""
        queries = self.own.projected(sums, slot, turn)
        return self.forward(self.own.added(sums, attend(queries, slot.shape[3], seen)))


class DecoderStep:
    """A decoder layer, over one step of some hypotheses."""

    def __init__(self, layer: DecoderLayer) -> None:
        self.own = OwnAttention(layer.self_attention, layer.self_residual)
        self.cross = Crossing(layer.cross, layer.cross_residual)
        self.forward = Forward(layer.feed_forward, layer.feed_forward_residual)

    def __call__(
        self, sums: Tensor, slot: Tensor, past: LayerCache, memory: LayerCache, turn: Tensor | None
    ) -> Tensor:
        """Attend to the past, of which the step's own keys and values (2, B, H, K, d) are a part, and to the
        memory."""
        count = slot.shape[3]
        sums = self.own.added(sums, attend(self.own.projected(sums, slot, turn), count, past))
        return self.forward(self.cross(sums, count, memory))


def attend(queries: Tensor, count: int, seen: LayerCache) -> Tensor:
    """Return the contexts (B K, H d) of scaled queries (B K, H d), `count` of each source."""
    keys, values, hidden = seen
    heads = _by_head(queries, count, values.shape[2])
    if count > MANY:
        mask = None if hidden is None else hidden[None]
        given = heads[None], keys.transpose(1, 2)[None], values[None]
        return _joined(F.scaled_dot_product_attention(*given, attn_mask=mask, scale=1.0)[0], queries.shape)
    scores = torch.bmm(heads, keys) if hidden is None else torch.baddbmm(hidden, heads, keys)
    return _joined(torch.bmm(scores.softmax(-1), values), queries.shape)


def _by_head(states: Tensor, count: int, width: int) -> Tensor:
    """Turn (B K, H d) into (B H, K, d)."""
    if count == 1:
        return states.reshape(-1, 1, width)
    heads = states.shape[1] // width
    return states.view(-1, count, heads, width).transpose(1, 2).reshape(-1, count, width)


def _joined(heads: Tensor, shape: torch.Size) -> Tensor:
    """Turn (B H, K, d) into (B K, H d) of this shape."""
    count, width = heads.shape[1:]
    if count == 1:
        return heads.view(shape)
    return heads.view(-1, shape[1] // width, count, width).transpose(1, 2).reshape(shape)


def side_by_side(*layers: nn.Linear, scale: float = 1.0) -> Product:
    """Return several layers of the same states as one product; `scale`: factor on what the first one makes."""
    weight = torch.cat([layers[0].weight * scale, *(each.weight for each in layers[1:])])
    if layers[0].bias is None:
        return Product(weight)
    return Product(weight, torch.cat([layers[0].bias * scale, *(each.bias for each in layers[1:])]))
