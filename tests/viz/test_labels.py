"""Merging word pieces into words."""

import numpy as np

import regard
from regard.viz.maps import LayerMap, merge_words


def test_a_worked_example() -> None:
    weights = np.array([[[0.1, 0.2, 0.3, 0.4], [0.5, 0.1, 0.2, 0.2], [0.0, 0.0, 0.0, 1.0]]], dtype=np.float32)
    relevant = np.array([[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]], dtype=bool)
    layer = LayerMap(
        name="cross",
        title="",
        weights=weights,
        query_labels=["▁dog", "gy", "</s>"],
        key_labels=["▁Hün", "d", "chen", "."],
        relevant=relevant,
    )
    merged = merge_words(layer)
    assert merged.query_labels == ["doggy", "</s>"] and merged.key_labels == ["Hündchen", "."]
    np.testing.assert_allclose(merged.weights, [[[0.7, 0.3], [0.0, 1.0]]], atol=1e-6)
    assert merged.relevant is not None and merged.relevant.tolist() == [[True, False], [False, True]]


def test_punctuation_hyphens_and_special_symbols() -> None:
    labels = ["▁", "„", "schn", "ell", "“", ",", "▁sagt", "▁Fuß", "-", "ball", "▁", "�", "</s>"]
    layer = LayerMap(
        name="cross", title="", weights=np.eye(13, dtype=np.float32)[None], query_labels=labels, key_labels=labels
    )
    merged = merge_words(layer)
    assert merged.key_labels == ["„", "schnell", "“", ",", "sagt", "Fuß", "-", "ball", "�", "</s>"]
    np.testing.assert_allclose(merged.weights.sum(-1), 1.0, atol=1e-6)


def test_characters_are_unchanged(translator: regard.PairRun) -> None:
    attention = translator.attend("3. Mai 1979")
    layer, same = attention.cross, attention.words().cross
    assert layer.key_labels == same.key_labels and np.array_equal(layer.weights, same.weights)


def test_a_run_on_text(german: regard.TranslationRun) -> None:
    attention = german.attend("Heute läuft der alte Wolf.").words()
    assert attention.cross.key_labels == ["Heute", "läuft", "der", "alte", "Wolf", ".", "</s>"]
    np.testing.assert_allclose(attention.cross.weights.sum(-1), 1.0, atol=1e-5)
