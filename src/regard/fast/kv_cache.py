"""KV cache of a search: keys and values of the sources and of all decoded steps of their hypotheses.

Replaces `CacheState`, which copies the keys and values of the selected hypotheses at each step.
Gain and conditions: see `fast_transformer`.

The cache is one tensor with space for later steps. All hypotheses of a source share its part of the tensor. An
offset on the scores restricts a hypothesis to the keys of its ancestors, so selecting hypotheses moves no keys
and values. Keys of the source are stored as columns, because the product with a few queries takes half of the
time then. Keys of decoded steps are stored as rows: writing a column takes longer than the product saves.

Letters: L layers, B sources, K hypotheses per source, N cached keys per source, H heads, d width of a head.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.fast.softmax import LANES


class LayerCache(NamedTuple):
    """Keys and values that the queries of one layer attend to."""

    keys: Tensor
    """(B H, d, N): keys, transposed for the product with queries."""
    values: Tensor
    """(B H, N, d): values."""
    offsets: Tensor
    """(B H, 1 or K, N): offset added to the scores."""


class LayerMemory(NamedTuple):
    """What the hypotheses of a step attend to in a decoder layer."""

    place: Tensor
    """Part of the cache for the keys and values of the step, (2, B, H, K, d)."""
    cache: LayerCache
    """Keys and values of all decoded steps."""
    memory: LayerCache
    """Keys and values of the sources."""


class SourceCache(NamedTuple):
    """Keys and values of the sources, padded to at least `LANES` steps because a softmax over fewer steps is
    slow."""

    keys: Tensor
    """Keys for each layer, (L, B, H, d, Ts)."""
    values: Tensor
    """Values for each layer, (L, B, H, Ts, d)."""
    offsets: Tensor
    """Offset added to the scores, (B, H, 1, Ts)."""

    def layers(self) -> list[LayerCache]:
        keys, values, offsets = self.keys.flatten(1, 2), self.values.flatten(1, 2), self.offsets.flatten(0, 1)
        return [LayerCache(*layer, offsets) for layer in zip(keys.unbind(), values.unbind(), strict=True)]


class KVCache:
    """State between two decoding steps. A step changes the cache in place, so only the state of the last step
    is valid."""

    def __init__(self, memory: SourceCache) -> None:
        layers, sources, heads, width, _ = memory.keys.shape
        self.memory, self.memory_layers = memory, memory.layers()
        self.time = self.used = 0
        """Number of decoded steps, and number of cached keys per source (N)."""
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
        return [
            LayerMemory(place, LayerCache(layer_keys, layer_values, offsets), memory)
            for place, layer_keys, layer_values, memory in zip(
                places, keys, values, self.memory_layers, strict=True
            )
        ]

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


def make_offsets(mask: Tensor, like: Tensor) -> Tensor:
    """Return offsets for scores: 0 where `mask` is True, and elsewhere a number so low that the weight is
    zero."""
    return torch.zeros(mask.shape, dtype=like.dtype).masked_fill_(~mask, lowest(like))


def lowest(like: Tensor) -> float:
    """Return an offset that makes weights zero, even if a score is added to it."""
    return torch.finfo(like.dtype).min / 2
