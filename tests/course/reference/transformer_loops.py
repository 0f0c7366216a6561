"""Multi-head attention, layers and the whole Transformer as plain loops (Vaswani et al. 2017, section 3).

The parameters are a flat dictionary. Weight matrices are multiplied from the right, `x W`.
"""

import math
from typing import Any

import numpy as np

from tests.course.reference.attention_loops import Array, Matrix, Row, attend, matmul, sinusoidal_positions

EPSILON = 1e-5
PADDING = 0
Parameters = dict[str, Any]


def to_lists(parameters: Parameters) -> Parameters:
    """Return the parameters as lists instead of arrays."""
    return {name: value.tolist() for name, value in parameters.items()}


def add_bias(states: Matrix, bias: Row) -> Matrix:
    """Return the rows plus a bias."""
    return [[number + b for number, b in zip(row, bias, strict=True)] for row in states]


def attend_heads(queries: Matrix, keys: Matrix, values: Matrix, weights: list[Matrix], heads: int, mask: Any) -> Matrix:
    """Return `Concat(head_1, ..., head_h) W^O` of one batch element. `weights` are W^Q, W^K, W^V and W^O."""
    w_q, w_k, w_v, w_o = weights
    width = len(w_q[0]) // heads
    joined: Matrix = [[] for _ in queries]
    for head in range(heads):
        columns = slice(head * width, (head + 1) * width)
        context, _ = attend(
            matmul(queries, [row[columns] for row in w_q]),
            matmul(keys, [row[columns] for row in w_k]),
            matmul(values, [row[columns] for row in w_v]),
            mask,
        )
        joined = [row + part for row, part in zip(joined, context, strict=True)]
    return matmul(joined, w_o)


def feed_forward_rows(states: Matrix, p: Parameters) -> Matrix:
    """Return `max(0, x W_1 + b_1) W_2 + b_2` for every step of one batch element."""
    hidden = [
        [max(0.0, number + b) for number, b in zip(row, p["b_1"], strict=True)] for row in matmul(states, p["w_1"])
    ]
    return add_bias(matmul(hidden, p["w_2"]), p["b_2"])


def layer_norm(row: Row, gain: Row, shift: Row) -> Row:
    """Return one step, normalized over its width (Ba et al. 2016, equation 4)."""
    mean = sum(row) / len(row)
    variance = sum((number - mean) ** 2 for number in row) / len(row)
    return [
        (number - mean) / math.sqrt(variance + EPSILON) * g + s for number, g, s in zip(row, gain, shift, strict=True)
    ]


def add_and_norm(states: Matrix, update: Matrix, p: Parameters, norm: int) -> Matrix:
    """Return `LayerNorm(x + Sublayer(x))` with the norm of index `number`."""
    gain, shift = p[f"gain_{norm}"], p[f"shift_{norm}"]
    sums = [[a + b for a, b in zip(row, more, strict=True)] for row, more in zip(states, update, strict=True)]
    return [layer_norm(row, gain, shift) for row in sums]


def encode_layer(states: Matrix, p: Parameters, heads: int, mask: Any) -> Matrix:
    """Return the output of one encoder layer for one batch element."""
    weights = [p["w_q"], p["w_k"], p["w_v"], p["w_o"]]
    middle = add_and_norm(states, attend_heads(states, states, states, weights, heads, mask), p, 1)
    return add_and_norm(middle, feed_forward_rows(middle, p), p, 2)


def decode_layer(states: Matrix, memory: Matrix, p: Parameters, heads: int, memory_mask: Any) -> Matrix:
    """Return the output of one decoder layer for one batch element, with a causal mask."""
    causal = [[key <= query for key in range(len(states))] for query in range(len(states))]
    weights = [p["w_q"], p["w_k"], p["w_v"], p["w_o"]]
    cross = [p["cross_q"], p["cross_k"], p["cross_v"], p["cross_o"]]
    first = add_and_norm(states, attend_heads(states, states, states, weights, heads, causal), p, 1)
    second = add_and_norm(first, attend_heads(first, memory, memory, cross, heads, memory_mask), p, 2)
    return add_and_norm(second, feed_forward_rows(second, p), p, 3)


def multi_head_attention(
    query: Array,
    key: Array,
    value: Array,
    w_q: Array,
    w_k: Array,
    w_v: Array,
    w_o: Array,
    heads: int,
    mask: Array | None = None,
) -> Array:
    """Return Concat(head_1, ..., head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    query (B, Tq, D), key and value (B, Tk, D); w_q, w_k, w_v, w_o (D, D), applied as x @ w;
    mask (B, Tq, Tk), True = may attend. Head i has the columns i D/h to (i + 1) D/h. Returns (B, Tq, D).
    A row in which no key is allowed has zero weights.

    Or as a module with its own weights, which the checker sets:
    class MultiHeadAttention(nn.Module): __init__(self, width, heads), forward(self, query, key, value, mask=None)
    """
    weights = [w_q.tolist(), w_k.tolist(), w_v.tolist(), w_o.tolist()]
    masks = [None] * len(query) if mask is None else mask.tolist()
    return np.array(
        [
            attend_heads(q, k, v, weights, heads, allowed)
            for q, k, v, allowed in zip(query.tolist(), key.tolist(), value.tolist(), masks, strict=True)
        ]
    )


def feed_forward(states: Array, w_1: Array, b_1: Array, w_2: Array, b_2: Array) -> Array:
    """Return max(0, x W_1 + b_1) W_2 + b_2.

    states (B, T, D); w_1 (D, F), b_1 (F,), w_2 (F, D), b_2 (D,). Returns (B, T, D).

    Or as a module: class FeedForward(nn.Module): __init__(self, width, inner), forward(self, states)
    """
    p = to_lists({"w_1": w_1, "b_1": b_1, "w_2": w_2, "b_2": b_2})
    return np.array([feed_forward_rows(rows, p) for rows in states.tolist()])


def encoder_layer(states: Array, parameters: Parameters, heads: int, mask: Array | None = None) -> Array:
    """Return LayerNorm(x + Sublayer(x)) of self-attention, and then of the feed-forward network.

    states (B, T, D); mask (B, T, T), True = may attend. Returns (B, T, D).
    parameters: a dictionary with w_q, w_k, w_v, w_o (D, D); w_1 (D, F), b_1, w_2 (F, D), b_2; and gain_1,
    shift_1, gain_2, shift_2 (D,) of the two layer norms, which divide by √(variance + 1e-5).

    Or as a module: class EncoderLayer(nn.Module): __init__(self, width, heads, inner),
    forward(self, states, mask=None)
    """
    p = to_lists(parameters)
    masks = [None] * len(states) if mask is None else mask.tolist()
    return np.array([encode_layer(rows, p, heads, m) for rows, m in zip(states.tolist(), masks, strict=True)])


def decoder_layer(
    states: Array, memory: Array, parameters: Parameters, heads: int, memory_mask: Array | None = None
) -> Array:
    """Return LayerNorm(x + Sublayer(x)) of self-attention, then of attention to the memory, then of the
    feed-forward network.

    states (B, T, D), which may not attend to later states; memory (B, Ts, D); memory_mask (B, T, Ts), True =
    may attend. Returns (B, T, D). parameters: those of the encoder layer, and cross_q, cross_k, cross_v,
    cross_o (D, D), gain_3, shift_3 (D,).

    Or as a module: class DecoderLayer(nn.Module): __init__(self, width, heads, inner),
    forward(self, states, memory, memory_mask=None)
    """
    p = to_lists(parameters)
    masks = [None] * len(states) if memory_mask is None else memory_mask.tolist()
    return np.array(
        [
            decode_layer(rows, keys, p, heads, m)
            for rows, keys, m in zip(states.tolist(), memory.tolist(), masks, strict=True)
        ]
    )


def embed(tokens: list[int], table: Matrix) -> Matrix:
    """Return each token's vector times √D, plus its sinusoidal position (sections 3.4 and 3.5)."""
    width = len(table[0])
    waves = sinusoidal_positions(len(tokens), width).tolist()
    return [
        [number * math.sqrt(width) + wave for number, wave in zip(table[token], waves[position], strict=True)]
        for position, token in enumerate(tokens)
    ]


def transformer(source: Array, target: Array, parameters: Parameters, heads: int, layers: int) -> Array:
    """Return logits (B, Tt, V) of the next token after each step of the target.

    source (B, Ts) and target (B, Tt): token numbers, padded with 0 at the end; the target is already shifted.
    Embeddings times √D plus sinusoidal positions; encoder and decoder layers, which do not attend to the
    source's padding; one linear layer. Logits of padding are not compared. parameters: source (Vs, D) and
    target (V, D), the embeddings; encoder.0.w_q and so on as in the exercises before, decoder.0.cross_q and so
    on; w_out (D, V), b_out (V,), which are not shared with the embeddings.

    Or as a module: class Transformer(nn.Module):
    __init__(self, source_size, target_size, width, heads, inner, layers), forward(self, source, target)
    """
    p = to_lists(parameters)
    logits = []
    for source_tokens, target_tokens in zip(source.tolist(), target.tolist(), strict=True):
        visible = [token != PADDING for token in source_tokens]
        memory = embed(source_tokens, p["source"])
        for layer in range(layers):
            memory = encode_layer(memory, _select(p, f"encoder.{layer}."), heads, [visible] * len(memory))
        states = embed(target_tokens, p["target"])
        for layer in range(layers):
            layer_parameters = _select(p, f"decoder.{layer}.")
            states = decode_layer(states, memory, layer_parameters, heads, [visible] * len(states))
        logits.append(add_bias(matmul(states, p["w_out"]), p["b_out"]))
    return np.array(logits)


def _select(parameters: Parameters, prefix: str) -> Parameters:
    """Return the parameters whose names have this prefix, with the prefix removed."""
    return {name.removeprefix(prefix): value for name, value in parameters.items() if name.startswith(prefix)}
