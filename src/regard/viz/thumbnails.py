"""Thumbnails of layers: the maximum of each square of weights, and measures of heads.

A served page contains the whole displayed layer, and thumbnails of the other layers until the reader selects
them. Measures cannot be computed from maxima, so measures are sent, too; `js/measures.js` computes the same
measures from whole layers.
"""

import math

import numpy as np

from regard.viz.maps import CROSS, LayerMap, finite

PIXELS = 64
"""Maximum number of rows and columns of a thumbnail. On most screens, a small picture has fewer pixels per
side."""

SINK = 0.25
"""Mean weight of a column from which it is an attention sink, as in `js/scale.js`."""
FEW = 8
"""In a head of fewer rows or columns, no column is a sink."""

EARLY = 4
"""The first rows of a causal head, a part of 1 / EARLY, have large weights because they have few keys."""


def thumbnail_side(layer: LayerMap) -> int:
    rows, columns = layer.weights.shape[1:]
    return math.ceil(max(int(rows), int(columns)) / PIXELS)


def pool(weights: np.ndarray, side: int) -> np.ndarray:
    """Return the maximum of each square of weights (H, Tq, Tk); the last squares may be smaller. NaN is larger.

    >>> pool(np.eye(3)[None], 2).tolist()
    [[[1.0, 0.0], [0.0, 1.0]]]
    """
    rows, columns = (range(0, length, side) for length in weights.shape[1:])
    maxima: np.ndarray = np.maximum.reduceat(np.maximum.reduceat(weights, rows, axis=1), columns, axis=2)
    return maxima


def head_measures(layer: LayerMap) -> dict[str, list[float]]:
    """Return the measures of each head for the navigator: peak, entropy, distance, and weight on relevant inputs
    if known.

    Peak: the mean over rows of the largest weight outside attention sinks and the own token. Entropy: the mean
    over rows, from 0 (one key) to 1 (uniform). Distance: the mean distance of query and key, in tokens; omitted
    for encoder-decoder attention.
    """
    weights = layer.weights if np.isfinite(layer.weights).all() else finite(layer.weights)
    heads, rows, columns = weights.shape
    measures = {"peak": _peak(weights, layer.kind), "entropy": _entropy(weights)}
    if layer.kind != CROSS:
        steps = abs(np.arange(rows)[:, None] - np.arange(columns)).astype(weights.dtype)
        measures["distance"] = weights.reshape(heads, -1) @ steps.ravel() / max(rows, 1)
    if layer.relevant is not None and layer.relevant.any():
        measures["relevant"] = weights[:, layer.relevant].sum(1) / layer.relevant.any(1).sum()
    return {name: np.round(values.astype(float), 6).tolist() for name, values in measures.items()}


def _peak(weights: np.ndarray, kind: str) -> np.ndarray:
    """Return the mean over the rows of the largest weight outside attention sinks and the row's own token.

    The early rows of a causal head have few keys and do not count.
    """
    _, rows, columns = weights.shape
    few = rows < FEW or columns < FEW
    sinks = np.zeros((len(weights), columns), bool) if few else weights.mean(1) >= SINK
    own = np.eye(rows, columns, dtype=bool) if kind != CROSS else np.zeros((rows, columns), bool)
    largest = np.where(sinks[:, None] | own, 0, weights).max(2, initial=0)
    first = math.ceil(rows / EARLY) if _is_causal(weights) else 0
    means: np.ndarray = largest[:, first:].mean(1)
    return means


def _entropy(weights: np.ndarray) -> np.ndarray:
    """Return the mean entropy of the rows of each head, divided by its largest possible value."""
    _, rows, columns = weights.shape
    positive = np.where(weights > 0, weights, 1)
    sums = -np.einsum("hqk,hqk->hq", positive, np.log(positive))
    seen = (weights > 0).sum(2)
    causal = _is_causal(weights)
    most = np.log(np.arange(rows) + 1 if causal else np.full(rows, columns))
    relative = np.divide(sums, most, out=np.zeros_like(sums), where=(seen > 1) & (most > 0))
    counted = (seen > 1) | (not causal)  # not a step that sees itself alone
    means: np.ndarray = np.minimum(relative.sum(1) / np.maximum(counted.sum(1), 1), 1)
    return means


def _is_causal(weights: np.ndarray) -> bool:
    """Return whether the first step attends only to itself, and the second step only to the first two steps."""
    _, rows, columns = weights.shape
    return bool(rows == columns > 1 and not weights[:, 0, 1:].any() and not weights[:, 1, 2:].any())
