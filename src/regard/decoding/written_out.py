"""A Transformer's decoder as a search takes its steps: the same arithmetic, written out.

A step of a search is a few rows, so what surrounds the products costs as much as they do. Here

- one product makes queries, keys and values, and what a product makes is added to the residual in place;
- keys and values stand in one tensor with room for steps to come;
- the hypotheses of a source keep theirs side by side, and each sees those of its own ancestors: what goes on with
  which prefix moves no keys and values, only what hides them;
- a source that is done leaves its place to another one;
- nothing is masked where nothing is to be hidden.

It takes a `Transformer` of attention's usual form that nobody watches; `knows` says which. All others go step by
step through their own layers, and to the same answers.

Letters: L layers, B sources, K hypotheses of each, N steps so far times K, H heads, d width of each, D of all
states.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention import DecoderLayer, MultiHeadAttention, ScaledDot, layers_of
from regard.attention.blocks import ACTIVATIONS
from regard.attention.weights import LANES
from regard.decoding.products import Product, vocabulary_layer
from regard.models import Seq2Seq, Transformer


def knows(model: Seq2Seq) -> bool:
    """Whether the steps of a model are those that are written out here."""
    if type(model) is not Transformer or model.training or torch.is_autocast_enabled("cpu"):
        return False
    weight = model.target_embedding.weight
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.float64):
        return False
    watched = any(layer.observer is not None for layer in layers_of(model).values())
    hooked = any(each._forward_hooks or each._forward_pre_hooks for each in model.modules())
    if watched or hooked or not all(type(layer) is DecoderLayer for layer in model.decoder.layers):
        return False
    layers: list[Any] = [each for layer in model.decoder.layers for each in (layer.self_attention, layer.cross)]
    usual = all(type(each) is MultiHeadAttention and type(each.score) is ScaledDot for each in layers)
    return usual and len({(each.heads, each.groups, each.head_width) for each in layers}) == 1


class WrittenOut:
    """What a search asks of a Transformer, of its parameters as they are now."""

    def __init__(self, model: Transformer) -> None:
        self.model = model
        layers: list[Any] = list(model.decoder.layers)
        self.heads = layers[0].cross.heads
        self.layers = [_Layer(layer) for layer in layers]
        rotary = layers[0].self_attention.rotary
        self.waves = None if rotary is None else rotary.waves
        sides = [side for layer in layers for side in (layer.cross.key, layer.cross.value)]
        self.memory = side_by_side(*sides)
        norm: Any = model.decoder.norm
        self.norm = Norm(norm) if isinstance(norm, nn.LayerNorm) else None
        self.logits = vocabulary_layer(model)

    def encode(self, source: Tensor, source_mask: Tensor) -> "Memory":
        """Return the memory of sources (B, Ts); `source_mask` (B, Ts), True before the end."""
        states = self.model.encoded(source, source_mask)
        found = self.memory(states.flatten(0, 1)).view(*source.shape, len(self.layers), 2, self.heads, -1)
        missing = max(LANES - source.shape[1], 0)
        found = F.pad(found.permute(2, 3, 0, 4, 1, 5), (0, 0, 0, missing)).contiguous()
        if not missing and source_mask.all():
            return Memory(found, None)
        there = F.pad(source_mask, (0, missing))
        # A source of nothing but padding has weights all the same, but nothing to give.
        found.mul_(there[:, None, :, None])
        return Memory(found, _hiding(there, found)[:, None, None].repeat(1, self.heads, 1, 1))

    def start(self, memory: "Memory") -> "State":
        """Return the state before the first step, with one hypothesis for each source."""
        return State(memory)

    def step(self, tokens: Tensor, state: "State") -> tuple[Tensor, "State"]:
        """Feed one token to each hypothesis, (B, K): returns the decoder's states (B, K, D) and the state after
        it."""
        time, (slots, seen, hidden) = state.time, state.after(tokens.shape[1])
        sums = self.model.embed(tokens.reshape(-1, 1), time).squeeze(1)
        turn = self._turn(time, sums.dtype)
        known = state.memory.states.flatten(2, 3)
        masked = None if state.memory.hidden is None else state.memory.hidden.flatten(0, 1)
        for index, layer in enumerate(self.layers):
            sums = layer(sums, slots[index], seen[index], hidden, known[index], masked, turn)
        if self.norm is not None:
            sums = self.norm(sums)
        return sums.view(*tokens.shape, -1), state

    def _turn(self, time: int, dtype: torch.dtype) -> Tensor | None:
        """Return what turns the queries and keys of all heads at a step, (H d) complex numbers side by side."""
        if self.waves is None:
            return None
        sin, cos = self.waves.vectors(time, 1)[0].to(dtype).unflatten(-1, (-1, 2)).unbind(-1)
        return torch.complex(cos, sin).repeat(2 * self.heads)


class Memory(NamedTuple):
    """What the decoder may look at; steps up to `LANES` are there though none may be seen."""

    states: Tensor
    """Keys and values of the source for each layer, (L, 2, B, H, Ts, d)."""
    hidden: Tensor | None
    """What is added to scores, (B, H, 1, Ts); None where all may be seen."""


class State:
    """All that one step hands to the next. Each step changes it: it is there once."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        layers, sides, sources, heads, _, width = memory.states.shape
        self.time = self.used = 0
        """Steps so far, and how many keys they have left."""
        self.past = memory.states.new_zeros(layers, sides, sources, heads, LANES, width)
        """Keys and values of all steps so far, (L, 2, B, H, room, d)."""
        self.lineage: Tensor | None = None
        """What is added to scores so that each hypothesis sees its own past, (B, K, N); None where it is all."""

    def after(self, count: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Go on to a step of `count` hypotheses of each source.

        Returns where its keys and values belong, (L, 2, B, H, K, d); those of all steps, (L, 2, B H, N, d), at
        least `LANES`; and what is added to scores over these, if anything.
        """
        before, self.used, self.time = self.used, self.used + count, self.time + 1
        if self.used > self.past.shape[4]:
            *others, _, width = self.past.shape
            room = self.past.new_empty(*others, 2 * self.used, width)
            room[..., :before, :] = self.past[..., :before, :]
            self.past = room
        slots, seen = self.past[..., before : self.used, :], self.past[..., : max(self.used, LANES), :]
        return slots, seen.flatten(2, 3), self._hidden(before, count)

    def _hidden(self, before: int, count: int) -> Tensor | None:
        missing = max(LANES - self.used, 0)
        if self.lineage is None and count == 1:
            there = torch.arange(self.used + missing) < self.used
            return _hiding(there, self.past).view(1, 1, -1) if missing else None
        sources, heads = self.past.shape[2:4]
        known = self.past.new_zeros(sources, count, before) if self.lineage is None else self.lineage
        own = _hiding(torch.eye(count, dtype=torch.bool), self.past)
        self.lineage = torch.cat([known, own.expand(sources, -1, -1)], dim=-1)
        hidden = F.pad(self.lineage, (0, missing), value=_lowest(self.past))
        return hidden.unsqueeze(1).expand(-1, heads, -1, -1).flatten(0, 1)

    def choose(self, hypotheses: Tensor) -> "State":
        """Go on with some hypotheses of each source, (B, K') int64."""
        if self.lineage is None:  # one of each so far, and all have its past
            self.lineage = self.past.new_zeros(*hypotheses.shape, self.used)
        else:
            sources, count, _ = self.lineage.shape
            rows = hypotheses + torch.arange(sources).unsqueeze(1) * count
            self.lineage = self.lineage.flatten(0, 1).index_select(0, rows.flatten()).view(*rows.shape, -1)
        return self

    def keep(self, sources: Tensor) -> "State":
        """Go on with some of the sources, (B',) int64: what stays at its place is not touched."""
        moved = (sources != torch.arange(len(sources))).nonzero()[:, 0]
        origin = sources[moved]

        def kept(states: Tensor, dim: int) -> Tensor:
            states.index_copy_(dim, moved, states.index_select(dim, origin))
            return states.narrow(dim, 0, len(sources))

        kept(self.past[..., : self.used, :], 2)
        self.past = self.past[:, :, : len(sources)]
        hidden = self.memory.hidden
        self.memory = Memory(kept(self.memory.states, 2), hidden if hidden is None else kept(hidden, 0))
        self.lineage = None if self.lineage is None else self.lineage[sources]
        return self


class _Layer:
    """A step of a decoder layer (see `DecoderLayer`)."""

    def __init__(self, layer: DecoderLayer) -> None:
        own, cross, feed_forward = layer.self_attention, layer.cross, layer.feed_forward
        scale = own.head_width**-0.5
        self.heads = own.heads
        self.project = side_by_side(own.query, own.key, own.value, scale=scale)
        self.own_output, self.cross_output = side_by_side(own.output), side_by_side(cross.output)
        self.ask = side_by_side(cross.query, scale=scale)
        self.inner, self.outer = side_by_side(feed_forward.inner), side_by_side(feed_forward.outer)
        self.activation = ACTIVATIONS[feed_forward.activation]
        self.pre_norm = layer.self_residual.pre_norm
        residuals = (layer.self_residual, layer.cross_residual, layer.feed_forward_residual)
        self.norms = [Norm(each.norm) for each in residuals]

    def __call__(
        self,
        sums: Tensor,
        slot: Tensor,
        seen: Tensor,
        hidden: Tensor | None,
        known: Tensor,
        masked: Tensor | None,
        turn: Tensor | None,
    ) -> Tensor:
        """Return the sums (B K, D) after this layer, which are those before, changed."""
        sources, heads, count = slot.shape[1:4]
        made = self.project(self._read(0, sums))
        if turn is not None:
            pairs = made.view(len(made), -1, 2)[:, : len(turn)]
            torch.view_as_complex(pairs).mul_(turn)
        queries, keys_values = made.view(sources, count, 3, heads, -1).split([1, 2], dim=2)
        slot.copy_(keys_values.permute(2, 0, 3, 1, 4))
        context = _attend(queries.squeeze(2), seen, hidden)
        sums = self._sum(0, self.own_output.add_to(sums, context))
        queries = self.ask(self._read(1, sums)).view(sources, count, heads, -1)
        sums = self._sum(1, self.cross_output.add_to(sums, _attend(queries, known, masked)))
        inner = self.activation(self.inner(self._read(2, sums)))
        return self._sum(2, self.outer.add_to(sums, inner))

    def _read(self, index: int, sums: Tensor) -> Tensor:
        return self.norms[index](sums) if self.pre_norm else sums

    def _sum(self, index: int, sums: Tensor) -> Tensor:
        return sums if self.pre_norm else self.norms[index](sums)


class Norm:
    """A layer normalisation."""

    def __init__(self, norm: nn.LayerNorm) -> None:
        self.given = norm.normalized_shape, norm.weight, norm.bias, norm.eps

    def __call__(self, states: Tensor) -> Tensor:
        return torch.layer_norm(states, *self.given)


def side_by_side(*layers: nn.Linear, scale: float = 1.0) -> Product:
    """Return several layers of the same states as one product; `scale`: factor on what the first one makes."""
    weight = torch.cat([layers[0].weight * scale, *(each.weight for each in layers[1:])])
    if layers[0].bias is None:
        return Product(weight)
    return Product(weight, torch.cat([layers[0].bias * scale, *(each.bias for each in layers[1:])]))


def _attend(queries: Tensor, memory: Tensor, hidden: Tensor | None) -> Tensor:
    """Return the contexts (B K, H d) of scaled queries (B, K, H, d) over keys and values (2, B H, N, d); `hidden`
    is added to the scores, and broadcasts to (B H, K, N)."""
    sources, count, heads, width = queries.shape
    keys, values = memory
    queries = queries.transpose(1, 2).reshape(-1, count, width)
    turned = keys.transpose(1, 2)
    scores = torch.bmm(queries, turned) if hidden is None else torch.baddbmm(hidden, queries, turned)
    context = torch.bmm(scores.softmax(-1), values)
    return context.view(sources, heads, count, width).transpose(1, 2).reshape(sources * count, -1)


def _hiding(there: Tensor, like: Tensor) -> Tensor:
    """Return what is added to scores: 0 where something is, and else so little that no weight is left of it."""
    return torch.zeros(there.shape, dtype=like.dtype).masked_fill_(~there, _lowest(like))


def _lowest(like: Tensor) -> float:
    return torch.finfo(like.dtype).min / 2
