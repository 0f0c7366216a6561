"""Heads, layers and the whole Transformer, one number after the other (Vaswani et al. 2017, section 3).

Parameters are one flat dictionary; a layer's weights multiply from the right, `x W`.
"""

import math
from typing import Any

import numpy as np

from regard.course.reference.attention import Array, Matrix, Row, attend, sinusoidal_positions, times

EPSILON = 1e-5
PADDING = 0
Parameters = dict[str, Any]


def lists(parameters: Parameters) -> Parameters:
    """Return arrays as lists."""
    return {name: value.tolist() for name, value in parameters.items()}


def columns(matrix: Matrix, first: int, last: int) -> Matrix:
    """Return some columns of a matrix."""
    return [row[first:last] for row in matrix]


def heads_of(queries: Matrix, keys: Matrix, weights: list[Matrix], heads: int, mask: Any) -> Matrix:
    """Return `Concat(head_1, ..., head_h) W^O` of one element; `weights` are W^Q, W^K, W^V and W^O."""
    w_q, w_k, w_v, w_o = weights
    width = len(w_q[0]) // heads
    joined: Matrix = [[] for _ in queries]
    for head in range(heads):
        part = head * width, (head + 1) * width
        context, _ = attend(
            times(queries, columns(w_q, *part)),
            times(keys, columns(w_k, *part)),
            times(keys, columns(w_v, *part)),
            mask,
        )
        joined = [row + more for row, more in zip(joined, context, strict=True)]
    return times(joined, w_o)


def inner_of(states: Matrix, p: Parameters) -> Matrix:
    """Return `max(0, x W_1 + b_1) W_2 + b_2` of every step."""
    hidden = [
        [max(0.0, number + b) for number, b in zip(row, p["b_1"], strict=True)] for row in times(states, p["w_1"])
    ]
    return [[number + b for number, b in zip(row, p["b_2"], strict=True)] for row in times(hidden, p["w_2"])]


def normed(row: Row, gain: Row, shift: Row) -> Row:
    """Return one step, normalised over its width (Ba et al. 2016, equation 4)."""
    mean = sum(row) / len(row)
    variance = sum((number - mean) ** 2 for number in row) / len(row)
    return [
        (number - mean) / math.sqrt(variance + EPSILON) * g + s
        for number, g, s in zip(row, gain, shift, strict=True)
    ]


def added(states: Matrix, more: Matrix, p: Parameters, which: int) -> Matrix:
    """Return `LayerNorm(x + Sublayer(x))`, with the layer's norm number `which`."""
    gain, shift = p[f"gain_{which}"], p[f"shift_{which}"]
    sums = [[a + b for a, b in zip(one, other, strict=True)] for one, other in zip(states, more, strict=True)]
    return [normed(row, gain, shift) for row in sums]


def encoded(states: Matrix, p: Parameters, heads: int, mask: Any) -> Matrix:
    """Return what one encoder layer makes of one element's steps."""
    own = [p["w_q"], p["w_k"], p["w_v"], p["w_o"]]
    middle = added(states, heads_of(states, states, own, heads, mask), p, 1)
    return added(middle, inner_of(middle, p), p, 2)


def decoded(states: Matrix, memory: Matrix, p: Parameters, heads: int, memory_mask: Any) -> Matrix:
    """Return what one decoder layer makes of one element's steps, which see no later one."""
    past = [[seen <= step for seen in range(len(states))] for step in range(len(states))]
    own = [p["w_q"], p["w_k"], p["w_v"], p["w_o"]]
    cross = [p["cross_q"], p["cross_k"], p["cross_v"], p["cross_o"]]
    first = added(states, heads_of(states, states, own, heads, past), p, 1)
    second = added(first, heads_of(first, memory, cross, heads, memory_mask), p, 2)
    return added(second, inner_of(second, p), p, 3)


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
    """Return (B, Tq, D) of queries (B, Tq, D), keys and values (B, Tk, D)."""
    width = w_q.shape[1] // heads
    found = []
    for row in range(len(query)):
        joined: Matrix = [[] for _ in range(query.shape[1])]
        for head in range(heads):
            part = head * width, (head + 1) * width
            context, _ = attend(
                times(query[row].tolist(), columns(w_q.tolist(), *part)),
                times(key[row].tolist(), columns(w_k.tolist(), *part)),
                times(value[row].tolist(), columns(w_v.tolist(), *part)),
                None if mask is None else mask[row].tolist(),
            )
            joined = [one + more for one, more in zip(joined, context, strict=True)]
        found.append(times(joined, w_o.tolist()))
    return np.array(found)


def feed_forward(states: Array, w_1: Array, b_1: Array, w_2: Array, b_2: Array) -> Array:
    """Return (B, T, D) of states (B, T, D)."""
    p = lists({"w_1": w_1, "b_1": b_1, "w_2": w_2, "b_2": b_2})
    return np.array([inner_of(row, p) for row in states.tolist()])


def encoder_layer(states: Array, parameters: Parameters, heads: int, mask: Array | None = None) -> Array:
    """Return (B, T, D) of states (B, T, D) and a mask (B, T, T)."""
    p = lists(parameters)
    masks = [None if mask is None else mask[row].tolist() for row in range(len(states))]
    return np.array([encoded(row, p, heads, each) for row, each in zip(states.tolist(), masks, strict=True)])


def decoder_layer(
    states: Array, memory: Array, parameters: Parameters, heads: int, memory_mask: Array | None = None
) -> Array:
    """Return (B, T, D) of states (B, T, D), memory (B, Ts, D) and a mask (B, T, Ts)."""
    p = lists(parameters)
    found = []
    for row in range(len(states)):
        mask = None if memory_mask is None else memory_mask[row].tolist()
        found.append(decoded(states[row].tolist(), memory[row].tolist(), p, heads, mask))
    return np.array(found)


def embedded(tokens: list[int], table: Matrix) -> Matrix:
    """Return each token's vector times √D, plus the wave at its position (sections 3.4 and 3.5)."""
    width = len(table[0])
    waves = sinusoidal_positions(len(tokens), width).tolist()
    return [
        [number * math.sqrt(width) + wave for number, wave in zip(table[token], waves[place], strict=True)]
        for place, token in enumerate(tokens)
    ]


def transformer(source: Array, target: Array, parameters: Parameters, heads: int, layers: int) -> Array:
    """Return logits (B, Tt, V) of source (B, Ts) and target (B, Tt), in which 0 is padding."""
    p = lists(parameters)
    found = []
    for row in range(len(source)):
        words = source[row].tolist()
        seen = [word != PADDING for word in words]
        memory = embedded(words, p["source"])
        for layer in range(layers):
            memory = encoded(memory, _layer(p, f"encoder.{layer}."), heads, [seen] * len(words))
        states = embedded(target[row].tolist(), p["target"])
        for layer in range(layers):
            states = decoded(states, memory, _layer(p, f"decoder.{layer}."), heads, [seen] * len(states))
        logits = times(states, p["w_out"])
        found.append([[number + b for number, b in zip(each, p["b_out"], strict=True)] for each in logits])
    return np.array(found)


def _layer(parameters: Parameters, prefix: str) -> Parameters:
    return {name.removeprefix(prefix): value for name, value in parameters.items() if name.startswith(prefix)}
