"""The layers of a Transformer as a search runs them: the same arithmetic as in `regard.attention`, written out.

One product makes queries, keys and values; the factor on scores is in its matrix; and what a product makes is
added to the residual in place. `sums` are the residual, (N, D) of N steps of all sequences, which each layer takes
over from the one before.

Letters: B sequences, T steps of each at once or K hypotheses, H heads, d width of each, D of all states.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention import DecoderLayer, EncoderLayer, MultiHeadAttention
from regard.attention.blocks import ACTIVATIONS, FeedForward, Residual
from regard.decoding.products import Product


class Norm:
    """A layer normalisation."""

    def __init__(self, norm: nn.LayerNorm) -> None:
        self.given = norm.normalized_shape, norm.weight, norm.bias, norm.eps

    def __call__(self, states: Tensor) -> Tensor:
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
        """Put keys and values where they belong (2, B, H, T, d), and return the queries (B, T, H, d).

        `turn` (T or 1, H d) are the complex numbers by which queries and keys are turned, if they are.
        """
        _, sequences, heads, steps, _ = slot.shape
        made = self.project(self.around.before(sums))
        if turn is not None:
            pairs = made.view(sequences, steps, -1, 2)[:, :, : turn.shape[1]]
            torch.view_as_complex(pairs).mul_(turn)
        parts = made.view(sequences, steps, 3, heads, -1)
        slot.copy_(parts[:, :, 1:].permute(2, 0, 3, 1, 4))
        return parts[:, :, 0]

    def added(self, sums: Tensor, context: Tensor) -> Tensor:
        """Add what is made of the context (N, H d)."""
        return self.around.after(self.output.add_to(sums, context))


class Crossing:
    """Attention of the target's steps to the source."""

    def __init__(self, layer: MultiHeadAttention, residual: Residual) -> None:
        self.around, self.output = Around(residual), side_by_side(layer.output)
        self.ask = side_by_side(layer.query, scale=layer.head_width**-0.5)

    def __call__(self, sums: Tensor, count: int, heads: int, memory: Tensor, hidden: Tensor | None) -> Tensor:
        """Attend with `count` hypotheses of each source; the rest is as in `attend`."""
        queries = self.ask(self.around.before(sums))
        context = attend(queries.view(-1, count, heads, memory.shape[-1]), memory, hidden)
        return self.around.after(self.output.add_to(sums, context))


class Forward:
    """The point-wise network."""

    def __init__(self, layer: FeedForward, residual: Residual) -> None:
        self.around, self.activation = Around(residual), ACTIVATIONS[layer.activation]
        self.inner, self.outer = side_by_side(layer.inner), side_by_side(layer.outer)

    def __call__(self, sums: Tensor) -> Tensor:
        inner = self.activation(self.inner(self.around.before(sums)))
        return self.around.after(self.outer.add_to(sums, inner))


class EncoderSteps:
    """An encoder layer, over all steps of some sources."""

    def __init__(self, layer: EncoderLayer) -> None:
        own: Any = layer.self_attention
        self.own = OwnAttention(own, layer.attention_residual)
        self.forward = Forward(layer.feed_forward, layer.feed_forward_residual)

    def __call__(self, sums: Tensor, slot: Tensor, mask: Tensor | None, turn: Tensor | None) -> Tensor:
        """Attend to all steps (2, B, H, T, d); `mask` (B, 1, 1, T), True before the end, None where all is."""
        queries = self.own.projected(sums, slot, turn).transpose(1, 2)
        # The queries are scaled already.
        context = F.scaled_dot_product_attention(queries, slot[0], slot[1], attn_mask=mask, scale=1.0)
        return self.forward(self.own.added(sums, context.transpose(1, 2).reshape(len(sums), -1)))


class DecoderStep:
    """A decoder layer, over one step of some hypotheses."""

    def __init__(self, layer: DecoderLayer) -> None:
        self.own = OwnAttention(layer.self_attention, layer.self_residual)
        self.cross = Crossing(layer.cross, layer.cross_residual)
        self.forward = Forward(layer.feed_forward, layer.feed_forward_residual)

    def __call__(
        self,
        sums: Tensor,
        slot: Tensor,
        past: tuple[Tensor, Tensor | None],
        memory: tuple[Tensor, Tensor | None],
        turn: Tensor | None,
    ) -> Tensor:
        """Attend to the past, of which the step's own keys and values (2, B, H, K, d) are a part, and to the
        memory; each with what is added to scores, as in `attend`."""
        heads, count = slot.shape[2:4]
        context = attend(self.own.projected(sums, slot, turn), *past)
        sums = self.own.added(sums, context)
        return self.forward(self.cross(sums, count, heads, *memory))


def attend(queries: Tensor, memory: Tensor, hidden: Tensor | None) -> Tensor:
    """Return the contexts (B K, H d) of scaled queries (B, K, H, d) over keys and values (2, B H, N, d); `hidden`
    is added to the scores, and broadcasts to (B H, K, N)."""
    sources, count, heads, width = queries.shape
    keys, values = memory
    queries, turned = queries.transpose(1, 2).reshape(-1, count, width), keys.transpose(1, 2)
    scores = torch.bmm(queries, turned) if hidden is None else torch.baddbmm(hidden, queries, turned)
    context = torch.bmm(scores.softmax(-1), values)
    return context.view(sources, heads, count, width).transpose(1, 2).reshape(sources * count, -1)


def side_by_side(*layers: nn.Linear, scale: float = 1.0) -> Product:
    """Return several layers of the same states as one product; `scale`: factor on what the first one makes."""
    weight = torch.cat([layers[0].weight * scale, *(each.weight for each in layers[1:])])
    if layers[0].bias is None:
        return Product(weight)
    return Product(weight, torch.cat([layers[0].bias * scale, *(each.bias for each in layers[1:])]))
