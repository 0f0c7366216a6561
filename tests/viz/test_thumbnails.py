"""Thumbnails of layers: maxima of squares, measures of whole weights, and which layers are thumbnails."""

import base64
import zlib

import numpy as np
import pytest

from regard.viz.maps import LayerMap
from regard.viz.page import first_data, head_measures, pool, thumbnail_side
from tests.viz.test_terminal import example


def layer(weights: np.ndarray, name: str = "layer.0", kind: str = "encoder") -> LayerMap:
    rows, columns = weights.shape[1:]
    return LayerMap(
        name=name,
        title=name,
        weights=weights,
        query_labels=[str(step) for step in range(rows)],
        key_labels=[str(step) for step in range(columns)],
        kind_override=kind,  # type: ignore[arg-type]
    )


def test_each_number_is_the_maximum_of_its_square() -> None:
    weights = np.random.default_rng(0).random((3, 7, 5), dtype=np.float32)
    pooled = pool(weights, 2)
    assert pooled.shape == (3, 4, 3)
    assert all(
        pooled[head, row, column] == weights[head, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2].max()
        for head in range(3)
        for row in range(4)
        for column in range(3)
    )
    weights[1, 6, 4] = np.nan
    assert np.isnan(pool(weights, 2)[1, 3, 2]) and np.isfinite(pool(weights, 2)[1]).sum() == 11


@pytest.mark.parametrize(("length", "side"), [(64, 1), (65, 2), (200, 4)])
def test_a_thumbnail_has_at_most_64_rows(length: int, side: int) -> None:
    assert thumbnail_side(layer(np.zeros((1, length, 3), dtype=np.float32))) == side


def test_measures_by_hand() -> None:
    uniform, diagonal = np.full((4, 4), 0.25), np.eye(4)
    measures = head_measures(layer(np.stack([uniform, diagonal]).astype(np.float32)))
    assert measures["entropy"] == pytest.approx([1.0, 0.0], abs=1e-6)
    assert measures["peak"] == pytest.approx([0.25, 0.0])  # a step's own token does not count
    assert measures["distance"] == pytest.approx([1.25, 0.0])
    crossed = head_measures(layer(np.stack([uniform, diagonal]), kind="cross"))
    assert set(crossed) == {"peak", "entropy"} and crossed["peak"] == pytest.approx([0.25, 1.0])


def test_the_entropy_of_a_causal_head_refers_to_the_steps_it_sees() -> None:
    causal = np.tril(np.ones((3, 3))) / np.arange(1, 4)[:, None]
    assert head_measures(layer(causal[None], kind="decoder"))["entropy"] == pytest.approx([1.0])


def test_of_many_weights_the_layer_in_view_is_whole() -> None:
    weights = np.random.default_rng(0).random((12, 150, 150), dtype=np.float32) / 150
    layers = {name: layer(weights, name) for name in ("layer.0", "layer.1")}
    attention = example()
    object.__setattr__(attention, "layers", layers)
    for chosen, whole in ((None, "layer.0"), ("layer.1", "layer.1"), ("unknown", "layer.0")):
        for data in first_data(attention, chosen)["layers"]:
            packed = data["weights"]
            assert not isinstance(packed, np.ndarray)
            side = 1 if data["name"] == whole else 3
            assert packed["side"] == side and (data["measures"] is None) == (side == 1)
            numbers = np.frombuffer(zlib.decompress(base64.b64decode(packed["packed"])), dtype="<u2")
            values = numbers.reshape(12, 150 // side, 150 // side) / packed["levels"] * packed["largest"]
            np.testing.assert_allclose(values, pool(weights, side), atol=1e-5 * weights.max())
            assert len(data["queries"]) == 150


def test_few_weights_are_exact_numbers() -> None:
    data = first_data(example())
    assert all(isinstance(shown["weights"], np.ndarray) for shown in data["layers"])
