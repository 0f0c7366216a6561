"""KV cache of a search: keys and values of the sources and of all decoded steps of their hypotheses.

Replaces `TransformerState`, which copies the keys and values of the selected hypotheses at each step.
Gain and conditions: see `fast_transformer`.

The cache is one tensor with space for later steps. All hypotheses of a source share its part of the tensor. An
offset on the scores restricts a hypothesis to the keys of its ancestors, so selecting hypotheses moves no keys
and values. When a source finishes, its part of the tensor is reused for a later source.

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
    offsets: Tensor | None
    """Offset added to the scores, broadcastable to (B H, K, N); None if all keys may be attended."""


class SourceCache(NamedTuple):
    """Keys and values of the sources, padded to at least `LANES` steps because a softmax over fewer steps is
    slow."""

    states: Tensor
    """Keys and values for each layer, (L, 2, B, H, Ts, d)."""
    offsets: Tensor | None
    """Offset added to the scores, (B, H, 1, Ts); None if all keys may be attended."""

    @classmethod
    def masked(cls, states: Tensor, mask: Tensor) -> "SourceCache":
        """Return the cache of keys and values (L, 2, B, H, Ts, d). Steps for which `mask` (B, T) is False or
        missing are masked."""
        missing = states.shape[4] - mask.shape[1]
        if not missing and mask.all():
            return cls(states, None)
        offsets = _offsets(F.pad(mask, (0, missing)), states)
        return cls(states, offsets[:, None, None].repeat(1, states.shape[3], 1, 1))

    def layers(self) -> list[LayerCache]:
        """Return the keys and values of each layer."""
        return _by_layer(self.states, None if self.offsets is None else self.offsets.flatten(0, 1))


class KVCache:
    """State between two decoding steps. A step changes the cache in place, so only the state of the last step
    is valid."""

    def __init__(self, memory: SourceCache) -> None:
        self.memory, self.memory_layers = memory, memory.layers()
        layers, sides, sources, heads, _, width = memory.states.shape
        self.time = self.used = 0
        """Number of decoded steps, and number of cached keys per source (N)."""
        self.states = memory.states.new_zeros(layers, sides, sources, heads, LANES, width)
        """Keys and values of all decoded steps, (L, 2, B, H, capacity, d)."""
        self.ancestors: Tensor | None = None
        """Offsets that restrict each hypothesis to the keys of its ancestors, (B, K, N); None if every hypothesis
        may attend to all keys."""
        self.cross_weights: list[Tensor] = []
        """Weights of the last step on the source for each layer, (B H, K, Ts), in the order of its sources."""
        self._first_offsets = _offsets(torch.arange(2 * LANES) < LANES, self.states)

    def advance(self, count: int) -> tuple[Tensor, list[LayerCache]]:
        """Begin a step with `count` hypotheses per source.

        Returns the part of the cache for the keys and values of this step, (L, 2, B, H, K, d), and the keys and
        values that each layer attends to (all decoded steps, padded to at least `LANES`).
        """
        used, self.used, self.time = self.used, self.used + count, self.time + 1
        if self.used > self.states.shape[4]:
            *lead, _, width = self.states.shape
            larger = self.states.new_empty(*lead, 2 * self.used, width)
            larger[..., :used, :] = self.states[..., :used, :]
            self.states = larger
        place, keys_values = self.states[..., used : self.used, :], self.states[..., : max(self.used, LANES), :]
        return place, _by_layer(keys_values, self._next_offsets(used, count))

    def _next_offsets(self, used: int, count: int) -> Tensor | None:
        missing = max(LANES - self.used, 0)
        if self.ancestors is None and count == 1:
            return self._first_offsets[missing : missing + LANES] if missing else None
        sources, heads = self.states.shape[2:4]
        earlier = self.states.new_zeros(sources, count, used) if self.ancestors is None else self.ancestors
        own = _offsets(torch.eye(count, dtype=torch.bool), self.states)
        self.ancestors = torch.cat([earlier, own.expand(sources, -1, -1)], dim=-1)
        offsets = F.pad(self.ancestors, (0, missing), value=_lowest(self.states)) if missing else self.ancestors
        return offsets.unsqueeze(1).expand(-1, heads, -1, -1).flatten(0, 1)

    def choose(self, hypotheses: Tensor) -> "KVCache":
        """Select hypotheses of each source by their indices (B, K') int64."""
        if self.ancestors is None:  # a single hypothesis per source, shared by all new ones
            self.ancestors = self.states.new_zeros(*hypotheses.shape, self.used)
        else:
            sources, count, _ = self.ancestors.shape
            rows = hypotheses + torch.arange(sources).unsqueeze(1) * count
            self.ancestors = self.ancestors.flatten(0, 1).index_select(0, rows.flatten()).view(*rows.shape, -1)
        return self

    def keep(self, sources: Tensor) -> "KVCache":
        """Select sources by their indices (B',) int64. The index at position i must be at least i."""
        moves = [(place, source) for place, source in enumerate(sources.tolist()) if place != source]
        remaining = slice(len(sources))
        states, offsets = self.states[..., : self.used, :], self.memory.offsets
        for place, source in moves:
            states[:, :, place] = states[:, :, source]
            self.memory.states[:, :, place] = self.memory.states[:, :, source]
            if offsets is not None:
                offsets[place] = offsets[source]
        self.states = self.states[:, :, remaining]
        self.memory = SourceCache(
            self.memory.states[:, :, remaining], None if offsets is None else offsets[remaining]
        )
        self.memory_layers = self.memory.layers()
        self.ancestors = None if self.ancestors is None else self.ancestors[sources]
        return self


def _by_layer(states: Tensor, offsets: Tensor | None) -> list[LayerCache]:
    keys, values = states.flatten(2, 3).unbind(1)
    return [LayerCache(*layer, offsets) for layer in zip(keys.transpose(2, 3), values, strict=True)]


def _offsets(mask: Tensor, like: Tensor) -> Tensor:
    """Return offsets for scores: 0 where `mask` is True, and elsewhere a number so low that the weight is
    zero."""
    return torch.zeros(mask.shape, dtype=like.dtype).masked_fill_(~mask, _lowest(like))


def _lowest(like: Tensor) -> float:
    return torch.finfo(like.dtype).min / 2
