"""Every exercise worked out, right, in steps that a mistake can take the place of.

A usual mistake is a class derived from `Workings` that does one step as learners do it when they go wrong. So it
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

    def products(self, query: Array, key: Array) -> Array:
        """Return `Q Kᵀ` over the last two dimensions."""
        return np.einsum("...id,...jd->...ij", query, key)

    def divisor(self, query: Array, key: Array, heads: int) -> float:
        """Return what scores are divided by."""
        return float(np.sqrt(query.shape[-1]))

    def score(self, query: Array, key: Array, heads: int = 1) -> Array:
        """Return scores (..., Tq, Tk)."""
        return self.products(query, key) / self.divisor(query, key, heads)

    def hide(self, scores: Array, mask: Array) -> Array:
        """Return scores with those away that the mask does not allow."""
        return np.where(mask, scores, -np.inf)

    def softmax(self, scores: Array) -> Array:
        """Return the softmax over keys."""
        raised = np.exp(scores - scores.max(-1, keepdims=True))
        return np.asarray(raised / raised.sum(-1, keepdims=True))

    def settle(self, weights: Array, hidden: Array) -> Array:
        """Return weights with zeros where all that a softmax ran over was hidden, which made it 0 / 0."""
        return np.where(np.isneginf(hidden) & np.isnan(weights), 0.0, weights)

    def masked_softmax(self, scores: Array, mask: Mask) -> Array:
        """Return weights of scores."""
        if mask is None:
            return self.softmax(scores)
        hidden = self.hide(scores, np.broadcast_to(mask, scores.shape))
        return self.settle(self.softmax(hidden), hidden)

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

    def steps(self, length: int) -> Array:
        """Return the positions, counted."""
        return np.arange(length)

    def rates(self, width: int) -> Array:
        """Return by how much each pair of dimensions turns in one step."""
        return self.base ** -(2 * self.numbers((width + 1) // 2) / width)

    def numbers(self, count: int) -> Array:
        """Return the numbers of dimensions, or of pairs of them."""
        return np.arange(self.first, self.first + count)

    def arranged(self, sines: Array, cosines: Array) -> Array:
        """Return waves (T, D) of sines and cosines (T, D / 2)."""
        return np.stack([sines, cosines], -1).reshape(len(sines), -1)

    def sinusoidal_positions(self, length: int, width: int) -> Array:
        """Return waves (T, D)."""
        angles = self.steps(length)[:, None] * self.rates(width)
        return self.arranged(np.sin(angles), np.cos(angles))[:, :width]

    def placed(self, states: Array, width: int) -> Array:
        """Return the waves for states (B, T, D), alike for the whole batch."""
        waves = self.sinusoidal_positions(states.shape[1], width)
        return np.broadcast_to(waves, (len(states), *waves.shape))

    def concatenate_positions(self, states: Array, width: int) -> Array:
        """Return states with waves behind each."""
        return np.concatenate([states, self.placed(states, width)], -1)


class Layers(Weighing, Waves):
    """Heads, layers and the whole Transformer."""

    epsilon = 1e-5

    def project(self, states: Array, weight: Array) -> Array:
        """Return `x W`."""
        return states @ weight

    def projected(self, inputs: tuple[Array, Array, Array], weights: tuple[Array, Array, Array]) -> list[Array]:
        """Return queries, keys and values."""
        return [self.project(states, weight) for states, weight in zip(inputs, weights, strict=True)]

    def split(self, states: Array, heads: int) -> Array:
        """Return (B, H, T, D / H) of (B, T, D)."""
        return states.reshape(*states.shape[:2], heads, -1).transpose(0, 2, 1, 3)

    def join(self, states: Array) -> Array:
        """Return (B, T, D) of (B, H, T, D / H)."""
        return states.transpose(0, 2, 1, 3).reshape(len(states), states.shape[2], -1)

    def each_head(self, mask: Mask, heads: int) -> Mask:
        """Return the mask for all heads."""
        return None if mask is None else mask[:, None]

    def output(self, joined: Array, w_o: Array) -> Array:
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
        q, k, v = (self.split(each, heads) for each in self.projected((query, key, value), (w_q, w_k, w_v)))
        context, _ = self.attend(q, k, v, self.each_head(mask, heads), heads)
        return self.output(self.join(context), w_o)

    def activation(self, hidden: Array) -> Array:
        """Return what is positive."""
        return np.maximum(hidden, 0)

    def feed_forward(self, states: Array, w_1: Array, b_1: Array, w_2: Array, b_2: Array) -> Array:
        """Return the two layers of section 3.3."""
        return self.activation(states @ w_1 + b_1) @ w_2 + b_2

    def spread(self, states: Array) -> Array:
        """Return what a norm divides by."""
        return np.sqrt(states.var(-1, keepdims=True) + self.epsilon)

    def normalise(self, states: Array, gain: Array, shift: Array) -> Array:
        """Return each step normalised over its width."""
        return (states - states.mean(-1, keepdims=True)) / self.spread(states) * gain + shift

    def sublayer(self, states: Array, kind: str, work: Any, p: Parameters, which: int) -> Array:
        """Return `LayerNorm(x + Sublayer(x))`; `kind` is own, cross or inner."""
        return self.normalise(states + work(states), p[f"gain_{which}"], p[f"shift_{which}"])

    def inner(self, states: Array, p: Parameters) -> Array:
        """Return the feed-forward part."""
        return self.feed_forward(states, p["w_1"], p["b_1"], p["w_2"], p["b_2"])

    def own(self, states: Array, p: Parameters, heads: int, mask: Mask) -> Array:
        """Return self-attention."""
        return self.multi_head_attention(
            states, states, states, p["w_q"], p["w_k"], p["w_v"], p["w_o"], heads, mask
        )

    def cross(self, states: Array, memory: Array, p: Parameters, heads: int, mask: Mask) -> Array:
        """Return attention to the encoder's memory."""
        weights = p["cross_q"], p["cross_k"], p["cross_v"], p["cross_o"]
        return self.multi_head_attention(states, memory, memory, *weights, heads, mask)

    def encoder_layer(self, states: Array, parameters: Parameters, heads: int, mask: Mask = None) -> Array:
        """Return what an encoder layer makes of its states."""
        p = parameters
        middle = self.sublayer(states, "own", lambda x: self.own(x, p, heads, mask), p, 1)
        return self.sublayer(middle, "inner", lambda x: self.inner(x, p), p, 2)

    def past(self, length: int) -> Array:
        """Return what each step may see of its own sequence: (T, T)."""
        return np.tril(np.ones((length, length), bool))

    def crossing(self, mask: Mask, length: int) -> Mask:
        """Return what the decoder's steps may see of the memory."""
        return mask

    def decoder_layer(
        self, states: Array, memory: Array, parameters: Parameters, heads: int, memory_mask: Mask = None
    ) -> Array:
        """Return what a decoder layer makes of its states."""
        p, length = parameters, states.shape[1]
        causal = np.broadcast_to(self.past(length), (len(states), length, length))
        seen = self.crossing(memory_mask, length)
        first = self.sublayer(states, "own", lambda x: self.own(x, p, heads, causal), p, 1)
        second = self.sublayer(first, "cross", lambda x: self.cross(x, memory, p, heads, seen), p, 2)
        return self.sublayer(second, "inner", lambda x: self.inner(x, p), p, 3)


class WholeModel(Layers):
    """The whole model of figure 1."""

    def scaled(self, vectors: Array, side: str) -> Array:
        """Return embeddings times √D; `side` is source or target."""
        return vectors * np.sqrt(vectors.shape[-1])

    def embed(self, tokens: Array, table: Array, side: str) -> Array:
        """Return embeddings with positions; `side` is source or target."""
        vectors = self.scaled(table[tokens], side)
        return vectors + self.placed(vectors, vectors.shape[-1])

    def seen(self, source: Array) -> Mask:
        """Return what the encoder may attend to: (B, Ts, Ts)."""
        return np.broadcast_to((source != PADDING)[:, None], (len(source), source.shape[1], source.shape[1]))

    def seen_by_target(self, source: Array, target: Array) -> Mask:
        """Return what the decoder may attend to of the source: (B, Tt, Ts)."""
        return np.broadcast_to((source != PADDING)[:, None], (len(source), target.shape[1], source.shape[1]))

    def layer(self, parameters: Parameters, side: str, which: int) -> Parameters:
        """Return the parameters of one layer."""
        prefix = f"{side}.{which}."
        return {name[len(prefix) :]: value for name, value in parameters.items() if name.startswith(prefix)}

    def encode(self, source: Array, parameters: Parameters, heads: int, layers: int) -> list[Array]:
        """Return what each encoder layer gave, the embedding first."""
        states = [self.embed(source, parameters["source"], "source")]
        for each in range(layers):
            p = self.layer(parameters, "encoder", each)
            states.append(self.encoder_layer(states[-1], p, heads, self.seen(source)))
        return states

    def memory(self, states: list[Array], which: int) -> Array:
        """Return what decoder layer `which` attends to, of all that the encoder's layers gave."""
        return states[-1]

    def entering(self, target: Array) -> Array:
        """Return the tokens that enter the decoder."""
        return target

    def logits(self, states: Array, parameters: Parameters) -> Array:
        """Return logits of the decoder's states."""
        return states @ parameters["w_out"] + parameters["b_out"]

    def transformer(self, source: Array, target: Array, parameters: Parameters, heads: int, layers: int) -> Array:
        """Return logits (B, Tt, V)."""
        encoded = self.encode(source, parameters, heads, layers)
        states = self.embed(self.entering(target), parameters["target"], "target")
        for each in range(layers):
            p, seen = self.layer(parameters, "decoder", each), self.seen_by_target(source, target)
            states = self.decoder_layer(states, self.memory(encoded, each), p, heads, seen)
        return self.logits(states, parameters)
