"""Accessibility with a keyboard, a screen reader, narrow windows and other colors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.viz.page import write_page
from tests.browser.conftest import map_of, settle

AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
INPUT = "BCCCBAABACCCA"
MODES = ("Heatmap", "Lines", "Table", "Overview")
EVERY_RULE = """async () => {
    const { violations } = await axe.run(document, { runOnly: {
        type: "tag",
        values: ["wcag2a", "wcag2aa", "wcag2aaa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    }, rules: { "color-contrast-enhanced": { enabled: false } } });
    return violations.flatMap(({ id, nodes }) => nodes.map(({ html, any, failureSummary }) => [
        id, html.slice(0, 160), (any[0]?.message ?? failureSummary).slice(0, 200),
    ]));
}"""


def find_violations(page: Any) -> list[list[str]]:
    """Return the violations of all levels that axe-core reports; a contrast of 7:1 (level AAA) is not
    required.
    """
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    return page.evaluate(EVERY_RULE)


@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: npm ci")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("subject", ["numbers", "text"])
def test_axe_finds_nothing(page: Any, address: str, translating: str, subject: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(address if subject == "numbers" else translating)
    page.wait_for_selector("figure canvas")
    settle(page)
    for mode in MODES:
        page.click(f"button:text-is('{mode}')")
        settle(page)
        assert find_violations(page) == [], mode
    page.click("button:text-is('Flow')")
    settle(page)
    assert find_violations(page) == [], "flow"
    if subject == "text":
        page.click("button:text-is('Heatmap')")
        page.select_option("select[data-name=Kind]", index=0)
        page.click("button:text-is('Arcs')")
        page.wait_for_selector(".lines svg")
        assert find_violations(page) == [], "arcs"
    page.click("#search")
    page.wait_for_selector("#samples table")
    assert find_violations(page) == [], "samples"
    page.click("#samples >> text=Close")
    page.click("#roles")
    page.wait_for_function("() => document.querySelector('#roles').textContent === 'Head roles'", timeout=60_000)
    page.click("button:text-is('Overview')")
    page.wait_for_selector(".thumb")
    settle(page)
    assert find_violations(page) == [], "gallery"
    page.click("button:text-is('Heatmap')")
    page.select_option("select[data-name=Head]", label="head 1")
    page.locator("figure [role=grid]").focus()
    page.keyboard.press("ArrowDown")
    page.click("text=head 1 uniform")
    page.wait_for_selector(".mark b:text-matches('^1 [^,]*$')")
    if subject == "numbers":
        page.check("text=difference to the original")
    settle(page)
    assert find_violations(page) == [], "touched"
    page.click("text=Explain this weight")
    page.wait_for_selector(".sum h3")
    assert find_violations(page) == [], "sum"
    if subject == "text":
        page.click("#tree")
        page.wait_for_selector(".steps svg")
        assert find_violations(page) == [], "step by step"
    page.click("text=Tour")
    assert find_violations(page) == [], "tour"
    page.keyboard.press("Escape")
    if subject == "numbers":
        page.click("text=Play training")
        page.wait_for_selector("input[data-name=time]")
        assert find_violations(page) == [], "playback"
        page.fill("#input", "nothing")
        page.wait_for_function("() => document.querySelector('#message').textContent !== ''")
        assert find_violations(page) == [], "refused"
        page.complaints.clear()


@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: npm ci")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_an_exported_page(page: Any, tmp_path: Path, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    weights = np.random.default_rng(0).dirichlet(np.ones(80), size=(12, 80)).astype(np.float32)
    labels = [f"t{step}" for step in range(80)]
    page.goto(write_page(tmp_path / "p.html", [map_of(weights, labels, labels)]).as_uri())
    page.wait_for_selector("figure canvas")
    for mode in MODES:
        page.click(f"button:text-is('{mode}')")
        settle(page)
        assert find_violations(page) == [], mode
    page.click("button:text-is('Overview')")
    for chart in ("Bars: largest weight", "Matrix: largest weight"):
        page.click(f"button:text-is('{chart}')")
        page.click("summary")
        settle(page)
        assert find_violations(page) == [], chart
    page.click("button:text-is('Keys')")
    assert find_violations(page) == [], "keys"
    page.keyboard.press("Escape")
    page.set_viewport_size({"width": 390, "height": 844})
    for tab in ("Heads", "Inspector", "Picture"):
        page.click(f"[role=tab]:text-is('{tab}')")
        settle(page)
        assert find_violations(page) == [], tab


@pytest.mark.parametrize("subject", ["numbers", "text"])
def test_few_tab_stops_precede_the_weights(page: Any, address: str, translating: str, subject: str) -> None:
    page.goto(address if subject == "numbers" else translating)
    page.wait_for_selector("figure canvas")
    settle(page)
    page.evaluate("document.activeElement.blur()")
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('role')") == "grid":
            break
    else:
        pytest.fail("ten tab stops do not lead to the weights")


@pytest.mark.parametrize("mode", MODES)
def test_everything_is_reached_in_few_tab_stops(page: Any, tmp_path: Path, mode: str) -> None:
    """Each group of tokens, words or thumbnails is a single tab stop, for a layer of eight heads and 150
    tokens.
    """
    weights = np.random.default_rng(0).dirichlet(np.ones(150), size=(8, 150)).astype(np.float32)
    labels = [f"t{step}" for step in range(150)]
    page.goto(write_page(tmp_path / "p.html", [map_of(weights, labels, labels)]).as_uri())
    page.wait_for_selector("figure canvas")
    page.click(f"button:text-is('{mode}')")
    settle(page)
    stops = page.evaluate(
        """[...document.querySelectorAll('button, select, input, [tabindex]')]
            .filter((each) => each.tabIndex >= 0 && each.checkVisibility()).length"""
    )
    assert stops <= (60 if mode == "Table" else 16)


def test_screen_readers_read_a_grid(page: Any, address: str, learned: regard.AnswerRun) -> None:
    page.goto(address)
    page.wait_for_selector("canvas")
    page.fill("#input", INPUT)
    page.wait_for_function("text => document.querySelector('.answer code')?.textContent === text", arg=INPUT)
    grid = page.locator("figure [role=grid]").first
    assert grid.get_attribute("aria-rowcount") == "3" and grid.get_attribute("aria-colcount") == "13"
    grid.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
        settle(page)
    cell = page.locator(f"#{grid.get_attribute('aria-activedescendant')}")
    weight = learned.attend(INPUT).cross.weights[0, 1, 1]
    assert cell.inner_text() == f"C {100 * weight:.1f}%"
    assert cell.locator("xpath=..").get_attribute("aria-rowindex") == "2"


def test_the_table_has_the_weights(page: Any, address: str, learned: regard.AnswerRun) -> None:
    page.goto(address)
    page.wait_for_selector("canvas")
    page.fill("#input", INPUT)
    page.wait_for_function("text => document.querySelector('.answer code')?.textContent === text", arg=INPUT)
    page.click("text=Table")
    page.select_option("select[data-name=Head]", label="head 1")
    settle(page)
    rows = page.locator("tbody tr").all()
    found = [[float(each) for each in row.locator("td").all_inner_texts()] for row in rows]
    assert np.abs(np.array(found) - learned.attend(INPUT).cross.weights[1]).max() < 6e-4


@pytest.mark.parametrize("size", [(390, 844), (640, 400)], ids=["phone", "twice as large"])
def test_narrow_windows_reach_everything(page: Any, address: str, translating: str, size: tuple[int, int]) -> None:
    """The page does not overflow sideways, and the legend is visible with the weights."""
    width, height = size
    page.set_viewport_size({"width": width, "height": height})
    for where in (address, translating):
        page.goto(where)
        page.wait_for_selector("figure canvas")
        settle(page)
        for mode in MODES:
            page.click(f"button:text-is('{mode}')")
            settle(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, mode
        page.click("button:text-is('Heatmap')")
        settle(page)
        for place in range(page.locator("figure canvas").count()):
            canvas = page.locator("figure canvas").nth(place)
            canvas.scroll_into_view_if_needed()
            legend = page.locator(".legend").bounding_box()
            assert legend["y"] >= 0 and legend["y"] + legend["height"] <= height
            assert legend["height"] < 24  # a line that hides at most one row
            assert canvas.bounding_box()["width"] > 0.6 * width


def test_legend_of_lines(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("figure canvas")
    page.click("text=Lines")
    assert page.locator(".key li").all_inner_texts() == ["head 0", "head 1"]
    drawn = page.locator(".lines > svg line").evaluate_all("all => all.map(each => each.getAttribute('stroke'))")
    keys = page.locator(".key line").evaluate_all("all => all.map(each => each.getAttribute('stroke'))")
    assert set(drawn) == set(keys) and len(set(keys)) == 2
