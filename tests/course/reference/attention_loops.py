"""Scores, attention weights, contexts and positions as plain loops (Vaswani et al. 2017, equation 1).

Functions on rows and matrices take lists of numbers. The functions of the exercises take arrays with a batch
dimension. Shapes: B is the batch size, Tq and Tk are the numbers of queries and keys, D is the width.
"""

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Row = list[float]
Matrix = list[list[float]]


def dot(left: Row, right: Row) -> float:
    """Return the dot product of two rows."""
    total = 0.0
    for a, b in zip(left, right, strict=True):
        total += a * b
    return total


def matmul(left: Matrix, right: Matrix) -> Matrix:
    """Return the matrix product."""
    columns = [[row[column] for row in right] for column in range(len(right[0]))]
    return [[dot(row, column) for column in columns] for row in left]


def softmax_row(scores: Row, allowed: list[bool] | None = None) -> Row:
    """Return the softmax of one row over its allowed keys. If no key is allowed, all weights are 0.

    >>> softmax_row([0.0, 0.0, 5.0], [True, True, False])
    [0.5, 0.5, 0.0]
    """
    keys = [key for key in range(len(scores)) if allowed is None or allowed[key]]
    weights = [0.0] * len(scores)
    if not keys:
        return weights
    top = max(scores[key] for key in keys)  # exp overflows above 709; the softmax is the same without the maximum
    total = sum(math.exp(scores[key] - top) for key in keys)
    for key in keys:
        weights[key] = math.exp(scores[key] - top) / total
    return weights


def score_matrix(queries: Matrix, keys: Matrix) -> Matrix:
    """Return `q · k / √D` for every query and key."""
    return [[dot(query, key) / math.sqrt(len(query)) for key in keys] for query in queries]


def softmax_matrix(scores: Matrix, mask: list[list[bool]] | None) -> Matrix:
    """Return the masked softmax of each row."""
    return [softmax_row(row, None if mask is None else mask[query]) for query, row in enumerate(scores)]


def weighted_sum(weights: Row, values: Matrix) -> Row:
    """Return the sum of the values, each multiplied by its weight."""
    context = [0.0] * len(values[0])
    for weight, value in zip(weights, values, strict=True):
        for dimension, number in enumerate(value):
            context[dimension] += weight * number
    return context


def attend(queries: Matrix, keys: Matrix, values: Matrix, mask: Any = None) -> tuple[Matrix, Matrix]:
    """Return contexts and weights of one element of a batch."""
    weights = softmax_matrix(score_matrix(queries, keys), mask)
    return [weighted_sum(row, values) for row in weights], weights


def score(query: Array, key: Array) -> Array:
    """Return Q Kᵀ / √D.

    query (B, Tq, D), key (B, Tk, D); returns (B, Tq, Tk).
    B is the batch size, Tq and Tk are the numbers of queries and keys, D is the width.
    """
    return np.array([score_matrix(query[row].tolist(), key[row].tolist()) for row in range(len(query))])


def masked_softmax(scores: Array, mask: Array) -> Array:
    """Return the softmax of each row over the keys that its mask allows.

    scores (B, Tq, Tk); mask (B, Tq, Tk), True = may attend; returns weights (B, Tq, Tk).
    A row in which no key is allowed has zero weights. Scores may be as large as 5000.
    """
    return np.array([softmax_matrix(scores[row].tolist(), mask[row].tolist()) for row in range(len(scores))])


def attention(query: Array, key: Array, value: Array, mask: Array | None = None) -> tuple[Array, Array]:
    """Return context = softmax(Q Kᵀ / √D) V, and the weights.

    query (B, Tq, D), key (B, Tk, D), value (B, Tk, Dv); mask (B, Tq, Tk), True = may attend.
    Returns context (B, Tq, Dv), weights (B, Tq, Tk). A row in which no key is allowed has zero weights.
    """
    contexts, weights = [], []
    for row in range(len(query)):
        allowed = None if mask is None else mask[row].tolist()
        context, weight = attend(query[row].tolist(), key[row].tolist(), value[row].tolist(), allowed)
        contexts.append(context)
        weights.append(weight)
    return np.array(contexts), np.array(weights)


def sinusoidal_positions(length: int, width: int) -> Array:
    """Return PE(pos, 2i) = sin(pos / 10000^(2i/width)), PE(pos, 2i+1) = cos(pos / 10000^(2i/width)).

    length: number of positions, counted from 0; width: an even number. Returns (length, width).
    """
    waves = np.zeros((length, width))
    for position in range(length):
        for dimension in range(width):
            pair = dimension // 2
            angle = position / 10_000 ** (2 * pair / width)
            waves[position, dimension] = math.sin(angle) if dimension % 2 == 0 else math.cos(angle)
    return waves
