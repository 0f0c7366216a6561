"""The picture fills the window, few controls are visible, and nothing overflows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.browser.conftest import map_of, open_view, settle, use_tool

MEASURED = """() => {
    const root = document.documentElement;
    const boxes = [...document.querySelectorAll("figure canvas")].map((canvas) => canvas.getBoundingClientRect());
    const area = boxes.reduce((sum, box) => sum + box.width * box.height, 0);
    const stops = [...document.querySelectorAll("button, select, input, a[href], [tabindex]")];
    const texts = [...document.querySelectorAll("body *")].filter((item) => item.checkVisibility() &&
        [...item.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim()));
    const size = (item) => parseFloat(getComputedStyle(item).fontSize);
    return {
        share: area / (innerWidth * innerHeight),
        wide: Math.max(...boxes.map((box) => box.right)) - Math.min(...boxes.map((box) => box.left)),
        controls: stops.filter((item) => item.tabIndex >= 0 && item.checkVisibility()).length,
        body: Math.min(...texts.filter((item) => item.matches("p, output, li, .sentence, td")).map(size)),
        smallest: Math.min(...texts.map(size).filter(Boolean)),
        overflow: [root.scrollWidth - innerWidth, root.scrollHeight - innerHeight],
    };
}"""


@pytest.fixture(scope="module")
def many_heads(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of a page with twelve heads on fifteen tokens."""
    weights = np.random.default_rng(0).dirichlet(np.ones(15), size=(12, 15)).astype(np.float32)
    labels = [f"token{step}" for step in range(15)]
    return map_of(weights, labels, labels).to_html(tmp_path_factory.mktemp("layout") / "p.html").as_uri()


@pytest.mark.parametrize(
    ("width", "height", "least"), [(1440, 900, 0.45), (1280, 800, 0.45), (1024, 700, 0.35)], ids=str
)
@pytest.mark.parametrize("subject", ["run", "translator", "page"])
def test_the_picture_fills_the_window(
    page: Any, address: str, translating: str, many_heads: str, subject: str, width: int, height: int, least: float
) -> None:
    page.set_viewport_size({"width": width, "height": height})
    open_view(page, {"run": address, "translator": translating, "page": many_heads}[subject])
    measured = page.evaluate(MEASURED)
    assert measured["share"] >= least and measured["controls"] <= 25 and measured["overflow"] == [0, 0]
    assert measured["body"] >= 14 and measured["smallest"] >= 12
    assert page.locator(".drawer").is_visible() == (width >= 1280)


def test_a_large_screen_has_larger_text_and_no_empty_margins(page: Any, many_heads: str) -> None:
    page.set_viewport_size({"width": 3840, "height": 2160})
    open_view(page, many_heads)
    measured = page.evaluate(MEASURED)
    assert measured["share"] > 0.6 and measured["body"] > 20 and measured["overflow"] == [0, 0]


@pytest.mark.parametrize("size", [(390, 844), (640, 400)], ids=["phone", "twice as large"])
def test_narrow_windows_reach_everything(page: Any, address: str, translating: str, size: tuple[int, int]) -> None:
    width, height = size
    page.set_viewport_size({"width": width, "height": height})
    for where in (address, translating):
        open_view(page, where)
        for mode in ("Lines", "Flow", "Matrix"):
            page.click(f"[role=radio][data-name={mode}]")
            settle(page)
            measured = page.evaluate(MEASURED)
            assert measured["overflow"][0] <= 0 and measured["wide"] >= 0.9 * width, mode
        for part in (".sentence", ".legend", ".heads [role=grid]", "[data-name=save]"):
            page.locator(part).scroll_into_view_if_needed()
            assert page.locator(part).is_visible()
        page.click("[data-name=Details]")
        box = page.locator(".drawer").bounding_box()
        assert box["x"] >= 0 and box["width"] <= width and page.locator("output").is_visible()


def test_the_drawer_never_moves_the_picture(page: Any, address: str) -> None:
    open_view(page, address)
    box = page.locator("figure canvas").first.bounding_box()
    page.click("[data-name='How it is computed']")
    page.wait_for_selector(".sum h3")
    drawer, picture = page.locator(".drawer").bounding_box(), page.locator(".picture").bounding_box()
    assert picture["x"] + picture["width"] <= drawer["x"]  # and it is not covered
    use_tool(page, "Top inputs")
    page.wait_for_selector(".tool table")
    page.mouse.move(box["x"] + 100, box["y"] + 100)
    settle(page)
    assert page.locator("figure canvas").first.bounding_box() == box


@pytest.mark.parametrize(("heads", "beside"), [(2, 2), (3, 1), (4, 2)])
def test_few_heads_are_arranged_so_that_cells_are_largest(page: Any, tmp_path: Path, heads: int, beside: int) -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(5), size=(heads, 5)).astype(np.float32)
    open_view(page, map_of(weights, list("abcde"), list("vwxyz")).to_html(tmp_path / "p.html").as_uri())
    tops = page.locator("figure").evaluate_all("all => all.map((figure) => figure.offsetTop)")
    assert len(tops) == heads and (tops.count(tops[0]) == beside or heads == 3)


def test_a_baked_page_of_a_run_has_no_entry_that_needs_a_server(page: Any, exported: Path) -> None:
    open_view(page, exported.as_uri())
    assert page.locator("[data-name=analyse]").count() == 0 and page.locator(".touch").count() == 0
    assert page.inner_text(".first").startswith("First steps")
