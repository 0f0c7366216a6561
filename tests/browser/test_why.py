"""A click shows what earlier parts of the model wrote into query and key, on served pages."""

from pathlib import Path
from typing import Any

import pytest

import regard
from regard.cli import main

INPUT = "BCCCBAABACCCA"
SELECTED = "layer=cross&head=1&query=1&key=2"
BUTTON = "button:has-text('Why it looks there')"


@pytest.mark.parametrize("width", [1200, 360])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_largest_parts_are_shown(
    page: Any, address: str, learned: regard.AnswerRun, width: int, scheme: Any
) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{address}#input={INPUT}&{SELECTED}")
    page.wait_for_selector("figure canvas")
    if width < 600:
        page.click("[data-name=Details]")
    page.click(BUTTON)
    result = regard.why(learned, INPUT, layer="cross", head=1, output=1, key=2)
    page.wait_for_selector(f"text=the score {result.score:.4f}")
    section = page.locator("[aria-label='Why it looks there']")
    for place, parts in enumerate((result.query_parts, result.key_parts)):
        rows = section.locator("table").nth(place).locator("tr").all_inner_texts()
        assert rows[0].split("\t")[0] == parts[0].text
        assert float(rows[0].split("\t")[1].replace("\u2212", "-")) == pytest.approx(parts[0].value, abs=6e-4)
    assert "scales of norms" in section.inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_another_weight_is_explained(page: Any, address: str, learned: regard.AnswerRun) -> None:
    page.goto(f"{address}#input={INPUT}&{SELECTED}")
    page.click(BUTTON)
    page.wait_for_selector("text=(step 2) the score")
    page.goto(f"{address}#input={INPUT}&layer=cross&head=1&query=1&key=4")
    result = regard.why(learned, INPUT, layer="cross", head=1, output=1, key=4)
    page.wait_for_selector(f"text=(step 4) the score {result.score:.4f}")


def test_a_static_page_names_the_command(page: Any, learned: regard.AnswerRun, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    main(["test", str(learned.folder), "--input", INPUT, "--plot", str(file), "--samples", "5"])
    page.goto(f"{file.as_uri()}#{SELECTED}")
    page.wait_for_selector("code:has-text('--key 2 --why')")
    assert page.locator(BUTTON).count() == 0
