"""Mistakes in decoder layers."""

import numpy as np

from regard_course.mistakes.solution import Solution, mistake, mistakes_in
from regard_course.mistakes.sublayer_mistakes import ResidualsFromInput, residual
from regard_course.mistakes.transformer_solution import Array, Mask, Parameters

CAUSAL = "Vaswani et al. 2017, section 3.2.3: 'prevent leftward information flow in the decoder'"
CROSS = (
    "Vaswani et al. 2017, section 3.2.3: 'the queries come from the previous decoder layer, and the "
    "memory keys and values come from the output of the encoder'"
)
DECODER = "Vaswani et al. 2017, section 3.1 and figure 1: self-attention, attention to the encoder, feed-forward"
PADDING = "Vaswani et al. 2017, section 3.2.3: a mask hides positions; padding is not a word"
causal_mask = mistakes_in(Solution.causal_mask, CAUSAL)
cross_attention_cross = mistakes_in(Solution.cross_attention, CROSS)
cross_attention_decoder = mistakes_in(Solution.cross_attention, DECODER)


@causal_mask("Hide all later steps from each step, with a lower triangle of True.")
def future_seen(self: Solution, length: int) -> Array:
    """The decoder attends to future tokens: its self-attention has no causal mask."""
    return np.ones((length, length), bool)


@causal_mask("A step attends to itself and earlier steps: tril(ones), or hide triu(ones, diagonal=1).")
def future_leaked_by_one(self: Solution, length: int) -> Array:
    """The causal mask is off by one: each step attends to the next step, which is its answer."""
    return np.tril(np.ones((length, length), bool), 1)


@causal_mask("A step attends to itself and earlier steps: hide triu(ones, diagonal=1), without the diagonal.")
def self_hidden(self: Solution, length: int) -> Array:
    """The causal mask also hides each step from itself, so the first step has no key."""
    return np.tril(np.ones((length, length), bool), -1)


@causal_mask("Keep the lower triangle of (query, key): tril, not triu.")
def past_hidden(self: Solution, length: int) -> Array:
    """The causal mask is upside down: each step attends to later steps and not to earlier steps."""
    return np.triu(np.ones((length, length), bool))


@mistake(
    Solution.cross_mask, CROSS, "Every step of the decoder may attend to the whole source; hide only its padding."
)
def causal_cross(self: Solution, mask: Mask, length: int) -> Mask:
    """The causal mask is applied to the attention to the encoder too: step t attends to only t source words."""
    return None if mask is None else mask & np.tril(np.ones(mask.shape[-2:], bool))


@mistake(Solution.cross_mask, PADDING, "Hide the source's padding in the attention to the encoder too.")
def memory_padding_seen(self: Solution, mask: Mask, length: int) -> Mask:
    """The decoder attends to the source's padding: its attention to the encoder has no mask."""
    return None


@cross_attention_cross("Take queries from the decoder, keys and values from the encoder's memory.")
def cross_to_itself(self: Solution, states: Array, memory: Array, p: Parameters, heads: int, mask: Mask) -> Array:
    """The second attention takes keys and values from the decoder: the source is not used."""
    return Solution.cross_attention(self, states, states, p, heads, None)


@cross_attention_cross(
    "Take queries from the decoder, keys and values from the encoder's memory, with the source's mask.",
)
def cross_to_own_past(
    self: Solution, states: Array, memory: Array, p: Parameters, heads: int, mask: Mask
) -> Array:
    """The second attention is another self-attention with a causal mask: the source is not used."""
    length = states.shape[1]
    causal = np.broadcast_to(self.causal_mask(length), (len(states), length, length))
    return Solution.cross_attention(self, states, states, p, heads, causal)


@cross_attention_cross("Take queries from the decoder, keys and values from the encoder's memory.")
def cross_swapped(self: Solution, states: Array, memory: Array, p: Parameters, heads: int, mask: Mask) -> Array:
    """Queries come from the memory, and keys and values from the decoder."""
    return Solution.cross_attention(self, memory, states, p, heads, None)


@cross_attention_decoder("Attend to the encoder's memory between self-attention and feed-forward network.")
def no_cross(self: Solution, states: Array, memory: Array, p: Parameters, heads: int, mask: Mask) -> Array:
    """The attention to the encoder is missing: the decoder does not receive the source."""
    return np.zeros_like(states)


@residual("Add the input of the attention to the encoder to its output, before the norm.")
def no_residual_around_cross(self: Solution, states: Array, kind: str, norm: int) -> Array:
    """The residual connection around the attention to the encoder is missing."""
    return states * (kind != "cross_attention")


class CrossResidualFromInput(ResidualsFromInput):
    """The residual connection around the attention to the encoder adds the input of the layer, not the output of
    self-attention."""

    instead = "Add the result of the first norm, which is the input of the attention to the encoder."
    places = (("cross_attention", 2),)


class LastResidualFromInput(ResidualsFromInput):
    """The residual connection around the decoder's feed-forward network adds the input of the layer, not its own
    input."""

    instead = "Add the result of the second norm, which is the input of the feed-forward network."
    places = (("feed_forward", 3),)


@mistake(
    Solution.decoder_layer,
    DECODER,
    "Self-attention first, then the attention to the encoder, then the feed-forward network.",
)
def cross_first(
    self: Solution, states: Array, memory: Array, parameters: Parameters, heads: int, memory_mask: Mask = None
) -> Array:
    """The attention to the encoder comes before self-attention."""
    p, length = parameters, states.shape[1]
    causal = np.broadcast_to(self.causal_mask(length), (len(states), length, length))
    mask = self.cross_mask(memory_mask, length)
    x = states
    x = self.sublayer(x, "cross_attention", lambda x: self.cross_attention(x, memory, p, heads, mask), p, 2)
    x = self.sublayer(x, "self_attention", lambda x: self.self_attention(x, p, heads, causal), p, 1)
    return self.sublayer(x, "feed_forward", lambda x: self.apply_feed_forward(x, p), p, 3)


@cross_attention_decoder("Give the attention to the encoder its own projections.")
def cross_shares_weights(
    self: Solution, states: Array, memory: Array, p: Parameters, heads: int, mask: Mask
) -> Array:
    """Both attentions of the decoder layer share the weights of self-attention."""
    shared = {f"cross_{letter}": p[f"w_{letter}"] for letter in "qkvo"}
    return Solution.cross_attention(self, states, memory, {**p, **shared}, heads, mask)
