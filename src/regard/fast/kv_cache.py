"""Keys and values of a search: those of the sources, and those of all steps so far of their hypotheses.

They stand in one tensor with room for steps to come. The hypotheses of a source keep theirs side by side, and
each sees those of its own ancestors: which prefixes go on moves no keys and values, only what hides them. A
source that is done leaves its place to another one.

Letters: L layers, B sources, K hypotheses of each, N keys that they have left so far, H heads, d width of each.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attention.weights import LANES


class LayerCache(NamedTuple):
    """What the queries of one layer attend to."""

    keys: Tensor
    """(B H, d, N), turned for the product with queries."""
    values: Tensor
    """(B H, N, d)."""
    hidden: Tensor | None
    """What is added to scores, and broadcasts to (B H, K, N); None where all may be seen."""


class SourceCache(NamedTuple):
    """What the decoder may look at, at least `LANES` steps of each source: a softmax over fewer is slow."""

    states: Tensor
    """Keys and values for each layer, (L, 2, B, H, Ts, d)."""
    hidden: Tensor | None
    """What is added to scores, (B, H, 1, Ts); None where all may be seen."""

    @classmethod
    def of(cls, states: Tensor, mask: Tensor) -> "Known":
        """Return keys and values (L, 2, B, H, Ts, d) with what hides those for which a mask (B, T) is False, or
        which come after it."""
        missing = states.shape[4] - mask.shape[1]
        if not missing and mask.all():
            return cls(states, None)
        there = F.pad(mask, (0, missing))
        return cls(states, _hiding(there, states)[:, None, None].repeat(1, states.shape[3], 1, 1))

    def layers(self) -> list[LayerCache]:
        """Return what each layer attends to."""
        return _layers(self.states, None if self.hidden is None else self.hidden.flatten(0, 1))


class KVCache:
    """All that one step hands to the next. Each step changes it: there is one at a time."""

    def __init__(self, memory: SourceCache) -> None:
        self.memory, self.known = memory, memory.layers()
        layers, sides, sources, heads, _, width = memory.states.shape
        self.time = self.used = 0
        """Steps so far, and keys that the hypotheses of each source have left (N)."""
        self.past = memory.states.new_zeros(layers, sides, sources, heads, LANES, width)
        """Keys and values of all steps so far, (L, 2, B, H, room, d)."""
        self.lineage: Tensor | None = None
        """What is added to scores so that each hypothesis sees its own past, (B, K, N); None where it is all."""
        self._first = _hiding(torch.arange(2 * LANES) < LANES, self.past)

    def after(self, count: int) -> tuple[Tensor, list[LayerCache]]:
        """Go on to a step of `count` hypotheses of each source.

        Returns where its keys and values belong, (L, 2, B, H, K, d), and what each layer attends to: those of all
        steps, and `LANES` at least.
        """
        before, self.used, self.time = self.used, self.used + count, self.time + 1
        if self.used > self.past.shape[4]:
            *others, _, width = self.past.shape
            room = self.past.new_empty(*others, 2 * self.used, width)
            room[..., :before, :] = self.past[..., :before, :]
            self.past = room
        slots, seen = self.past[..., before : self.used, :], self.past[..., : max(self.used, LANES), :]
        return slots, _layers(seen, self._hidden(before, count))

    def _hidden(self, before: int, count: int) -> Tensor | None:
        missing = max(LANES - self.used, 0)
        if self.lineage is None and count == 1:
            return self._first[missing : missing + LANES] if missing else None
        sources, heads = self.past.shape[2:4]
        known = self.past.new_zeros(sources, count, before) if self.lineage is None else self.lineage
        own = _hiding(torch.eye(count, dtype=torch.bool), self.past)
        self.lineage = torch.cat([known, own.expand(sources, -1, -1)], dim=-1)
        hidden = F.pad(self.lineage, (0, missing), value=_lowest(self.past)) if missing else self.lineage
        return hidden.unsqueeze(1).expand(-1, heads, -1, -1).flatten(0, 1)

    def choose(self, hypotheses: Tensor) -> "Past":
        """Go on with some hypotheses of each source, (B, K') int64."""
        if self.lineage is None:  # one of each so far, and all have its past
            self.lineage = self.past.new_zeros(*hypotheses.shape, self.used)
        else:
            sources, count, _ = self.lineage.shape
            rows = hypotheses + torch.arange(sources).unsqueeze(1) * count
            self.lineage = self.lineage.flatten(0, 1).index_select(0, rows.flatten()).view(*rows.shape, -1)
        return self

    def keep(self, sources: Tensor) -> "Past":
        """Go on with some of the sources, (B',) int64, each at its place or before it; what stays there is not
        touched."""
        moves = [(here, there) for here, there in enumerate(sources.tolist()) if here != there]
        kept = slice(len(sources))
        past, hidden = self.past[..., : self.used, :], self.memory.hidden
        for here, there in moves:
            past[:, :, here] = past[:, :, there]
            self.memory.states[:, :, here] = self.memory.states[:, :, there]
            if hidden is not None:
                hidden[here] = hidden[there]
        self.past = self.past[:, :, kept]
        self.memory = SourceCache(self.memory.states[:, :, kept], None if hidden is None else hidden[kept])
        self.known = self.memory.layers()
        self.lineage = None if self.lineage is None else self.lineage[sources]
        return self


def _layers(states: Tensor, hidden: Tensor | None) -> list[LayerCache]:
    keys, values = states.flatten(2, 3).unbind(1)
    return [LayerCache(*each, hidden) for each in zip(keys.transpose(2, 3), values, strict=True)]


def _hiding(there: Tensor, like: Tensor) -> Tensor:
    """Return what is added to scores: 0 where something is, and else so little that no weight is left of it."""
    return torch.zeros(there.shape, dtype=like.dtype).masked_fill_(~there, _lowest(like))


def _lowest(like: Tensor) -> float:
    return torch.finfo(like.dtype).min / 2
