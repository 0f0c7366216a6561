"""Pages are self-contained, small, exact up to the documented rounding, and safe for any text."""

import base64
import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

import regard
from regard.viz.page import map_data, pack, page
from tests.packed import unpack
from tests.viz.test_terminal import example


def data_of(html: str) -> dict[str, Any]:
    match = re.search(r'<script id="data" type="application/json">(.*?)</script>', html, re.DOTALL)
    assert match is not None
    return json.loads(match[1])


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
    assert hostile not in html and html.count("</script>") == 2
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
