"""Every exercise worked out, right, in steps that a mistake can take the place of.

A usual mistake is a class derived from `Solution` that does one step as learners do it when they go wrong. So it
is there in every exercise that takes the step, and two mistakes are a class derived from both.

Letters: B batch, T time (Tq of queries, Tk of keys), D width, H heads, V vocabulary. Arrays of NumPy, float64.
"""

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Parameters = dict[str, Array]
Mask = Array | None
PADDING = 0


class Weighing:
    """Scores, weights and contexts, one head or many side by side."""

    def dot_products(self, query: Array, key: Array) -> Array:
        """Return `Q Kᵀ` over the last two dimensions."""
        return np.einsum("...id,...jd->...ij", query, key)

    def scale(self, query: Array, key: Array, heads: int) -> float:
        """Return what scores are divided by."""
        return float(np.sqrt(query.shape[-1]))

    def score(self, query: Array, key: Array, heads: int = 1) -> Array:
        """Return scores (..., Tq, Tk)."""
        return self.dot_products(query, key) / self.scale(query, key, heads)

    def apply_mask(self, scores: Array, mask: Array) -> Array:
        """Return scores with those away that the mask does not allow."""
        return np.where(mask, scores, -np.inf)

    def softmax(self, scores: Array) -> Array:
        """Return the softmax over keys."""
        raised = np.exp(scores - scores.max(-1, keepdims=True))
        return np.asarray(raised / raised.sum(-1, keepdims=True))

    def zero_masked_rows(self, weights: Array, hidden: Array) -> Array:
        """Return weights with zeros where all that a softmax ran over was hidden, which made it 0 / 0."""
        return np.where(np.isneginf(hidden) & np.isnan(weights), 0.0, weights)

    def masked_softmax(self, scores: Array, mask: Mask) -> Array:
        """Return weights of scores."""
        if mask is None:
            return self.softmax(scores)
        hidden = self.apply_mask(scores, np.broadcast_to(mask, scores.shape))
        return self.zero_masked_rows(self.softmax(hidden), hidden)

    def context(self, weights: Array, value: Array) -> Array:
        """Return weights times values."""
        return weights @ value

    def attend(self, query: Array, key: Array, value: Array, mask: Mask, heads: int = 1) -> tuple[Array, Array]:
        """Return contexts and weights."""
        weights = self.masked_softmax(self.score(query, key, heads), mask)
        return self.context(weights, value), weights

    def attention(self, query: Array, key: Array, value: Array, mask: Mask = None) -> tuple[Array, ...]:
        """Return what the exercise asks for: contexts and weights."""
        return self.attend(query, key, value, mask)


class Waves:
    """Positions."""

    base = 10_000.0
    first = 0
    """The number of the first dimension, or of the first pair."""

    def positions(self, length: int) -> Array:
        """Return the positions, counted."""
        return np.arange(length)

    def frequencies(self, width: int) -> Array:
        """Return by how much each pair of dimensions turns in one step."""
        return self.base ** -(2 * self.indices((width + 1) // 2) / width)

    def indices(self, count: int) -> Array:
        """Return the numbers of dimensions, or of pairs of them."""
        return np.arange(self.first, self.first + count)

    def interleave(self, sines: Array, cosines: Array) -> Array:
        """Return waves (T, D) of sines and cosines (T, D / 2)."""
        return np.stack([sines, cosines], -1).reshape(len(sines), -1)

    def sinusoidal_positions(self, length: int, width: int) -> Array:
        """Return waves (T, D)."""
        angles = self.positions(length)[:, None] * self.frequencies(width)
        return self.interleave(np.sin(angles), np.cos(angles))[:, :width]

    def position_vectors(self, states: Array, width: int) -> Array:
        """Return the waves for states (B, T, D), alike for the whole batch."""
        waves = self.sinusoidal_positions(states.shape[1], width)
        return np.broadcast_to(waves, (len(states), *waves.shape))

    def concatenate_positions(self, states: Array, width: int) -> Array:
        """Return states with waves behind each."""
        return np.concatenate([states, self.position_vectors(states, width)], -1)


class Layers(Weighing, Waves):
    """Heads, layers and the whole Transformer."""

    epsilon = 1e-5

    def project(self, states: Array, weight: Array) -> Array:
        """Return `x W`."""
        return states @ weight

    def project_inputs(
        self, inputs: tuple[Array, Array, Array], weights: tuple[Array, Array, Array]
    ) -> list[Array]:
        """Return queries, keys and values."""
        return [self.project(states, weight) for states, weight in zip(inputs, weights, strict=True)]

    def split(self, states: Array, heads: int) -> Array:
        """Return (B, H, T, D / H) of (B, T, D)."""
        return states.reshape(*states.shape[:2], heads, -1).transpose(0, 2, 1, 3)

    def join(self, states: Array) -> Array:
        """Return (B, T, D) of (B, H, T, D / H)."""
        return states.transpose(0, 2, 1, 3).reshape(len(states), states.shape[2], -1)

    def head_mask(self, mask: Mask, heads: int) -> Mask:
        """Return the mask for all heads."""
        return None if mask is None else mask[:, None]

    def project_output(self, joined: Array, w_o: Array) -> Array:
        """Return what leaves the heads."""
        return self.project(joined, w_o)

    def multi_head_attention(
        self,
        query: Array,
        key: Array,
        value: Array,
        w_q: Array,
        w_k: Array,
        w_v: Array,
        w_o: Array,
        heads: int,
        mask: Mask = None,
    ) -> Array:
        """Return (B, Tq, D)."""
        q, k, v = (self.split(each, heads) for each in self.project_inputs((query, key, value), (w_q, w_k, w_v)))
        context, _ = self.attend(q, k, v, self.head_mask(mask, heads), heads)
        return self.project_output(self.join(context), w_o)

    def activation(self, hidden: Array) -> Array:
        """Return what is positive."""
        return np.maximum(hidden, 0)

    def feed_forward(self, states: Array, w_1: Array, b_1: Array, w_2: Array, b_2: Array) -> Array:
        """Return the two layers of section 3.3."""
        return self.activation(states @ w_1 + b_1) @ w_2 + b_2

    def standard_deviation(self, states: Array) -> Array:
        """Return what a norm divides by."""
        return np.sqrt(states.var(-1, keepdims=True) + self.epsilon)

    def normalise(self, states: Array, gain: Array, shift: Array) -> Array:
        """Return each step normalised over its width."""
        return (states - states.mean(-1, keepdims=True)) / self.standard_deviation(states) * gain + shift

    def sublayer(self, states: Array, kind: str, work: Any, p: Parameters, which: int) -> Array:
        """Return `LayerNorm(x + Sublayer(x))`; `kind` is own, cross or inner."""
        return self.normalise(states + work(states), p[f"gain_{which}"], p[f"shift_{which}"])

    def apply_feed_forward(self, states: Array, p: Parameters) -> Array:
        """Return the feed-forward part."""
        return self.feed_forward(states, p["w_1"], p["b_1"], p["w_2"], p["b_2"])

    def self_attention(self, states: Array, p: Parameters, heads: int, mask: Mask) -> Array:
        """Return self-attention."""
        return self.multi_head_attention(
            states, states, states, p["w_q"], p["w_k"], p["w_v"], p["w_o"], heads, mask
        )

    def cross_attention(self, states: Array, memory: Array, p: Parameters, heads: int, mask: Mask) -> Array:
        """Return attention to the encoder's memory."""
        weights = p["cross_q"], p["cross_k"], p["cross_v"], p["cross_o"]
        return self.multi_head_attention(states, memory, memory, *weights, heads, mask)

    def encoder_layer(self, states: Array, parameters: Parameters, heads: int, mask: Mask = None) -> Array:
        """Return what an encoder layer makes of its states."""
        p = parameters
        middle = self.sublayer(states, "self_attention", lambda x: self.self_attention(x, p, heads, mask), p, 1)
        return self.sublayer(middle, "feed_forward", lambda x: self.apply_feed_forward(x, p), p, 2)

    def causal_mask(self, length: int) -> Array:
        """Return what each step may see of its own sequence: (T, T)."""
        return np.tril(np.ones((length, length), bool))

    def cross_mask(self, mask: Mask, length: int) -> Mask:
        """Return what the decoder's steps may see of the memory."""
        return mask

    def decoder_layer(
        self, states: Array, memory: Array, parameters: Parameters, heads: int, memory_mask: Mask = None
    ) -> Array:
        """Return what a decoder layer makes of its states."""
        p, length = parameters, states.shape[1]
        causal = np.broadcast_to(self.causal_mask(length), (len(states), length, length))
        seen = self.cross_mask(memory_mask, length)
        first = self.sublayer(states, "self_attention", lambda x: self.self_attention(x, p, heads, causal), p, 1)
        second = self.sublayer(
            first, "cross_attention", lambda x: self.cross_attention(x, memory, p, heads, seen), p, 2
        )
        return self.sublayer(second, "feed_forward", lambda x: self.apply_feed_forward(x, p), p, 3)


class WholeModel(Layers):
    """The whole model of figure 1."""

    def scale_embeddings(self, vectors: Array, side: str) -> Array:
        """Return embeddings times √D; `side` is source or target."""
        return vectors * np.sqrt(vectors.shape[-1])

    def embed(self, tokens: Array, table: Array, side: str) -> Array:
        """Return embeddings with positions; `side` is source or target."""
        vectors = self.scale_embeddings(table[tokens], side)
        return vectors + self.position_vectors(vectors, vectors.shape[-1])

    def encoder_mask(self, source: Array) -> Mask:
        """Return what the encoder may attend to: (B, Ts, Ts)."""
        return np.broadcast_to((source != PADDING)[:, None], (len(source), source.shape[1], source.shape[1]))

    def source_mask(self, source: Array, target: Array) -> Mask:
        """Return what the decoder may attend to of the source: (B, Tt, Ts)."""
        return np.broadcast_to((source != PADDING)[:, None], (len(source), target.shape[1], source.shape[1]))

    def layer_parameters(self, parameters: Parameters, side: str, which: int) -> Parameters:
        """Return the parameters of one layer."""
        prefix = f"{side}.{which}."
        return {name[len(prefix) :]: value for name, value in parameters.items() if name.startswith(prefix)}

    def encode(self, source: Array, parameters: Parameters, heads: int, layers: int) -> list[Array]:
        """Return what each encoder layer gave, the embedding first."""
        states = [self.embed(source, parameters["source"], "source")]
        for each in range(layers):
            p = self.layer_parameters(parameters, "encoder", each)
            states.append(self.encoder_layer(states[-1], p, heads, self.encoder_mask(source)))
        return states

    def memory_for_layer(self, states: list[Array], which: int) -> Array:
        """Return what decoder layer `which` attends to, of all that the encoder's layers gave."""
        return states[-1]

    def decoder_input(self, target: Array) -> Array:
        """Return the tokens that enter the decoder."""
        return target

    def logits(self, states: Array, parameters: Parameters) -> Array:
        """Return logits of the decoder's states."""
        return states @ parameters["w_out"] + parameters["b_out"]

    def transformer(self, source: Array, target: Array, parameters: Parameters, heads: int, layers: int) -> Array:
        """Return logits (B, Tt, V)."""
        encoded = self.encode(source, parameters, heads, layers)
        states = self.embed(self.decoder_input(target), parameters["target"], "target")
        for each in range(layers):
            p, seen = self.layer_parameters(parameters, "decoder", each), self.source_mask(source, target)
            states = self.decoder_layer(states, self.memory_for_layer(encoded, each), p, heads, seen)
        return self.logits(states, parameters)
