"""Zoom, focus, scale, theme and snapshot do not change when other settings change."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.viz.page import view_json, write_page
from tests.browser.conftest import map_of, settle

INPUT = "BCCCBAABACCCA"


def _large(tmp_path: Path, size: int = 200) -> Path:
    weights = np.random.default_rng(0).dirichlet(np.ones(size), size=(2, size)).astype(np.float32)
    labels = [str(step) for step in range(size)]
    return write_page(tmp_path / "p.html", [map_of(weights, labels, labels)])


def _picture(page: Any) -> str:
    return page.evaluate("document.querySelector('figure canvas').toDataURL()")


def test_zoom_stays_when_something_is_chosen(page: Any, tmp_path: Path) -> None:
    page.goto(_large(tmp_path).as_uri())
    page.wait_for_selector("figure canvas")
    page.locator("figure [role=grid]").focus()
    for key in ("+", "+"):
        page.keyboard.press(key)
    settle(page)
    box = page.locator("figure canvas").bounding_box()
    page.mouse.click(box["x"] + 200, box["y"] + 200)
    settle(page)
    chosen = page.evaluate("document.querySelector('[role=gridcell]').getAttribute('aria-colindex')")
    page.mouse.move(box["x"] + 200, box["y"] + 200)
    before = _picture(page)
    page.keyboard.press("ArrowRight")  # the focus is still on the heatmap
    settle(page)
    after = page.evaluate("document.querySelector('[role=gridcell]').getAttribute('aria-colindex')")
    assert int(after) == int(chosen) + 1
    page.keyboard.press("ArrowLeft")
    page.mouse.move(box["x"] + 200, box["y"] + 200)
    settle(page)
    assert _picture(page) == before


def test_a_slider_is_dragged_through_the_training(page: Any, exported: Path) -> None:
    """The slider element is not replaced while it is dragged."""
    page.goto(exported.as_uri())
    slider = page.wait_for_selector("input[data-name=time]")
    box = slider.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 8, box["y"] + box["height"] / 2)
    page.mouse.down()
    for share in (0.8, 0.5, 0.2):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
        settle(page)
    page.mouse.move(box["x"] - 20, box["y"] + box["height"] / 2)
    page.mouse.up()
    page.wait_for_selector("text=after 0 training steps")
    assert page.evaluate("element => element.isConnected", slider)


def test_clicked_elements_keep_the_focus(page: Any, exported: Path) -> None:
    page.goto(exported.as_uri())
    page.wait_for_selector("figure canvas")
    for name in ("query-1", "Lines", "Table", "row-0-1", "Heatmap"):
        page.locator(f"[data-name='{name}']").first.focus()
        page.keyboard.press("Enter")
        settle(page)
        assert page.evaluate("document.activeElement.dataset.name") == name


def _colours(page: Any) -> list[Any]:
    """Return the colors of the tokens and of the same cells in the first row of the heatmap."""
    return page.evaluate(
        """() => {
            const tokens = [...document.querySelectorAll('.tokens > div')[1].querySelectorAll('.token')];
            const canvas = document.querySelector('figure canvas');
            const context = canvas.getContext('2d');
            const cell = 40;
            const left = canvas.width - 4 - cell * tokens.length;
            const top = canvas.height - 4 - cell * 3;
            return tokens.map((token, key) => [
                getComputedStyle(token).backgroundColor.match(/\\d+/g).map(Number),
                [...context.getImageData(left + cell * key + 10, top + 8, 1, 1).data].slice(0, 3),
            ]);
        }"""
    )


def test_one_legend_one_scale(page: Any, learned: regard.AnswerRun, tmp_path: Path) -> None:
    """Tokens have the same colors as the heatmap, also in a snapshot with small weights and in a difference."""
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(learned.playback(INPUT).to_html(tmp_path / "p.html").as_uri())
    page.wait_for_selector("figure canvas")
    page.select_option("select[data-name=Head]", label="head 1")
    page.locator("input[data-name=time]").focus()
    page.keyboard.press("Home")
    page.wait_for_selector("text=after 0 training steps")
    settle(page)
    assert np.abs(np.diff(_colours(page), axis=1)).max() <= 4  # cells have 256 shades


def test_a_difference_has_one_scale(page: Any, address: str, learned: regard.AnswerRun) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(address)
    page.wait_for_selector("canvas")
    page.fill("#input", INPUT)
    page.wait_for_function("text => document.querySelector('.answer code')?.textContent === text", arg=INPUT)
    page.select_option("select[data-name=Head]", label="head 1")
    page.click("text=head 1 uniform")
    page.wait_for_selector(".mark b:text-matches('^1 [^,]*$')")
    page.check("text=difference to the original")
    settle(page)
    assert np.abs(np.diff(_colours(page), axis=1)).max() <= 4  # cells have 256 shades
    page.locator("figure [role=grid]").focus()
    page.keyboard.press("ArrowDown")
    settle(page)
    before = learned.attend(INPUT).cross.weights[1, 0, 0]
    found = re.search(r"exactly \(was ([\d.]+), ([+\u2212])([\d.]+)\)", page.inner_text("output"))
    assert found is not None and abs(float(found[1]) - before) < 1e-4
    change = float(found[3]) * (1 if found[2] == "+" else -1)
    assert abs(change - (1 / 13 - before)) < 1e-3


@pytest.mark.parametrize("how", ["system", "notebook"])
def test_the_theme_changes(page: Any, tmp_path: Path, how: str) -> None:
    """After a change of theme, the legend, labels and cells look the same as on a page opened in this theme."""
    weights = np.array([[[1.0, 0.0], [0.5, 0.5]]], dtype=np.float32)
    page.goto(write_page(tmp_path / "p.html", [map_of(weights, ["p", "q"], ["a", "b"])]).as_uri())
    page.wait_for_selector("figure canvas")

    def drawn() -> list[str]:
        return page.evaluate("[...document.querySelectorAll('canvas')].map(each => each.toDataURL())")

    settle(page)
    light = drawn()
    if how == "system":
        page.emulate_media(color_scheme="dark")
    else:  # a style of the notebook
        page.evaluate("document.body.style.cssText = 'color: oklch(0.95 0 0); background: black'")
    page.wait_for_selector(".regard-view.dark")
    page.wait_for_timeout(150)
    dark = drawn()
    assert len(dark) == len(light) == 3  # heatmap, legend, and the head among all heads
    assert all(one != other for one, other in zip(light, dark, strict=True))
    if how == "system":
        page.reload()
        page.wait_for_selector("figure canvas")
        page.wait_for_timeout(150)
        assert drawn() == dark
        page.emulate_media(color_scheme="light")
    else:
        page.evaluate("document.body.style.cssText = ''")
    page.wait_for_selector(".regard-view:not(.dark)")
    page.wait_for_timeout(150)
    assert drawn() == light


def test_touching_keeps_the_snapshot(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("canvas")
    page.click("text=Play training")
    page.wait_for_selector("input[data-name=time]")
    page.select_option("select[data-name=Head]", label="head 1")
    assert page.locator("text=head 1 off").count() == 1
    page.locator("input[data-name=time]").focus()
    page.keyboard.press("Home")
    page.wait_for_selector("text=This is the model during training")
    assert page.locator("text=head 1 off").count() == 0
    page.click("text=to the trained model")
    page.wait_for_selector("text=after 150 training steps")
    page.click("text=head 1 off")
    page.wait_for_selector(".mark b:text-matches('^1 [^,]*$')")


@pytest.mark.parametrize("style", ["display: none", "width: 0", "width: 3px; overflow: hidden", None])
def test_without_room_nothing_fails(page: Any, address: str, learned: regard.AnswerRun, style: str | None) -> None:
    """A view in a hidden, empty or detached container does not fail in any mode, and is drawn when it becomes
    visible.
    """
    page.goto(address)
    page.wait_for_selector("figure canvas")
    page.evaluate(
        """async ([data, style]) => {
            const { show } = await import("/js/entry.js");
            const home = document.getElementById("view");
            window.box = document.createElement("div");
            box.style.cssText = style ?? "";
            home.replaceChildren(...(style === null ? [] : [box]));
            const view = await show(box, JSON.parse(data));
            for (const mode of ["lines", "table", "overview", "heatmap"]) {
                await view.choose({ mode });
                view.printing(true);
                view.printing(false);
                await new Promise(setTimeout);
            }
            box.style.cssText = "";
            home.replaceChildren(box);
        }""",
        [view_json([learned.attend(INPUT)], packed=True), style],
    )
    page.wait_for_function("() => document.querySelector('#view figure canvas')?.clientWidth > 300")


@pytest.mark.parametrize("labels", [[], ["", "\u200b", "\u202eabc", "\t", "\n"]], ids=["none", "unseen"])
def test_missing_labels(page: Any, tmp_path: Path, labels: list[str]) -> None:
    weights = np.full((2, len(labels), len(labels)), 1 / max(len(labels), 1), dtype=np.float32)
    page.goto(write_page(tmp_path / "p.html", [map_of(weights, labels, labels)]).as_uri())
    page.wait_for_selector(".legend")
    for mode in ("Lines", "Table", "Overview", "Heatmap"):
        page.click(f"button:text-is('{mode}')")
        settle(page)
    said = page.locator(".tokens > div").nth(1).locator(".token").all_inner_texts()
    assert said == ["∅", "[U+200B]", "[U+202E]abc", "⇥", "↵"][: len(labels)]
    assert "\u202e" not in page.inner_text("#view")


def test_numbers_of_three_digits_are_complete(own_page: Any, tmp_path: Path) -> None:
    """Column labels are measured, so that no label is cut if the space is sufficient."""
    own_page.add_init_script(
        """window.written = [];
        const fillText = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
            window.written.push(text);
            return fillText.call(this, text, ...place);
        };"""
    )
    own_page.goto(_large(tmp_path, 150).as_uri())
    own_page.wait_for_selector("figure canvas")
    settle(own_page)
    assert any(len(text) == 3 for text in own_page.evaluate("window.written"))
    assert not any("…" in text for text in own_page.evaluate("window.written"))


def test_wide_letters_do_not_overlap(own_page: Any, tmp_path: Path) -> None:
    """Labels that are wider than their columns are vertical, even short labels."""
    labels = ["WWW", "MMM", "WMW", "MWM"] * 8
    weights = np.full((1, 1, 32), 1 / 32, dtype=np.float32)
    own_page.add_init_script(
        """window.turned = 0;
        const rotate = CanvasRenderingContext2D.prototype.rotate;
        CanvasRenderingContext2D.prototype.rotate = function (angle) {
            window.turned += 1;
            return rotate.call(this, angle);
        };"""
    )
    own_page.set_viewport_size({"width": 800, "height": 600})
    own_page.goto(write_page(tmp_path / "p.html", [map_of(weights, ["q"], labels)]).as_uri())
    own_page.wait_for_selector("figure canvas")
    settle(own_page)
    assert own_page.evaluate("window.turned") >= 32


def test_lines_report_omitted_weights(page: Any, tmp_path: Path) -> None:
    page.goto(_large(tmp_path, 70).as_uri())
    page.wait_for_selector("figure canvas")
    page.click("text=Lines")
    page.select_option("select[data-name='Of each row']", label="all")
    said = page.inner_text(".lines > p")
    found = re.match(
        r"1,500 of 9,800 weights are drawn; ([\d,]+) below [\d.]+ are omitted, .*; ([\d,]+) are smaller", said
    )
    assert found is not None and page.locator(".lines > svg line").count() == 1500
    left_out, hardly = (int(each.replace(",", "")) for each in found.groups())
    assert 1500 + left_out + hardly == 9800


def test_update_keeps_the_canvas(page: Any, address: str, learned: regard.AnswerRun) -> None:
    """New data of the same size is drawn on the same canvas."""
    page.goto(address)
    page.wait_for_selector("canvas")
    given = [view_json([learned.attend(text)], packed=True) for text in (INPUT, INPUT[::-1])]
    same = page.evaluate(
        """async ([one, other]) => {
            const { show } = await import("/js/entry.js");
            const { unpackWeights } = await import("/js/matrix.js");
            const view = await show(document.getElementById("view"), JSON.parse(one));
            while (!document.querySelector("#view figure canvas")) await new Promise(requestAnimationFrame);
            const before = document.querySelector("#view figure canvas");
            view.update(await unpackWeights(JSON.parse(other)));
            return before === document.querySelector("#view figure canvas");
        }""",
        given,
    )
    assert same
