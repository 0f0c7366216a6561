"""Scores, weights and contexts, one number after the other (Vaswani et al. 2017, equation 1).

Rows and matrices are lists; functions that end in `s` of a batch take and give arrays.
Letters: B batch, Tq and Tk times of queries and keys, D width.
"""

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Row = list[float]
Matrix = list[list[float]]


def dot(left: Row, right: Row) -> float:
    """Return the sum of the products, number by number."""
    total = 0.0
    for one, other in zip(left, right, strict=True):
        total += one * other
    return total


def times(left: Matrix, right: Matrix) -> Matrix:
    """Return the matrix product."""
    columns = [[row[place] for row in right] for place in range(len(right[0]))]
    return [[dot(row, column) for column in columns] for row in left]


def shares(scores: Row, allowed: list[bool] | None = None) -> Row:
    """Return the softmax of one row over what is allowed; zeros where nothing is."""
    seen = [place for place in range(len(scores)) if allowed is None or allowed[place]]
    weights = [0.0] * len(scores)
    if not seen:
        return weights
    top = max(scores[place] for place in seen)
    total = sum(math.exp(scores[place] - top) for place in seen)
    for place in seen:
        weights[place] = math.exp(scores[place] - top) / total
    return weights


def scores_of(queries: Matrix, keys: Matrix) -> Matrix:
    """Return `q · k / √D` of every query and key."""
    return [[dot(query, key) / math.sqrt(len(query)) for key in keys] for query in queries]


def weights_of(scores: Matrix, mask: list[list[bool]] | None) -> Matrix:
    """Return each row's softmax over what its mask allows."""
    return [shares(row, None if mask is None else mask[place]) for place, row in enumerate(scores)]


def mixed(weights: Row, values: Matrix) -> Row:
    """Return the sum of the values, each times its weight."""
    context = [0.0] * len(values[0])
    for weight, value in zip(weights, values, strict=True):
        for place, number in enumerate(value):
            context[place] += weight * number
    return context


def attend(queries: Matrix, keys: Matrix, values: Matrix, mask: Any = None) -> tuple[Matrix, Matrix]:
    """Return contexts and weights of one element of a batch."""
    weights = weights_of(scores_of(queries, keys), mask)
    return [mixed(row, values) for row in weights], weights


def score(query: Array, key: Array) -> Array:
    """Return the scores (B, Tq, Tk) of queries (B, Tq, D) and keys (B, Tk, D)."""
    return np.array([scores_of(query[row].tolist(), key[row].tolist()) for row in range(len(query))])


def masked_softmax(scores: Array, mask: Array) -> Array:
    """Return the weights (B, Tq, Tk) of scores and mask of that shape."""
    return np.array([weights_of(scores[row].tolist(), mask[row].tolist()) for row in range(len(scores))])


def attention(query: Array, key: Array, value: Array, mask: Array | None = None) -> tuple[Array, Array]:
    """Return contexts (B, Tq, Dv) and weights (B, Tq, Tk)."""
    contexts, weights = [], []
    for row in range(len(query)):
        allowed = None if mask is None else mask[row].tolist()
        context, weight = attend(query[row].tolist(), key[row].tolist(), value[row].tolist(), allowed)
        contexts.append(context)
        weights.append(weight)
    return np.array(contexts), np.array(weights)


def sinusoidal_positions(length: int, width: int) -> Array:
    """Return the waves (T, D) of section 3.5: sine at even dimensions 2i, cosine at the odd ones after them."""
    waves = np.zeros((length, width))
    for position in range(length):
        for dimension in range(width):
            pair = dimension // 2
            angle = position / 10_000 ** (2 * pair / width)
            waves[position, dimension] = math.sin(angle) if dimension % 2 == 0 else math.cos(angle)
    return waves


def concatenate_positions(states: Array, width: int) -> Array:
    """Return states (B, T, D) with waves of `width` behind each: (B, T, D + width)."""
    waves = sinusoidal_positions(states.shape[1], width).tolist()
    return np.array([[row + wave for row, wave in zip(each, waves, strict=True)] for each in states.tolist()])
