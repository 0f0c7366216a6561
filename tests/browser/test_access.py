"""Accessibility with a keyboard, a screen reader, narrow windows and other colors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.viz.page import write_page
from tests.browser.conftest import INPUT, choose, map_of, open_view, settle, use_tool

AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
MODES = ("Matrix", "Lines", "Flow")
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
    """Return the violations of all levels that axe-core reports, without the contrast of 7:1 (AAA)."""
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    return page.evaluate(EVERY_RULE)


@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: npm ci")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("subject", ["numbers", "text"])
def test_axe_finds_nothing(page: Any, address: str, translating: str, subject: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    open_view(page, address if subject == "numbers" else translating)
    for mode in reversed(MODES):
        page.click(f"[role=radio][data-name={mode}]")
        settle(page)
        assert find_violations(page) == [], mode
    for menu in ("analyse", "save", "view"):
        page.click(f"[data-name={menu}]")
        assert find_violations(page) == [], menu
        page.keyboard.press("Escape")
    use_tool(page, "Top inputs")
    page.wait_for_selector(".tool table")
    assert find_violations(page) == [], "samples"
    page.click(".tool >> text=Close")
    choose(page, head=1, query=1, key=1)
    page.click(".touch [data-name=uniform]")
    page.wait_for_selector(".mark b")
    if subject == "numbers":
        choose(page, change="true")
    assert find_violations(page) == [], "touched"
    page.click("[data-name='How it is computed']")
    page.wait_for_selector(".sum h3")
    page.click("[data-name='Why it looks there']")
    assert find_violations(page) == [], "sum"
    if subject == "text":
        use_tool(page, "Step by step")
        page.wait_for_selector(".search svg")
        assert find_violations(page) == [], "step by step"
    else:
        use_tool(page, "Play training")
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
    open_view(page, write_page(tmp_path / "p.html", [map_of(weights, labels, labels)]).as_uri())
    for mode in ("Lines", "Matrix"):
        page.click(f"[role=radio][data-name={mode}]")
        settle(page)
        assert find_violations(page) == [], mode
    page.click("[aria-label=Keys] >> visible=true")
    assert find_violations(page) == [], "keys"
    page.keyboard.press("Escape")
    page.set_viewport_size({"width": 390, "height": 844})
    page.click("[data-name=Details]")
    settle(page)
    assert find_violations(page) == [], "phone"


@pytest.mark.parametrize("subject", ["numbers", "text"])
def test_few_tab_stops_precede_the_weights(page: Any, address: str, translating: str, subject: str) -> None:
    open_view(page, address if subject == "numbers" else translating)
    page.evaluate("document.activeElement.blur()")
    for _ in range(14):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('figure') !== null"):
            break
    else:
        pytest.fail("fourteen tab stops do not lead to the weights")


def test_screen_readers_read_a_grid(page: Any, address: str, learned: regard.AnswerRun) -> None:
    open_view(page, address, f"input={INPUT}")
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
    heads = page.locator(".heads [role=grid]")
    heads.focus()
    page.keyboard.press("ArrowRight")
    settle(page)
    told = page.locator(f"#{heads.get_attribute('aria-activedescendant')}").inner_text()
    assert "cross 0.1" in told and "weight on relevant inputs" in told


def test_menus_are_operated_by_keys(page: Any, address: str) -> None:
    open_view(page, address)
    page.focus("[data-name=analyse]")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.name") == "Head importance"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "menuitemcheckbox"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.dataset.name") == "analyse"
