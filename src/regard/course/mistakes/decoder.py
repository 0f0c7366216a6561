"""Usual mistakes in decoder layers."""

from typing import Any

import numpy as np

from regard.course.mistakes.solution import Solution
from regard.course.mistakes.transformer_solution import Array, Mask, Parameters

CAUSAL = "Vaswani et al. 2017, section 3.2.3: 'prevent leftward information flow in the decoder'"
CROSS = (
    "Vaswani et al. 2017, section 3.2.3: 'the queries come from the previous decoder layer, and the "
    "memory keys and values come from the output of the encoder'"
)
DECODER = "Vaswani et al. 2017, section 3.1 and figure 1: self-attention, attention to the encoder, feed-forward"
PADDING = "Padding is no word: the mask of section 3.2.3 hides it"


class FutureSeen(Solution):
    """The decoder sees the future: its self-attention has no causal mask."""

    instead = "Hide from each step all that comes after it, with a lower triangle of True."
    paper = CAUSAL

    def causal_mask(self, length: int) -> Array:
        return np.ones((length, length), bool)


class FutureLeakedByOne(Solution):
    """The causal mask is off by one: each step sees the one after it, which is the answer."""

    instead = "A step sees itself and what came before: tril(ones), or hide triu(ones, diagonal=1)."
    paper = CAUSAL

    def causal_mask(self, length: int) -> Array:
        return np.tril(np.ones((length, length), bool), 1)


class SelfHidden(Solution):
    """The causal mask hides each step from itself too, and the first step has nothing to attend to."""

    instead = "A step sees itself and what came before: hide triu(ones, diagonal=1), without the diagonal."
    paper = CAUSAL

    def causal_mask(self, length: int) -> Array:
        return np.tril(np.ones((length, length), bool), -1)


class PastHidden(Solution):
    """The causal mask is upside down: each step sees the future and not the past."""

    instead = "Keep the lower triangle of (query, key): tril, not triu."
    paper = CAUSAL

    def causal_mask(self, length: int) -> Array:
        return np.triu(np.ones((length, length), bool))


class CausalCross(Solution):
    """The causal mask is laid on the attention to the encoder too: step t sees t source words."""

    instead = "Every step of the decoder may see the whole source; only padding is hidden there."
    paper = CROSS

    def cross_mask(self, mask: Mask, length: int) -> Mask:
        return None if mask is None else mask & np.tril(np.ones(mask.shape[-2:], bool))


class MemoryPaddingSeen(Solution):
    """The decoder attends to the source's padding: its attention to the encoder has no mask."""

    instead = "Hide the source's padding in the attention to the encoder too."
    paper = PADDING

    def cross_mask(self, mask: Mask, length: int) -> Mask:
        return None


class CrossToItself(Solution):
    """The second attention takes keys and values from the decoder: the source is never looked at."""

    instead = "Queries from the decoder, keys and values from the encoder's memory."
    paper = CROSS

    def cross_attention(self, states: Array, memory: Array, p: Parameters, heads: int, mask: Mask) -> Array:
        return super().cross_attention(states, states, p, heads, None)


class CrossToOwnPast(Solution):
    """The second attention is self-attention again, causal mask and all: the source is never looked at."""

    instead = "Queries from the decoder, keys and values from the encoder's memory, with the mask of the source."
    paper = CROSS

    def cross_attention(self, states: Array, memory: Array, p: Parameters, heads: int, mask: Mask) -> Array:
        length = states.shape[1]
        causal = np.broadcast_to(self.causal_mask(length), (len(states), length, length))
        return super().cross_attention(states, states, p, heads, causal)


class CrossSwapped(Solution):
    """Queries come from the memory, and keys and values from the decoder."""

    instead = "Queries from the decoder, keys and values from the encoder's memory."
    paper = CROSS

    def cross_attention(self, states: Array, memory: Array, p: Parameters, heads: int, mask: Mask) -> Array:
        return super().cross_attention(memory, states, p, heads, None)


class NoCross(Solution):
    """The attention to the encoder is missing: the decoder does not know the source."""

    instead = "Attend to the encoder's memory between self-attention and feed-forward."
    paper = DECODER

    def cross_attention(self, states: Array, memory: Array, p: Parameters, heads: int, mask: Mask) -> Array:
        return np.zeros_like(states)


class NoResidualAroundCross(Solution):
    """The residual connection around the attention to the encoder is missing."""

    instead = "Add its input to what the attention to the encoder gives, before the norm."
    paper = "Vaswani et al. 2017, section 3.1: LayerNorm(x + Sublayer(x))"

    def sublayer(self, states: Array, kind: str, work: Any, p: Parameters, which: int) -> Array:
        if kind != "cross_attention":
            return super().sublayer(states, kind, work, p, which)
        return self.normalise(work(states), p[f"gain_{which}"], p[f"shift_{which}"])


class CrossFirst(Solution):
    """The attention to the encoder comes before self-attention."""

    instead = "Self-attention first, then the attention to the encoder, then the feed-forward part."
    paper = DECODER

    def decoder_layer(
        self, states: Array, memory: Array, parameters: Parameters, heads: int, memory_mask: Mask = None
    ) -> Array:
        p, length = parameters, states.shape[1]
        causal = np.broadcast_to(self.causal_mask(length), (len(states), length, length))
        seen = self.cross_mask(memory_mask, length)
        first = self.sublayer(
            states, "cross_attention", lambda x: self.cross_attention(x, memory, p, heads, seen), p, 2
        )
        second = self.sublayer(first, "self_attention", lambda x: self.self_attention(x, p, heads, causal), p, 1)
        return self.sublayer(second, "feed_forward", lambda x: self.apply_feed_forward(x, p), p, 3)


class CrossSharesWeights(Solution):
    """Both attentions of the decoder layer share the weights of self-attention."""

    instead = "The attention to the encoder has projections of its own."
    paper = DECODER

    def cross_attention(self, states: Array, memory: Array, p: Parameters, heads: int, mask: Mask) -> Array:
        shared = {f"cross_{letter}": p[f"w_{letter}"] for letter in "qkvo"}
        return super().cross_attention(states, memory, {**p, **shared}, heads, mask)
