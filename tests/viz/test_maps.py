"""Content of attention maps, and saving them."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard import record
from regard.viz.maps import LayerMap, merge_words
from regard.viz.page import map_data
from tests.viz.test_terminal import example


def test_map_contains_the_models_weights_prediction_and_labels(trained: regard.AnswerRun) -> None:
    text = "BCCCBAABACCCA"
    attention = trained.attend(text)
    inputs = trained.task.parse(text)
    with record(trained.model) as records:
        logits = trained.model(inputs)
    assert set(attention.layers) == set(records) == {"encoder.0.self_attention", "cross"}
    for name, layer in attention.layers.items():
        np.testing.assert_array_equal(layer.weights, records[name].weights[0].numpy())
    assert attention.prediction == logits[0].argmax(-1).tolist()
    assert attention.truth == [2, 4, 4]
    assert attention.input == text
    assert attention.cross.key_labels == list(text)
    assert attention.cross.query_labels == ["count B", "count C (1st)", "count C (2nd)"]
    assert attention.cross.relevant is not None
    assert np.flatnonzero(attention.cross.relevant[0]).tolist() == [0, 4, 7]
    assert attention.layers["encoder.0.self_attention"].query_labels == list(text)
    positions = trained.model.learned_positions
    assert positions is not None and attention.position_norms is not None
    torch.testing.assert_close(torch.tensor(attention.position_norms), positions.norm(dim=1))


def test_output_self_attention_and_rest(tmp_path: Path) -> None:
    run = regard.train("difference", self_att=True, vary_len=True, steps=2, savepath=tmp_path, progress=False)
    attention = run.attend("A_B")
    assert attention.cross.key_labels == ["A", "␣", "B", "rest"]
    assert attention.cross.relevant is not None
    assert attention.cross.relevant.tolist() == [
        [True, False, False, False],
        [False, False, True, False],
        [False, False, False, False],
        [True, False, True, False],
    ]
    assert attention.layers["self_attention"].key_labels == ["count A", "count B", "count C", "|A - B|"]
    assert attention.position_norms is None


@pytest.mark.parametrize(
    ("name", "start"),
    [("map.png", b"\x89PNG\r\n"), ("map.svg", b"<?xml"), ("map.PDF", b"%PDF"), ("map.html", b"<!doctype html>")],
)
def test_extension_selects_the_format_and_files_are_reproducible(
    trained: regard.AnswerRun, tmp_path: Path, name: str, start: bytes
) -> None:
    attention = trained.attend("BCCCBAABACCCA")
    file = attention.save(tmp_path / name)
    content = file.read_bytes()
    assert content.startswith(start)
    assert b"not drawn" not in content and len(content) > 2000
    if name != "map.svg":  # an SVG contains its date
        assert attention.save(file).read_bytes() == content


def test_display_in_notebooks_and_print(trained: regard.AnswerRun) -> None:
    attention = trained.attend("BCCCBAABACCCA")
    assert attention._repr_png_().startswith(b"\x89PNG")
    assert "Output step 2 (count C (2nd))" in str(attention)


def _layer(name: str, weights: "np.ndarray", relevant: "np.ndarray | None" = None) -> LayerMap:
    queries, keys = weights.shape[1:]
    labels = [f"q{step}" for step in range(queries)], [f"k{step}" for step in range(keys)]
    return LayerMap(
        name=name, title=name, weights=weights, query_labels=labels[0], key_labels=labels[1], relevant=relevant
    )


def test_aligned_head() -> None:
    """A head with uniform attention, or with attention to a single input, is not aligned."""
    even, stuck, one_to_one = np.full((5, 5), 0.2), np.zeros((5, 5)), 0.6 * np.eye(5)[::-1] + 0.08
    stuck[:, 4] = 1
    first = _layer("decoder.0.cross", np.stack([even, stuck]))
    second = _layer("decoder.1.cross", np.stack([stuck, one_to_one]))
    own = _layer("decoder.0.self_attention", np.eye(5)[None])
    attention = dataclasses.replace(example(), layers={layer.name: layer for layer in (own, first, second)})
    assert (
        attention.aligned_head is not None
        and attention.aligned_head.layer is second
        and attention.aligned_head.head == 1
    )
    assert map_data(attention)["opens"] == "decoder.1.cross"
    relevant = np.zeros((5, 5), dtype=bool)
    relevant[:, 4] = True
    known = dataclasses.replace(first, relevant=relevant), dataclasses.replace(second, relevant=relevant)
    attention = dataclasses.replace(example(), layers={layer.name: layer for layer in known})
    assert (
        attention.aligned_head is not None
        and attention.aligned_head.layer is known[0]
        and attention.aligned_head.head == 1
    )
    assert map_data(attention)["head"] is None
    chosen = dataclasses.replace(attention, alignment_head=("decoder.1.cross", 0))
    assert chosen.aligned_head is not None and chosen.aligned_head.layer is known[1] and chosen.aligned_head.head == 0
    data = map_data(chosen)
    assert (data["opens"], data["head"]) == ("decoder.1.cross", 0)
    others = chosen.select(heads=[1])  # without the selected head
    assert others.selected_head is None and map_data(others)["head"] is None
    nothing = dataclasses.replace(example(), layers={})
    assert nothing.aligned_head is None and map_data(nothing)["opens"] is None


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
    labels = ["▁", "„", "schn", "ell", "“", ",", "▁sagt", "▁Fuß", "-", "ball", "▁", "�", "私", "は", "</s>"]
    layer = LayerMap(
        name="cross", title="", weights=np.eye(15, dtype=np.float32)[None], query_labels=labels, key_labels=labels
    )
    merged = merge_words(layer)
    assert merged.key_labels == ["„", "schnell", "“", ",", "sagt", "Fuß", "-", "ball", "�", "私", "は", "</s>"]
    np.testing.assert_allclose(merged.weights.sum(-1), 1.0, atol=1e-6)


def test_characters_are_unchanged(translator: regard.PairRun) -> None:
    attention = translator.attend("3. Mai 1979")
    layer, same = attention.cross, attention.words().cross
    assert layer.key_labels == same.key_labels and np.array_equal(layer.weights, same.weights)


def test_a_run_on_text(german: regard.TranslationRun) -> None:
    attention = german.attend("Heute läuft der alte Wolf.").words()
    assert attention.cross.key_labels == ["Heute", "läuft", "der", "alte", "Wolf", ".", "</s>"]
    np.testing.assert_allclose(attention.cross.weights.sum(-1), 1.0, atol=1e-5)


def test_selected_heads_have_the_order_of_the_selection() -> None:
    weights = np.random.default_rng(0).random((3, 5, 5))
    attention = dataclasses.replace(example(), layers={"decoder.0.cross": _layer("decoder.0.cross", weights)})
    selected = attention.select(heads=[2, 0])
    [layer] = selected.layers.values()
    np.testing.assert_array_equal(layer.weights, weights[[2, 0]])
    [data] = map_data(selected)["layers"]
    assert data["names"] == ["head 2", "head 0"]
    np.testing.assert_array_equal(data["weights"], weights[[2, 0]])
