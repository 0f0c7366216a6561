"""Measurements of figures for papers: rollout, entropy, induction, principal components, labels of layers."""

import dataclasses

import numpy as np
import pytest

import regard
from regard.errors import InputError
from regard.interpret.attribution.attention import map_rollout, rollout
from regard.interpret.figures import head_rows, principal_components, row_entropy
from regard.interpret.roles import induction_keys
from regard.viz.heatmaps import layer_labels
from regard.viz.maps import LayerMap


def test_rollout_by_hand() -> None:
    first = np.array([[[1.0, 0.0], [0.5, 0.5]]])
    second = np.array([[[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]])
    one, two = rollout([first, second])
    np.testing.assert_allclose(one, np.array([[1, 0], [0.25, 0.75]]))
    # The mean over the heads of the second layer is 0.5 everywhere, and the residual connection passes on half
    # of each state.
    np.testing.assert_allclose(two, np.array([[0.75, 0.25], [0.25, 0.75]]) @ one)
    np.testing.assert_allclose(two.sum(1), 1)


def test_rollout_of_a_run_passes_through_the_encoder(german: regard.TranslationRun) -> None:
    attention = german.attend("der Hund sieht den Mann")
    products = map_rollout(attention)
    assert list(products) == [name for name in attention.layers if name.endswith("cross")]
    encoder = rollout([attention.layers[f"encoder.{layer}.self_attention"].weights for layer in range(2)])[-1]
    for name, (layer, product) in products.items():
        np.testing.assert_allclose(product, attention.layers[name].weights.mean(0) @ encoder, atol=1e-6)
        np.testing.assert_allclose(product.sum(1), 1, atol=1e-5)
        assert layer.name == name


def test_rollout_needs_layers_that_build_on_each_other(trained: regard.AnswerRun) -> None:
    attention = trained.attend("BCCCBAABACCCA")
    with pytest.raises(InputError, match="rollout needs two or more layers"):
        map_rollout(attention.select(layers=["cross"]))


def test_entropy() -> None:
    weights = np.array([[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]], [[0.5, 0.25, 0.25], [0.0, 0.0, 0.0]]])
    values, uniform = row_entropy(weights)
    # Head 0: entropies 0 and ln 2. Head 1: 1.5 ln 2, and a row without weights, whose entropy is 0.
    np.testing.assert_allclose(values, np.log(2) * np.array([0.5, 0.75]))
    assert uniform == pytest.approx((np.log(3) + np.log(2)) / 2)
    even, bound = row_entropy(np.full((2, 4, 8), 1 / 8))
    np.testing.assert_allclose(even, bound)


def test_entropy_leaves_out_queries_without_keys() -> None:
    values, uniform = row_entropy(np.array([[[0.5, 0.5], [0.0, 0.0]]]))
    np.testing.assert_allclose(values, np.log(2))
    assert uniform == pytest.approx(np.log(2))


def _subject_with(layer: LayerMap, monkeypatch: pytest.MonkeyPatch, run: regard.TranslationRun) -> None:
    """Make a run return fixed weights of a layer for every input."""
    attention = dataclasses.replace(run.attend("der Hund"), layers={layer.name: layer})
    monkeypatch.setattr(type(run), "attend", lambda self, input=None, seed=0: attention)


def test_induction_finds_a_perfect_head(german: regard.TranslationRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """A head whose weights are all on the token after the earlier occurrence has an induction of 1."""
    labels = ["a", "b", "c", "a", "b", "c"]
    weights = np.full((2, 6, 6), 1 / 6, dtype=np.float32)
    weights[1] = 0
    for query in range(6):
        weights[1, query, query - 2 if query >= 3 else 0] = 1
    layer = LayerMap(name="encoder.0", title="", weights=weights, query_labels=labels, key_labels=labels)
    keys = induction_keys(layer)
    assert keys is not None and np.argwhere(keys).tolist() == [[3, 1], [4, 2], [5, 3]]
    _subject_with(layer, monkeypatch, german)
    figure = regard.plot("induction", german, inputs=["abcabc"])
    shares = {row["head"]: row["induction"] for row in figure.json()["data"]}
    assert shares == {0: pytest.approx(1 / 6), 1: 1.0}
    assert "head 1: 1.000" in figure.caption


def test_induction_needs_a_repetition(german: regard.TranslationRun, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.full((1, 3, 3), 1 / 3, dtype=np.float32)
    labels = ["a", "b", "c"]
    layer = LayerMap(name="encoder.0", title="", weights=weights, query_labels=labels, key_labels=labels)
    _subject_with(layer, monkeypatch, german)
    with pytest.raises(InputError, match="no token occurs twice in the inputs"):
        regard.plot("induction", german, inputs=["abc"])


def test_principal_components() -> None:
    generator = np.random.default_rng(0)
    table = generator.normal(size=(200, 2)) * [5, 1] @ np.array([[0.6, 0.8, 0], [-0.8, 0.6, 0]]) + 7
    points, shares = principal_components(table)
    assert sum(shares) == pytest.approx(1) and shares[0] > 0.9
    centred = table - table.mean(0)
    np.testing.assert_allclose(points[:, 0] ** 2 + points[:, 1] ** 2, (centred**2).sum(1))
    np.testing.assert_allclose(np.abs(points[:, 0]), np.abs(centred @ [0.6, 0.8, 0]), atol=1)
    assert all(column[np.abs(column).argmax()] > 0 for column in points.T)


def test_labels_of_layers() -> None:
    assert layer_labels({"h.0": "decoder", "h.1": "decoder"}) == {"h.0": "0", "h.1": "1"}
    mixed = layer_labels({"e.0": "encoder", "e.1": "encoder", "d.0": "decoder", "c.0": "cross"})
    assert list(mixed.values()) == ["encoder 0", "encoder 1", "decoder", "cross"]


def test_rows_of_heads_leave_out_undefined_values() -> None:
    values = {"layer": [np.array([0.0, 1.0]), np.array([np.nan, np.nan]), np.array([1.0, 1.0])]}
    rows = head_rows(values, "share", seed=0)
    assert [row["share"] for row in rows] == [0.5, 1.0]
    assert rows[0]["low"] <= 0.5 <= rows[0]["high"]


def test_the_seed_and_the_inputs_are_in_the_caption(trained: regard.AnswerRun) -> None:
    assert "drawn with seed 3" in regard.plot("heads", trained, seed=3).caption
    caption = regard.plot("entropy", trained, samples=7, seed=3).caption
    assert "over 7 inputs not used in training, drawn with seed 3" in caption
    assert "use at least 50 samples" in caption
    assert "the input 'BCCCBAABACCCA'" in regard.plot("alignment", trained, inputs=["BCCCBAABACCCA"]).caption


def test_alignment_takes_the_head_by_hand(trained: regard.AnswerRun) -> None:
    figure = regard.plot("alignment", trained, inputs=["BCCCBAABACCCA"], layer="cross", head=1)
    assert "cross, head 1, chosen by hand" in figure.caption
    attention = trained.attend("BCCCBAABACCCA")
    np.testing.assert_allclose(figure.json()["data"]["weights"], attention.cross.weights[1], atol=1e-6)
