"""The page: self-contained, faithful, and safe with any text."""

import dataclasses
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from regard.inspection.page import page
from tests.inspection.test_terminal import example


def data_of(html: str) -> list[dict]:
    found = re.search(r'<script id="maps" type="application/json">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_the_page_holds_the_weights() -> None:
    attention = example()
    (data,) = data_of(page([attention]))
    (layer,) = data["layers"]
    np.testing.assert_allclose(layer["weights"], attention.cross.weights, atol=1e-5)
    assert (data["prediction"], data["truth"], data["input"]) == ([2], [3], "AAB")
    assert layer["relevant"] == [[True, True, False]]


def test_the_page_asks_nothing_of_the_network() -> None:
    html = page([example()])
    assert not re.search(r"(src|href)=", html)
    assert set(re.findall(r"https?://[^\"'\s]+", html)) == {
        "http://www.w3.org/2000/svg"
    }  # a name, not an address


def test_text_of_an_input_stays_text() -> None:
    hostile = "</script><script>alert(1)</script><!--"
    html = page([dataclasses.replace(example(), input=hostile)])
    assert hostile not in html and html.count("</script>") == 2
    assert data_of(html)[0]["input"] == hostile


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_view_is_valid_and_its_colours_are_viridis(tmp_path: Path) -> None:
    view = Path(page.__code__.co_filename).parent / "view" / "attention-view.js"
    script = tmp_path / "check.mjs"
    script.write_text(
        f'import {{ colour }} from "{view.as_uri()}"; console.log(colour(0), colour(0.5), colour(9));'
    )
    out = subprocess.run(
        ["node", "--experimental-default-type=module", script], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "rgb(68, 1, 84) rgb(33, 145, 140) rgb(253, 231, 37)"
