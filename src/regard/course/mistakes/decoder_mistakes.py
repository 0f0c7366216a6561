"""Mistakes in decoder layers."""

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
PADDING = "Vaswani et al. 2017, section 3.2.3: a mask hides positions; padding is not a word"


class FutureSeen(Solution, paper=CAUSAL):
    """The decoder sees the future: its self-attention has no causal mask."""

    instead = "Hide all later steps from each step, with a lower triangle of True."

    def causal_mask(self, length: int) -> Array:
        return np.ones((length, length), bool)


class FutureLeakedByOne(Solution, paper=CAUSAL):
    """The causal mask is off by one: each step sees the next one, which is its answer."""

    instead = "A step sees itself and earlier steps: tril(ones), or hide triu(ones, diagonal=1)."

    def causal_mask(self, length: int) -> Array:
        return np.tril(np.ones((length, length), bool), 1)


class SelfHidden(Solution, paper=CAUSAL):
    """The causal mask also hides each step from itself, so the first step has no key."""

    instead = "A step sees itself and earlier steps: hide triu(ones, diagonal=1), without the diagonal."

    def causal_mask(self, length: int) -> Array:
        return np.tril(np.ones((length, length), bool), -1)


class PastHidden(Solution, paper=CAUSAL):
    """The causal mask is upside down: each step sees the future and not the past."""

    instead = "Keep the lower triangle of (query, key): tril, not triu."

    def causal_mask(self, length: int) -> Array:
        return np.triu(np.ones((length, length), bool))


class CausalCross(Solution, paper=CROSS):
    """The causal mask is applied to the attention to the encoder too: step t sees only t source words."""

    instead = "Every step of the decoder may attend to the whole source; hide only its padding."

    def cross_mask(self, mask: Mask, length: int) -> Mask:
        return None if mask is None else mask & np.tril(np.ones(mask.shape[-2:], bool))


class MemoryPaddingSeen(Solution, paper=PADDING):
    """The decoder attends to the source's padding: its attention to the encoder has no mask."""

    instead = "Hide the source's padding in the attention to the encoder too."

    def cross_mask(self, mask: Mask, length: int) -> Mask:
        return None


class CrossToItself(Solution, paper=CROSS):
    """The second attention takes keys and values from the decoder: the source is not used."""

    instead = "Take queries from the decoder, keys and values from the encoder's memory."

    def cross_attention(self, states: Array, memory: Array, p: Parameters, heads: int, mask: Mask) -> Array:
        return super().cross_attention(states, states, p, heads, None)


class CrossToOwnPast(Solution, paper=CROSS):
    """The second attention is another self-attention with a causal mask: the source is not used."""

    instead = "Take queries from the decoder, keys and values from the encoder's memory, with the source's mask."

    def cross_attention(self, states: Array, memory: Array, p: Parameters, heads: int, mask: Mask) -> Array:
        length = states.shape[1]
        causal = np.broadcast_to(self.causal_mask(length), (len(states), length, length))
        return super().cross_attention(states, states, p, heads, causal)


class CrossSwapped(Solution, paper=CROSS):
    """Queries come from the memory, and keys and values from the decoder."""

    instead = "Take queries from the decoder, keys and values from the encoder's memory."

    def cross_attention(self, states: Array, memory: Array, p: Parameters, heads: int, mask: Mask) -> Array:
        return super().cross_attention(memory, states, p, heads, None)


class NoCross(Solution, paper=DECODER):
    """The attention to the encoder is missing: the decoder does not know the source."""

    instead = "Attend to the encoder's memory between self-attention and feed-forward network."

    def cross_attention(self, states: Array, memory: Array, p: Parameters, heads: int, mask: Mask) -> Array:
        return np.zeros_like(states)


class NoResidualAroundCross(Solution, paper="Vaswani et al. 2017, section 3.1: LayerNorm(x + Sublayer(x))"):
    """The residual connection around the attention to the encoder is missing."""

    instead = "Add the input of the attention to the encoder to its output, before the norm."

    def sublayer(self, states: Array, kind: str, function: Any, p: Parameters, norm: int) -> Array:
        if kind != "cross_attention":
            return super().sublayer(states, kind, function, p, norm)
        return self.normalize(function(states), p[f"gain_{norm}"], p[f"shift_{norm}"])


class CrossFirst(Solution, paper=DECODER):
    """The attention to the encoder comes before self-attention."""

    instead = "Self-attention first, then the attention to the encoder, then the feed-forward network."

    def decoder_layer(
        self, states: Array, memory: Array, parameters: Parameters, heads: int, memory_mask: Mask = None
    ) -> Array:
        p, length = parameters, states.shape[1]
        causal = np.broadcast_to(self.causal_mask(length), (len(states), length, length))
        mask = self.cross_mask(memory_mask, length)
        x = states
        x = self.sublayer(x, "cross_attention", lambda x: self.cross_attention(x, memory, p, heads, mask), p, 2)
        x = self.sublayer(x, "self_attention", lambda x: self.self_attention(x, p, heads, causal), p, 1)
        return self.sublayer(x, "feed_forward", lambda x: self.apply_feed_forward(x, p), p, 3)


class CrossSharesWeights(Solution, paper=DECODER):
    """Both attentions of the decoder layer share the weights of self-attention."""

    instead = "Give the attention to the encoder its own projections."

    def cross_attention(self, states: Array, memory: Array, p: Parameters, heads: int, mask: Mask) -> Array:
        shared = {f"cross_{letter}": p[f"w_{letter}"] for letter in "qkvo"}
        return super().cross_attention(states, memory, {**p, **shared}, heads, mask)
