"""NaN and infinite weights are marked in every display and mentioned in the note."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from regard.viz.attention_map import AttentionMap
from regard.viz.figure import NOT_FINITE
from regard.viz.maps import LayerMap, Patches
from regard.viz.page import page
from tests.viz.test_page import data_of, unpack
from tests.viz.test_terminal import printed


def layer(name: str, weights: Any, **options: Any) -> LayerMap:
    array = np.asarray(weights, np.float32)
    names = [str(step) for step in range(max(array.shape))]
    queries, keys = names[: array.shape[1]], names[: array.shape[2]]
    return LayerMap(name=name, title=name, weights=array, query_labels=queries, key_labels=keys, **options)


def mapped(*layers: LayerMap, **options: Any) -> AttentionMap:
    fields: dict[str, Any] = {"prediction": None, "truth": None, "outputs": [], "probabilities": [], **options}
    return AttentionMap(task="task", input="a b", layers={layer.name: layer for layer in layers}, **fields)


SOUND = layer("first", [[[1, 0, 0], [0.5, 0.5, 0]]])
ODD = layer("second", [[[0.25, np.nan, 0.75], [np.inf, 0, -np.inf]], [[1, 0, 0], [0, 1, 0]]])


def test_note_names_the_first_such_layer_once() -> None:
    found = mapped(SOUND, ODD, layer("third", ODD.weights))
    assert found.note == "weights of second are not finite, the first such layer"
    assert found.select(layers=["second"]).note == found.note
    assert mapped(ODD, note="long").note == "long; weights of second are not finite, the first such layer"
    assert mapped(SOUND).note == ""
    likely = mapped(SOUND, outputs=["a"], probabilities=[float("nan")])
    assert likely.note == "the answer's probabilities are not finite"
    assert likely.json()["probabilities"] == [None]


def test_in_the_terminal() -> None:
    lines = printed(mapped(SOUND, ODD))
    assert "".join(lines).count("!!") == 3 + 1 and "!!  not finite" in lines[-1] and "0 to 1.000" in lines[-1]
    assert not any("!!" in line for line in printed(mapped(SOUND)))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_in_a_figure(tmp_path: Path, value: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        odd = mapped(layer("second", [[[0.25, value], [0.5, 0.5]]])).save(tmp_path / "odd.png")
        sound = mapped(layer("second", [[[0.25, 0.75], [0.5, 0.5]]])).save(tmp_path / "sound.png")
        nothing = mapped(layer("second", np.full((1, 2, 2), value))).save(tmp_path / "nothing.png")
    assert share_of(odd) > 0.01 and share_of(sound) == 0
    assert share_of(nothing) > 0.04


def test_on_an_image(tmp_path: Path) -> None:
    pixels = np.full((40, 40, 3), 200, np.uint8)
    weights = [[[0.25, np.nan, 0.25, 0.5]] * 4]
    found = mapped(layer("vision", weights, patches=Patches(0, 2, 2)), pixels=pixels)
    assert any("!!" in line for line in printed(found))
    image = np.asarray(Image.open(found.save(tmp_path / "a.png")).convert("RGB")).astype(int)
    assert ((image[..., 0] > 180) & (image[..., 1] < 80) & (image[..., 2] > 70)).mean() > 0.005


def share_of(path: Path) -> float:
    """Return the fraction of pixels with the color of weights that are not finite."""
    image = np.asarray(Image.open(path).convert("RGB")).astype(int)
    return float((np.abs(image - NOT_FINITE).max(-1) < 4).mean())


def test_on_a_page_and_in_json() -> None:
    found = mapped(SOUND, ODD)
    data = data_of(page([found]))
    first, second = data["maps"][0]["layers"]
    assert (first["weights"]["levels"], second["weights"]["levels"]) == (65535, 65534)
    whole = unpack(second["weights"] | {"largest": 65534}, 2, 3)
    odd = ~np.isfinite(ODD.weights)
    assert (whole[odd] == 65535).all() and whole[~odd].max() == 65534
    expected = np.where(odd, 0, ODD.weights)[~odd]
    np.testing.assert_allclose(whole[~odd] / 65534 * second["weights"]["largest"], expected, atol=1e-5)
    assert data["maps"][0]["note"] == found.note
    assert found.json()["layers"][1]["weights"][0] == [[0.25, None, 0.75], [None, 0.0, None]]
    assert "NaN" not in json.dumps(found.json(), allow_nan=False)
