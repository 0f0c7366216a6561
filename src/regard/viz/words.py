"""From attention between pieces of words to attention between words.

A word is given the weight of all its pieces, and gives the mean of what they give (Clark et al. 2019, section
4.1): so every row still sums to 1.
"""

import dataclasses
import unicodedata

import numpy as np

from regard.viz.maps import LayerMap

BLANK = "▁"
"""Begins the label of a word's first piece."""


def merge_words(layer: LayerMap) -> LayerMap:
    """Return a layer between words; labels that hold no `▁` anywhere are taken as words already."""
    queries, keys = _words(layer.query_labels), _words(layer.key_labels)
    weights = _sums(layer.weights, keys, axis=2)
    weights = _sums(weights, queries, axis=1) / np.array([len(word) for word in queries])[:, None]
    relevant = layer.relevant
    if relevant is not None:
        relevant = _sums(_sums(relevant.astype(int), keys, axis=1), queries, axis=0) > 0
    return dataclasses.replace(
        layer,
        weights=weights.astype(layer.weights.dtype),
        query_labels=_labels(layer.query_labels, queries),
        key_labels=_labels(layer.key_labels, keys),
        relevant=relevant,
    )


def word_pieces(labels: list[str]) -> list[list[int]] | None:
    """Return the pieces of each word; None where labels are no pieces of words."""
    return _words(labels) if any(label.startswith(BLANK) for label in labels) else None


def _words(labels: list[str]) -> list[list[int]]:
    """Return the pieces of each word."""
    if not any(label.startswith(BLANK) for label in labels):
        return [[index] for index in range(len(labels))]
    words: list[list[int]] = []
    for index, label in enumerate(labels):
        punctuation = all(unicodedata.category(each)[0] == "P" for each in label.removeprefix(BLANK))
        special = label[:1] + label[-1:] in ("<>", "[]")
        before = labels[index - 1] if index else ""
        # A word goes on after a blank of its own, and not after punctuation or a special symbol.
        alone = before != BLANK and (punctuation or special or not words or _ended(before))
        if label.startswith(BLANK) or alone:
            words.append([])
        words[-1].append(index)
    return words


def _ended(label: str) -> bool:
    return unicodedata.category(label[-1])[0] == "P" and len(label.removeprefix(BLANK)) == 1


def _labels(labels: list[str], words: list[list[int]]) -> list[str]:
    return ["".join(labels[index] for index in word).removeprefix(BLANK) or BLANK for word in words]


def _sums(values: np.ndarray, words: list[list[int]], axis: int) -> np.ndarray:
    return np.stack([values.take(word, axis).sum(axis) for word in words], axis)
