"""The correct solution to the exercises on attention, positions and the Transformer, in replaceable steps.

The steps are methods, so that a mistake can replace one of them. A method that answers an exercise has the
signature and the docstring of the exercise's stub. A test compares its answers with plain loops. Loops would be
too slow here, because a diagnosis runs up to 44,000 sets of mistakes: an input of the decoder layer takes 1.9 ms
in loops and 0.19 ms in steps. The layers of Regard need PyTorch, which a check of NumPy code does not load.
Shapes: B is the batch size, T the number of steps (Tq queries, Tk keys), D the width, H the number of heads, and
V the vocabulary size. Arrays are NumPy's, float64.
"""

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Parameters = dict[str, Array]
Mask = Array | None
Three = tuple[Array, Array, Array]  # query, key and value
PADDING = 0


class AttentionSolution:
    """Scores, weights and contexts, for one head or several."""

    def dot_products(self, query: Array, key: Array) -> Array:
        """Return `Q Kᵀ` over the last two dimensions."""
        return np.einsum("...id,...jd->...ij", query, key)

    def scale(self, query: Array, key: Array, heads: int) -> float:
        """Return the divisor of the scores."""
        return float(np.sqrt(query.shape[-1]))

    def score(self, query: Array, key: Array) -> Array:
        """Return Q Kᵀ / √D: the dot product of each query with each key, divided by the root of the width.

        query (B, Tq, D), key (B, Tk, D); returns (B, Tq, Tk): B examples with Tq queries, Tk keys and width D. Kᵀ
        swaps the last two dimensions. The query [[[0, 3]]] and keys [[[3, 0], [0, 3]]] give [[[0, 9]]] / √2.
        """
        return self.scaled_products(query, key, heads=1)

    def scaled_products(self, query: Array, key: Array, heads: int) -> Array:
        """Return scores (..., Tq, Tk)."""
        return self.dot_products(query, key) / self.scale(query, key, heads)

    def apply_mask(self, scores: Array, mask: Array) -> Array:
        """Return the scores with -inf where the mask is False."""
        return np.where(mask, scores, -np.inf)

    def softmax(self, scores: Array) -> Array:
        """Return the softmax over the keys."""
        return self.softmax_over(scores, -1)

    def softmax_over(self, scores: Array, axis: int | tuple[int, ...]) -> Array:
        """Return the softmax over one or several dimensions."""
        powers = np.exp(scores - scores.max(axis, keepdims=True))
        return np.asarray(powers / powers.sum(axis, keepdims=True))

    def zero_masked_rows(self, weights: Array, masked: Array) -> Array:
        """Replace NaN by 0 in fully masked rows, where the softmax is 0 / 0."""
        return np.where(np.isneginf(masked) & np.isnan(weights), 0.0, weights)

    def masked_softmax(self, scores: Array, mask: Mask) -> Array:
        """Return the softmax of each row over the keys that its mask allows.

        scores (B, Tq, Tk); mask (B, Tq, Tk), True = may attend; returns weights (B, Tq, Tk).
        A row in which no key is allowed has zero weights. Scores may be as large as 5000,
        those of hidden keys a million.
        """
        if mask is None:
            return self.softmax(scores)
        masked = self.apply_mask(scores, mask)
        return self.zero_masked_rows(self.softmax(masked), masked)

    def context(self, weights: Array, value: Array) -> Array:
        """Return the weighted sum of the values."""
        return weights @ value

    def attend(self, query: Array, key: Array, value: Array, mask: Mask, heads: int = 1) -> tuple[Array, Array]:
        """Return contexts and weights."""
        weights = self.masked_softmax(self.scaled_products(query, key, heads), mask)
        return self.context(weights, value), weights

    def attention(self, query: Array, key: Array, value: Array, mask: Mask = None) -> tuple[Array, ...]:
        """Return context = softmax(Q Kᵀ / √D) V and the weights: exercise 1 (score), exercise 2 (masked_softmax).

        query (B, Tq, D), key (B, Tk, D), value (B, Tk, Dv); mask (B, Tq, Tk), True = may attend; None: all may.
        Returns context (B, Tq, Dv), weights (B, Tq, Tk). A row in which no key is allowed has zero weights.
        """
        return self.attend(query, key, value, mask)


class PositionSolution:
    """Sinusoidal positions."""

    base = 10_000.0
    first_index = 0
    """Number from which dimensions or pairs are counted."""

    def positions(self, length: int) -> Array:
        """Return the position numbers."""
        return np.arange(length)

    def frequencies(self, width: int) -> Array:
        """Return the angle per step of each pair of dimensions."""
        return self.base ** -(2 * self.indices((width + 1) // 2) / width)

    def indices(self, count: int) -> Array:
        """Return the numbers of dimensions or of pairs."""
        return np.arange(self.first_index, self.first_index + count)

    def interleave(self, sines: Array, cosines: Array) -> Array:
        """Return positions (T, D) of sines and cosines (T, D / 2)."""
        return np.stack([sines, cosines], -1).reshape(len(sines), -1)

    def sinusoidal_positions(self, length: int, width: int) -> Array:
        """Return PE(pos, 2i) = sin(pos / 10000^(2i/width)), PE(pos, 2i+1) = cos(pos / 10000^(2i/width)).

        length: number of positions, counted from 0; width: an even number. Returns (length, width).
        """
        angles = self.positions(length)[:, None] * self.frequencies(width)
        return self.interleave(np.sin(angles), np.cos(angles))[:, :width]

    def position_vectors(self, states: Array, width: int) -> Array:
        """Return the positions for states (B, T, D), equal for all batch elements."""
        waves = self.sinusoidal_positions(states.shape[1], width)
        return np.broadcast_to(waves, (len(states), *waves.shape))

    def concatenate_positions(self, states: Array, width: int) -> Array:
        """Return the states, each followed by the sinusoidal position vector of the given width.

        states (B, T, D); returns (B, T, D + width). The position vectors are exercise 4 (sinusoidal_positions).
        """
        return np.concatenate([states, self.position_vectors(states, width)], -1)


class LayerSolution(AttentionSolution, PositionSolution):
    """Multi-head attention, feed-forward network, encoder and decoder layers."""

    epsilon = 1e-5
    norm_axes: tuple[int, ...] = (-1,)  # dimensions of the mean and the variance of a layer norm

    def project(self, states: Array, weight: Array) -> Array:
        """Return `x W`."""
        return states @ weight

    def project_inputs(self, inputs: Three, weights: Three) -> list[Array]:
        """Return queries, keys and values."""
        return [self.project(states, weight) for states, weight in zip(inputs, weights, strict=True)]

    def split(self, states: Array, heads: int) -> Array:
        """Split states (B, T, D) into heads (B, H, T, D / H)."""
        return states.reshape(*states.shape[:2], heads, -1).transpose(0, 2, 1, 3)

    def join(self, states: Array) -> Array:
        """Join heads (B, H, T, D / H) to states (B, T, D)."""
        return states.transpose(0, 2, 1, 3).reshape(len(states), states.shape[2], -1)

    def head_mask(self, mask: Mask, heads: int) -> Mask:
        """Return the mask for all heads, (B, 1, Tq, Tk)."""
        return None if mask is None else mask[:, None]

    def project_output(self, joined: Array, w_o: Array) -> Array:
        """Return the output of the joined heads."""
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
        """Return Concat(head_1, ..., head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

        query (B, Tq, D), key and value (B, Tk, D); w_q, w_k, w_v, w_o (D, D), applied as x @ w;
        mask (B, Tq, Tk), True = may attend. Head i has the columns i D/h to (i + 1) D/h. Returns (B, Tq, D).
        A row in which no key is allowed has zero weights. Attention is exercise 3 (attention), for each head.

        Or as a module with its own weights, which the checker sets: class MultiHeadAttention(nn.Module):
        __init__(self, width, heads), forward(self, query, key, value, mask=None)
        """
        projected = self.project_inputs((query, key, value), (w_q, w_k, w_v))
        q, k, v = (self.split(states, heads) for states in projected)
        context, _ = self.attend(q, k, v, self.head_mask(mask, heads), heads)
        return self.project_output(self.join(context), w_o)

    def activation(self, hidden: Array) -> Array:
        """Return the ReLU."""
        return np.maximum(hidden, 0)

    def feed_forward(self, states: Array, w_1: Array, b_1: Array, w_2: Array, b_2: Array) -> Array:
        """Return max(0, x W_1 + b_1) W_2 + b_2. The function max(0, z) is the ReLU.

        states (B, T, D); w_1 (D, F), b_1 (F,), w_2 (F, D), b_2 (D,). Returns (B, T, D).

        Or as a module: class FeedForward(nn.Module): __init__(self, width, inner), forward(self, states)
        """
        return self.activation(states @ w_1 + b_1) @ w_2 + b_2

    def standard_deviation(self, states: Array) -> Array:
        """Return the divisor of a layer norm."""
        return np.sqrt(states.var(self.norm_axes, keepdims=True) + self.epsilon)

    def normalize(self, states: Array, gain: Array, shift: Array) -> Array:
        """Return the normalized states."""
        centered = states - states.mean(self.norm_axes, keepdims=True)
        return centered / self.standard_deviation(states) * gain + shift

    def residual(self, states: Array, kind: str, norm: int) -> Array:
        """Return what is added to the output of a sublayer; `kind` and `norm` as in `sublayer`."""
        return states

    def sublayer(self, states: Array, kind: str, function: Any, p: Parameters, norm: int) -> Array:
        """Return `LayerNorm(x + Sublayer(x))`; `kind` is self_attention, cross_attention or feed_forward."""
        x = self.residual(states, kind, norm) + function(states)
        return self.normalize(x, p[f"gain_{norm}"], p[f"shift_{norm}"])

    def apply_feed_forward(self, states: Array, p: Parameters) -> Array:
        """Return the feed-forward network of a layer."""
        return self.feed_forward(states, p["w_1"], p["b_1"], p["w_2"], p["b_2"])

    def self_attention(self, states: Array, p: Parameters, heads: int, mask: Mask) -> Array:
        """Return the self-attention of a layer."""
        weights = p["w_q"], p["w_k"], p["w_v"], p["w_o"]
        return self.multi_head_attention(states, states, states, *weights, heads, mask)

    def cross_attention(self, states: Array, memory: Array, p: Parameters, heads: int, mask: Mask) -> Array:
        """Return the attention to the encoder's memory."""
        weights = p["cross_q"], p["cross_k"], p["cross_v"], p["cross_o"]
        return self.multi_head_attention(states, memory, memory, *weights, heads, mask)

    def encoder_layer(self, states: Array, parameters: Parameters, heads: int, mask: Mask = None) -> Array:
        """Return LayerNorm(x + Sublayer(x)) of self-attention, and then of the feed-forward network.

        states (B, T, D); mask (B, T, T), True = may attend. Returns (B, T, D).
        parameters: a dictionary with w_q, w_k, w_v, w_o (D, D); w_1 (D, F), b_1, w_2 (F, D), b_2; and gain_1,
        shift_1, gain_2, shift_2 (D,) of the two layer norms, which divide by √(variance + 1e-5).
        Copy exercise 6 (multi_head_attention) and exercise 7 (feed_forward, with its ReLU) into this file.

        Or as a module: class EncoderLayer(nn.Module): __init__(self, width, heads, inner),
        forward(self, states, mask=None)
        """
        p = parameters
        middle = self.sublayer(states, "self_attention", lambda x: self.self_attention(x, p, heads, mask), p, 1)
        return self.sublayer(middle, "feed_forward", lambda x: self.apply_feed_forward(x, p), p, 2)

    def causal_mask(self, length: int) -> Array:
        """Return the mask (T, T) that hides later steps."""
        return np.tril(np.ones((length, length), bool))

    def cross_mask(self, mask: Mask, length: int) -> Mask:
        """Return the mask of the attention to the memory."""
        return mask

    def decoder_layer(
        self, states: Array, memory: Array, parameters: Parameters, heads: int, memory_mask: Mask = None
    ) -> Array:
        """Return LayerNorm(x + Sublayer(x)) of self-attention, then of attention to the memory, then of the
        feed-forward network.

        states (B, T, D), which may not attend to later states; memory (B, Ts, D); memory_mask (B, T, Ts), True =
        may attend. Returns (B, T, D). parameters: those of the encoder layer, and cross_q, cross_k, cross_v,
        cross_o (D, D), gain_3, shift_3 (D,). Needs exercise 6 (multi_head_attention), exercise 8 (encoder_layer).

        Or as a module: class DecoderLayer(nn.Module): __init__(self, width, heads, inner),
        forward(self, states, memory, memory_mask=None)
        """
        p, causal = parameters, self.causal_mask(states.shape[1])[None]
        mask = self.cross_mask(memory_mask, states.shape[1])
        x = self.sublayer(states, "self_attention", lambda x: self.self_attention(x, p, heads, causal), p, 1)
        x = self.sublayer(x, "cross_attention", lambda x: self.cross_attention(x, memory, p, heads, mask), p, 2)
        return self.sublayer(x, "feed_forward", lambda x: self.apply_feed_forward(x, p), p, 3)


class TransformerSolution(LayerSolution):
    """The whole model of figure 1."""

    def scale_embeddings(self, vectors: Array, side: str) -> Array:
        """Return embeddings times √D; `side` is source or target."""
        return vectors * np.sqrt(vectors.shape[-1])

    def embed(self, tokens: Array, table: Array, side: str) -> Array:
        """Return embeddings with positions; `side` is source or target."""
        vectors = self.scale_embeddings(table[tokens], side)
        return vectors + self.added_positions(vectors, side)

    def added_positions(self, vectors: Array, side: str) -> Array:
        """Return the positions that are added to embeddings."""
        return self.position_vectors(vectors, vectors.shape[-1])

    def encoder_mask(self, source: Array) -> Mask:
        """Return the mask of the encoder, (B, Ts, Ts)."""
        return np.broadcast_to((source != PADDING)[:, None], (len(source), source.shape[1], source.shape[1]))

    def source_mask(self, source: Array, target: Array) -> Mask:
        """Return the mask of the decoder's attention to the source, (B, Tt, Ts)."""
        return np.broadcast_to((source != PADDING)[:, None], (len(source), target.shape[1], source.shape[1]))

    def layer_parameters(self, parameters: Parameters, side: str, layer: int) -> Parameters:
        """Return the parameters of one layer."""
        prefix = f"{side}.{layer}."
        return {name[len(prefix) :]: value for name, value in parameters.items() if name.startswith(prefix)}

    def encode(self, source: Array, parameters: Parameters, heads: int, layers: int) -> list[Array]:
        """Return the embeddings and the output of each encoder layer."""
        states = [self.embed(source, parameters["source"], "source")]
        for layer in range(layers):
            p = self.layer_parameters(parameters, "encoder", layer)
            states.append(self.encoder_layer(states[-1], p, heads, self.encoder_mask(source)))
        return states

    def memory_for_layer(self, states: list[Array], layer: int) -> Array:
        """Return the memory of a decoder layer; `states` is the result of `encode`."""
        return states[-1]

    def decoder_input(self, target: Array) -> Array:
        """Return the input tokens of the decoder."""
        return target

    def logits(self, states: Array, parameters: Parameters) -> Array:
        """Return the logits of the decoder's states."""
        return states @ parameters["w_out"] + parameters["b_out"]

    def transformer(self, source: Array, target: Array, parameters: Parameters, heads: int, layers: int) -> Array:
        """Return logits (B, Tt, V) of the next token after each step of the target.

        source (B, Ts) and target (B, Tt): token numbers, padded with 0 at the end; the target is already shifted.
        Embeddings times √D plus exercise 4 (sinusoidal_positions); layers of exercise 8 (encoder_layer) and
        exercise 9 (decoder_layer), which do not attend to the source's padding; one linear layer. Logits of
        padding are not compared. parameters: source (Vs, D) and target (V, D), the embeddings; encoder.0.w_q,
        decoder.0.cross_q and so on as there; w_out (D, V), b_out (V,), not shared with the embeddings.

        Or as a module: class Transformer(nn.Module):
        __init__(self, source_size, target_size, width, heads, inner, layers), forward(self, source, target)
        """
        encoded = self.encode(source, parameters, heads, layers)
        states = self.embed(self.decoder_input(target), parameters["target"], "target")
        for layer in range(layers):
            p, mask = self.layer_parameters(parameters, "decoder", layer), self.source_mask(source, target)
            states = self.decoder_layer(states, self.memory_for_layer(encoded, layer), p, heads, mask)
        return self.logits(states, parameters)
