"""Labels of tokens and answers, word merging, and captions and metadata of figures.

Attention between word pieces becomes attention between words as in Clark et al. 2019, section 4.1: a word
receives the sum of the weights of its pieces and gives the mean of their rows, so every row still sums to 1.
"""

import dataclasses
import unicodedata
from collections.abc import Sequence

import numpy as np

from regard.viz.maps import LayerMap, Map

WORD_START = "▁"  # begins the label of a word's first piece
SHOWN_WORD_START = "␣"  # shown instead of it, because `▁` looks like a bar


def merge_words(layer: LayerMap) -> LayerMap:
    """Merge the word pieces of a layer into words; labels without `▁` are already words."""
    queries, keys = _group_pieces(layer.query_labels), _group_pieces(layer.key_labels)
    weights = _sum_groups(layer.weights, keys, axis=2)
    weights = _sum_groups(weights, queries, axis=1) / np.array([len(word) for word in queries])[:, None]
    relevant = layer.relevant
    if relevant is not None:
        relevant = _sum_groups(_sum_groups(relevant.astype(int), keys, axis=1), queries, axis=0) > 0
    return dataclasses.replace(
        layer,
        weights=weights.astype(layer.weights.dtype),
        query_labels=_join_pieces(layer.query_labels, queries),
        key_labels=_join_pieces(layer.key_labels, keys),
        relevant=relevant,
    )


def word_pieces(labels: list[str]) -> list[list[int]] | None:
    """Return the indices of the pieces of each word; None if the labels are not word pieces.

    >>> word_pieces(["▁un", "seen", "▁word"])
    [[0, 1], [2]]
    """
    return _group_pieces(labels) if any(label.startswith(WORD_START) for label in labels) else None


def _group_pieces(labels: list[str]) -> list[list[int]]:
    if not any(label.startswith(WORD_START) for label in labels):
        return [[index] for index in range(len(labels))]
    words: list[list[int]] = []
    for index, label in enumerate(labels):
        characters = label.removeprefix(WORD_START)
        punctuation = all(_is_punctuation(character) for character in characters)
        special = label[:1] + label[-1:] in ("<>", "[]")
        previous = labels[index - 1] if index else ""
        # A word continues after a separate `▁` piece, but not after punctuation or a special symbol.
        new_word = previous != WORD_START and (punctuation or special or not words or _ends_word(previous))
        if label.startswith(WORD_START) or new_word:
            words.append([])
        words[-1].append(index)
    return words


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] == "P"


def _ends_word(label: str) -> bool:
    return _is_punctuation(label[-1]) and len(label.removeprefix(WORD_START)) == 1


def _join_pieces(labels: list[str], words: list[list[int]]) -> list[str]:
    return ["".join(labels[index] for index in word).removeprefix(WORD_START) or WORD_START for word in words]


def _sum_groups(values: np.ndarray, groups: list[list[int]], axis: int) -> np.ndarray:
    return np.stack([values.take(group, axis).sum(axis) for group in groups], axis)


def shown_label(label: str) -> str:
    """Return the display form of a label, in which `␣` marks the start of a word.

    >>> shown_label("▁word")
    '␣word'
    """
    return label.replace(WORD_START, SHOWN_WORD_START)


def answer_text(answer: list[int] | str | None) -> str:
    """Return the display form of a prediction or truth.

    >>> answer_text([2, 0]), answer_text("two"), answer_text(None)
    ('2 0', "'two'", 'unknown')
    """
    if answer is None:
        return "unknown"
    return repr(answer) if isinstance(answer, str) else " ".join(map(str, answer))


def intervention_lines(attention: Map) -> list[str]:
    """Return caption lines with the interventions, if any, and the prediction without interventions."""
    if not attention.interventions:
        return []
    lines = [f"Interventions: {'; '.join(attention.interventions)}"]
    if attention.original is not None:
        lines.append(f"Prediction without interventions: {answer_text(attention.original.prediction)}")
    return lines


def figure_metadata(attention: Map, layers: Sequence[LayerMap], scale: str) -> dict[str, str]:
    """Return the metadata of a figure of `layers`, by name; `scale`: description of the color scale."""
    heads = {layer.name: ", ".join(map(layer.head_name, range(len(layer.weights)))) for layer in layers}
    metadata = {
        "model": attention.model or attention.task,
        "input": attention.input,
        "layers": "; ".join(f"{name} ({names})" for name, names in heads.items()),
        "interventions": "; ".join(attention.interventions) or "none",
        "scale": scale,
    }
    if attention.prediction is not None:
        metadata["prediction"] = answer_text(attention.prediction)
    if attention.original is not None:
        metadata["prediction without interventions"] = answer_text(attention.original.prediction)
    if attention.truth is not None:
        metadata["truth"] = answer_text(attention.truth)
    if attention.note:
        metadata["note"] = attention.note
    return metadata
