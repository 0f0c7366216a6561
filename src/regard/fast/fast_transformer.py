"""Encoder and decoding steps of a `Transformer` in a search, without gradients, hooks or dropout.

Replaces `Transformer.encode`, `start`, `step` and `logits` in greedy search, beam search and sampling, with the layers
that they call, and `CacheState`, which copies the keys and values of the selected hypotheses. Gain: searches are 2.9
times (greedy) to 4.4 times (beam of 5) as fast as Hugging Face's searches with the same model (docs/dev/benchmarks.md,
"Translation"). The fast path runs only on a CPU. The fast path is not used while attention is recorded or changed, with
forward hooks, with more than 16 prefixes, in training mode, under autocast, in half precision, for custom or pruned
layers, for scores other than `scaled_dot`, or with `REGARD_REFERENCE=1` (see `decoding.search.supports`).

A decoding step has few rows, so the operations around the matrix products take as long as the products. One
product computes queries, keys and values; its matrix includes the scaling factor of the scores. `sums` is the
residual stream, (N, D) for N steps of all sequences: each layer changes it in place and returns it.
Log-probabilities agree with those of the plain modules within 2e-5.

The KV cache is one tensor with space for later steps. All hypotheses of a source share its part of the tensor. An
offset on the scores restricts a hypothesis to the keys of its ancestors, so selecting hypotheses moves no keys
and values. Keys of the source are stored as columns, because the product with a few queries takes half of the
time then. Keys of decoded steps are stored as rows: writing a column takes longer than the product saves.

Letters: B sources, K hypotheses per source, T steps, N cached keys per source, L layers, H heads, d width of a
head, D width of states.
"""

from functools import cache, partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.fast.onednn import PackedLinear, packed_logits
from regard.fast.softmax import LANES
from regard.fast.token_screen import make_screen

MIN_KERNEL = 64
"""Number of queries per sequence above which PyTorch's fused kernel is faster, because it never stores all scores."""


class LayerCache(NamedTuple):
    """Keys and values that the queries of one layer attend to."""

    keys: Tensor  # (B H, d, N): keys, transposed for the product with queries
    values: Tensor  # (B H, N, d): values
    offsets: Tensor  # (B H, 1 or K, N): offset added to the scores


LayerMemory = tuple[Tensor, LayerCache, LayerCache]
"""What the hypotheses of a step attend to in a decoder layer: the part of the cache for the keys and values of
the step, (2, B, H, K, d), the cache of all decoded steps, and the cache of the sources."""


class SourceCache(NamedTuple):
    """Keys and values of the sources, padded to at least `LANES` steps because a softmax over fewer steps is slow."""

    keys: Tensor  # Keys for each layer, (L, B, H, d, Ts)
    values: Tensor  # Values for each layer, (L, B, H, Ts, d)
    offsets: Tensor  # Offset added to the scores, (B, H, 1, Ts)

    def layers(self) -> list[LayerCache]:
        keys, values, offsets = self.keys.flatten(1, 2), self.values.flatten(1, 2), self.offsets.flatten(0, 1)
        return [LayerCache(*layer, offsets) for layer in zip(keys.unbind(), values.unbind(), strict=True)]


class KVCache:
    """State between two decoding steps. A step changes the cache in place, so only the last state is valid."""

    def __init__(self, memory: SourceCache) -> None:
        layers, sources, heads, width, _ = memory.keys.shape
        self.memory, self.memory_layers = memory, memory.layers()
        self.time = self.used = 0  # Number of decoded steps, and number of cached keys per source (N)
        self.states = memory.keys.new_zeros(layers, 2, sources, heads, LANES, width)
        """Keys and values of all decoded steps, (L, 2, B, H, capacity, d)."""
        self.ancestors = memory.keys.new_full((sources, 1, LANES), lowest(memory.keys))
        """Offsets that restrict each hypothesis to the keys of its ancestors, (B, K, capacity)."""
        self.cross_weights: list[Tensor] = []
        """Weights of the last step on the source for each layer, (B H, K, Ts), in the order of its sources."""

    def advance(self, count: int) -> list[LayerMemory]:
        """Begin a step with `count` hypotheses per source, and return what each layer attends to."""
        begin, self.used, self.time, self.cross_weights = self.used, self.used + count, self.time + 1, []
        capacity = self.ancestors.shape[2]
        if self.used > capacity:
            missing = 2 * self.used - capacity
            # A step reads only what was written, except for the first `LANES` keys, so the space is not filled.
            grown = self.states.new_empty(*self.states.shape[:4], capacity + missing, self.states.shape[5])
            grown[..., :begin, :] = self.states[..., :begin, :]
            self.states = grown
            self.ancestors = F.pad(self.ancestors, (0, missing), value=lowest(self.states))
        self.ancestors[..., begin : self.used].diagonal(dim1=1, dim2=2).zero_()
        window = max(self.used, LANES)
        heads, own = self.states.shape[3], self.states[..., :window, :].flatten(2, 3)
        offsets = self.ancestors[:, None, :, :window].expand(-1, heads, -1, -1).flatten(0, 1)
        places = self.states[..., begin : self.used, :].unbind()
        keys, values = own[:, 0].transpose(2, 3).unbind(), own[:, 1].unbind()
        caches = [LayerCache(*layer, offsets) for layer in zip(keys, values, strict=True)]
        return list(zip(places, caches, self.memory_layers, strict=True))

    def choose(self, hypotheses: Tensor) -> "KVCache":
        """Select hypotheses of each source by their indices (B, K') int64."""
        sources, count, _ = self.ancestors.shape
        rows = hypotheses + torch.arange(sources).unsqueeze(1) * count
        self.ancestors = self.ancestors.flatten(0, 1).index_select(0, rows.flatten()).view(*rows.shape, -1)
        return self

    def keep(self, sources: Tensor) -> "KVCache":
        """Select sources by their indices (B',) int64. The index at position i must be at least i."""
        moves = [(place, source) for place, source in enumerate(sources.tolist()) if place != source]
        remaining = slice(len(sources))
        keys, values, offsets = self.memory
        for part in (self.states[..., : self.used, :].transpose(1, 2), keys, values, offsets[None]):
            for place, source in moves:
                part[:, place] = part[:, source]
        self.states = self.states[:, :, remaining]
        self.memory = SourceCache(keys[:, remaining], values[:, remaining], offsets[remaining])
        self.memory_layers = self.memory.layers()
        self.ancestors = self.ancestors[sources]
        return self


def lowest(like: Tensor) -> float:
    """Return an offset that makes weights zero, even if a score is added to it."""
    return torch.finfo(like.dtype).min / 2


class Norm:
    """Layer normalization."""

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

    def __call__(self, sums: Tensor, shape: tuple[int, int, int, int], cache: LayerCache) -> tuple[Tensor, Tensor]:
        """Attend to `cache`, and also return the weights; `shape`: (B, K, H, d)."""
        queries = self.query(self.residual.before(sums)).view(shape)
        context, weights = attend(queries, cache)
        return self.residual.after(self.output.add_to(sums, context)), weights


class FastFeedForward:
    """Position-wise feed-forward network."""

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

    def __call__(self, sums: Tensor, projections: ProjectionBuffer, layer: LayerMemory, kept: list[Tensor]) -> Tensor:
        place, cache, memory = layer
        sums = self.attention(sums, projections, place, cache)
        sums, weights = self.cross(sums, projections.shape, memory)
        kept.append(weights)
        return self.feed_forward(sums)


def attend(queries: Tensor, cache: LayerCache) -> tuple[Tensor, Tensor]:
    """Return the contexts (B T, H d) and the weights (B H, T, N) for scaled queries (B, T, H, d). Above
    `MIN_KERNEL` queries, no weights are computed, and the returned weights are empty."""
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
    """Join linear layers with the same input into one layer. `scale`: factor for the output of the first layer."""
    weight = torch.cat([layers[0].weight * scale, *(layer.weight for layer in layers[1:])])
    if layers[0].bias is None:
        return PackedLinear(weight)
    return PackedLinear(weight, torch.cat([layers[0].bias * scale, *(layer.bias for layer in layers[1:])]))


def has_forward_hooks(model: nn.Module) -> bool:
    """Return whether any module of a model has forward hooks, which `FastTransformer` does not call."""
    return any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


class FastTransformer:
    """Decoder with the current parameters of a Transformer; thread-safe. `model`: a `Transformer` for which
    `decoding.incremental.supports` returns True. `adds_vectors`: whether the target positions add the same
    vector to all embeddings of a step."""

    def __init__(self, model: Any, *, adds_vectors: bool) -> None:
        self.model, self.adds_vectors = model, adds_vectors
        attention = model.decoder.layers[0].self_attention
        self.heads, self.width, self.rotary = attention.heads, attention.head_width, attention.rotary
        self.encoder = [FastEncoderLayer(layer) for layer in model.encoder.layers]
        self.decoder = [FastDecoderLayer(layer) for layer in model.decoder.layers]
        cross = [layer.cross for layer in model.decoder.layers]
        self.memory = join_linears(*[linear for layer in cross for linear in (layer.key, layer.value)])
        self.norms = [
            Norm(stack.norm) if isinstance(stack.norm, nn.LayerNorm) else None
            for stack in (model.encoder, model.decoder)
        ]
        self.logits, self.screen = packed_logits(model), cache(partial(make_screen, *model.vocabulary_layer))
        self.rotation, self.position = cache(self._rotation), cache(self._position)

    def encode(self, source: Tensor, source_mask: Tensor) -> SourceCache:
        """Return the memory of sources (B, Ts). `source_mask` (B, Ts) is True before the end of each source."""
        sources, steps = source.shape
        sums = self.model.embedded(source).flatten(0, 1)
        padded = max(steps, LANES)
        mask = F.pad(source_mask, (0, padded - steps))
        # Offsets for scores: 0 where the mask is True, and elsewhere a number so low that the weight is zero.
        offsets = torch.zeros(mask.shape, dtype=sums.dtype).masked_fill_(~mask, lowest(sums))
        offsets = offsets[:, None, None].repeat(1, self.heads, 1, 1)
        own = sums.new_zeros(2, sources, self.heads, padded, self.width)
        keys, values = own.flatten(1, 2)
        layer_cache, place = LayerCache(keys.transpose(1, 2), values, offsets.flatten(0, 1)), own[..., :steps, :]
        projections = self._projections(sums, source.shape, self.rotation(0, steps))
        for layer in self.encoder:
            sums = layer(sums, projections, place, layer_cache)
        states = sums if self.norms[0] is None else self.norms[0](sums)
        # One product computes the keys and values of all decoder layers.
        memory = self.memory(states).view(sources, steps, -1, 2, self.heads, self.width)
        keys = states.new_zeros(memory.shape[2], sources, self.heads, self.width, padded)
        values = keys.new_zeros(*keys.shape[:3], padded, self.width)
        keys[..., :steps] = memory[:, :, :, 0].permute(2, 0, 3, 4, 1)
        # A source that is only padding still has nonzero weights, so its values are set to zero.
        values[..., :steps, :] = memory[:, :, :, 1].permute(2, 0, 3, 1, 4) * source_mask[:, None, :, None]
        return SourceCache(keys, values, offsets)

    def start(self, memory: SourceCache) -> KVCache:
        """Return the state before the first step, with one hypothesis per source."""
        return KVCache(memory)

    def step(self, tokens: Tensor, state: KVCache) -> tuple[Tensor, KVCache]:
        """Append one token (B, K) to each hypothesis. Returns states (B, K, D) and the updated cache."""
        sums = self._embed(tokens.flatten(), state.time)
        projections = self._projections(sums, tokens.shape, self.rotation(state.time, 1))
        for layer, memory in zip(self.decoder, state.advance(tokens.shape[1]), strict=True):
            sums = layer(sums, projections, memory, state.cross_weights)
        states = sums if self.norms[1] is None else self.norms[1](sums)
        return states.view(*tokens.shape, -1), state

    def _projections(self, sums: Tensor, shape: torch.Size, rotation: Tensor | None) -> ProjectionBuffer:
        """Return memory for the projections of states (N, D) of tokens (B, T); `shape`: (B, T)."""
        rows = sums.new_empty(len(sums), 3 * self.heads * self.width)
        return ProjectionBuffer(rows, (*shape, self.heads, self.width), rotation)

    def _embed(self, tokens: Tensor, time: int) -> Tensor:
        """Return the input (N, D) of the decoder for tokens (N) at a step."""
        if self.adds_vectors:
            embedded: Tensor = self.model.target_embedding(tokens)
            return embedded.mul_(self.model.scale).add_(self.position(time))
        states: Tensor = self.model.embed(tokens.unsqueeze(1), time).squeeze(1)
        return states

    def _position(self, time: int) -> Tensor:
        vectors: Tensor = self.model.target_positions.vectors(time, 1)
        return vectors.to(self.model.target_embedding.weight.dtype)

    def _rotation(self, first: int, count: int) -> Tensor | None:
        """Return the complex rotation factors (T, H d) of queries and keys at `count` steps; None without rotation."""
        if self.rotary is None:
            return None
        waves = self.rotary.waves.vectors(first, count).to(self.model.target_embedding.weight.dtype)
        sin, cos = waves.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.complex(cos, sin).repeat(1, 2 * self.heads)
