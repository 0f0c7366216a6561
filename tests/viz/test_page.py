"""Pages are self-contained, small, exact up to the documented rounding, and safe for any text."""

import base64
import dataclasses
import hashlib
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

import regard
from regard.viz.maps import LayerMap
from regard.viz.page import (
    COARSE,
    LEVELS,
    ROUNDED,
    LayerData,
    MapData,
    PackedWeights,
    first_data,
    head_measures,
    map_data,
    pack,
    page,
    pool,
    text_of_bytes,
    thumbnail_side,
    view_json,
)
from tests.packed import bytes_of_text, unpack
from tests.viz.test_terminal import example
from tests.viz.view_types import SHAPES, type_definitions


def data_of(html: str) -> dict[str, Any]:
    match = re.search(r'<script id="data" type="application/json">(.*?)</script>', html, re.DOTALL)
    stored = re.search(r'<script id="weights" type="text/plain" data-size="(\d+)">(.*?)</script>', html, re.DOTALL)
    assert match is not None and stored is not None
    data, weights = json.loads(match[1]), zlib.decompress(bytes_of_text(stored[2], int(stored[1])))
    every = [
        *data["maps"],
        *data.get("playback", {}).get("frames", []),
        *([data["original"]] if "original" in data else []),
    ]
    for layer in (layer for shown in every for layer in shown["layers"]):
        layer["weights"]["packed"] = weights[slice(*layer["weights"]["packed"])]
    return data


@given(st.binary(max_size=40))
def test_bytes_as_text_are_read_back(content: bytes) -> None:
    text = text_of_bytes(content)
    assert bytes_of_text(text, len(content)) == content and not set(text) & set("\0\r<")


def test_page_contains_the_map() -> None:
    attention = example()
    [stored] = data_of(page([attention]))["maps"]
    [layer] = stored["layers"]
    np.testing.assert_allclose(unpack(layer["weights"], 1, 3), attention.cross.weights, atol=1e-5)
    assert (stored["prediction"], stored["truth"], stored["input"]) == ([2], [3], "AAB")
    assert layer["relevant"] == [[0, 0], [0, 1]] and layer["kind"] == "cross"
    assert layer["query_words"] is None


@given(arrays(np.float32, (2, 3, 4), elements=st.floats(0, 1, width=32)))
def test_rounding_error_is_as_documented(weights: np.ndarray) -> None:
    error = np.abs(unpack(pack(weights), 3, 4).astype(np.float64) - weights).max()
    assert error <= 8e-6 * max(float(weights.max()), 1e-9) + 1e-7 * float(weights.max())


def test_unpacked_weights_are_unchanged() -> None:
    [layer] = map_data(example())["layers"]
    assert isinstance(layer["weights"], np.ndarray)
    assert np.array_equal(layer["weights"], example().cross.weights)
    assert all(isinstance(shown["weights"], np.ndarray) for shown in first_data(example())["layers"])


def test_page_uses_no_network_and_allows_one_script() -> None:
    html = page([example()])
    assert not re.search(r"\s(src|href)=", html)
    # A namespace, which browsers do not fetch.
    assert set(re.findall(r"https?://[^\"'\s)]+", html)) == {"http://www.w3.org/2000/svg"}
    [script] = re.findall(r'<script type="module">(.*?)</script>', html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html and "default-src 'none'" in html


def test_input_text_is_escaped() -> None:
    hostile = "</script><script>alert(1)</script><!--"
    html = page([dataclasses.replace(example(), input=hostile)])
    assert hostile not in html and html.count("</script>") == 3
    assert data_of(html)["maps"][0]["input"] == hostile


def test_page_is_small(trained: regard.AnswerRun) -> None:
    """In addition to the code, a page needs at most three bytes per weight."""
    few, many = (page([trained.attend(seed=seed) for seed in range(count)]) for count in (1, 41))
    weights = sum(layer.weights.size for layer in trained.attend().layers.values())
    labels = 2000
    assert len(many) - len(few) < 40 * (3 * weights + labels)


def test_playback_in_a_page(tmp_path: Path) -> None:
    run = regard.train("counting", hidden=8, steps=20, snapshots=4, savepath=tmp_path, progress=False)
    file = run.playback("ABBA_CABBA").to_html(tmp_path / "page.html")
    stored = data_of(file.read_text())["playback"]
    assert stored["steps"] == [0, 1, 4, 20] and len(stored["frames"]) == 4
    assert [step for step, _ in stored["losses"]] == [10, 20]


@pytest.mark.parametrize("name", ["words.html", "page.html"])
def test_view_merges_the_same_words(german: regard.TranslationRun, tmp_path: Path, name: str) -> None:
    """The groups of word pieces in the page equal those of `AttentionMap.words`."""
    attention = german.attend("Heute läuft der alte Hund.")
    [stored] = data_of(attention.save(tmp_path / name).read_text())["maps"]
    cross = stored["layers"][-1]
    merged = attention.words().cross
    assert len(cross["query_words"]) == len(merged.query_labels)
    assert len(cross["key_words"]) == len(merged.key_labels)
    assert {layer["kind"] for layer in stored["layers"]} == {"encoder", "decoder", "cross"}


def test_every_shape_has_a_type() -> None:
    text = type_definitions()
    assert len(SHAPES) == 17 and all(f"export type {name} = {{" in text for name in SHAPES)
    assert "  importance?: Record<string, WorthData[]>;\n" in text
    assert '  kind: "encoder" | "decoder" | "cross";\n' in text and "  relevant: number[][] | null;\n" in text


@pytest.mark.parametrize("packed", [True, False])
def test_a_map_has_its_shape(packed: bool) -> None:
    stored = map_data(example(), LEVELS if packed else None)
    assert set(stored) == MapData.__required_keys__
    [layer] = stored["layers"]
    assert set(layer) == LayerData.__required_keys__
    if packed:
        assert set(layer["weights"]) == PackedWeights.__required_keys__


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


def test_of_many_weights_thumbnails_come_first() -> None:
    weights = np.random.default_rng(0).random((18, 150, 150), dtype=np.float32) / 150
    attention = example()
    object.__setattr__(attention, "layers", {"layer.0": layer(weights)})
    stored = json.loads(view_json([example(), attention], packed=True))["maps"]
    assert [each["note"] for each in stored] == [ROUNDED] * 2 and first_data(attention)["note"] == ""
    for data, side in ((first_data(attention)["layers"][0], 3), (stored[1]["layers"][0], 1)):
        packed: Any = data["weights"]
        assert packed["side"] == side and (data["measures"] is None) == (side == 1) and len(data["queries"]) == 150
        assert packed["levels"] == COARSE
        values = unpack(packed, 150 // side, 150 // side)
        np.testing.assert_allclose(values, pool(weights, side), atol=weights.max() / 255)
