"""The three panes of the page: size, tabs, undo, and messages during computations."""

import dataclasses
import io
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import regard
from regard.viz.page import write_page
from tests.browser.conftest import map_of, settle
from tests.browser.test_explorer import _type
from tests.browser.test_facts import _saver

INPUT = "BCCCBAABACCCA"
OVERFLOW = "[document.documentElement.scrollHeight - innerHeight, document.documentElement.scrollWidth - innerWidth]"


def _heads(size: int) -> np.ndarray:
    """Return weights (3, size, size) of a uniform head, a previous-token head, and a head with an attention
    sink.
    """
    query, key = np.indices((size, size))
    scores = np.stack(
        [0.0 * key, 9.0 * (key == np.maximum(query - 1, 0)), np.where(key == 0, 6.0, -0.2 * abs(query - key))]
    )
    exponentials = np.exp(scores)
    return (exponentials / exponentials.sum(-1, keepdims=True)).astype(np.float32)


def _real(tmp_path: Path, size: int = 60) -> str:
    labels = [f"t{step}" for step in range(size)]
    return write_page(tmp_path / "p.html", [map_of(_heads(size), labels, labels)]).as_uri()


@pytest.mark.parametrize("subject", ["run", "translator", "page"])
def test_all_panes_fit_a_laptop(page: Any, address: str, translating: str, tmp_path: Path, subject: str) -> None:
    """Only the panes scroll, so that a change and its effect are on one screen."""
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto({"run": address, "translator": translating, "page": _real(tmp_path)}[subject])
    page.wait_for_selector("figure canvas")
    settle(page)
    assert page.evaluate(OVERFLOW) == [0, 0]
    for pane in ("heads", "picture", "inspector"):
        box = page.locator(f".pane.{pane}").bounding_box()
        assert box["width"] > 180 and box["height"] > 500 and box["y"] + box["height"] <= 800
    canvas = page.locator("figure canvas").first.bounding_box()
    assert canvas["y"] + canvas["height"] <= page.locator(".legend").bounding_box()["y"] + 2 or subject == "translator"
    page.set_viewport_size({"width": 3840, "height": 2160})
    settle(page)
    assert page.evaluate(OVERFLOW) == [0, 0]
    wide = page.locator(".pane.inspector").bounding_box()
    assert wide["x"] + wide["width"] > 3780  # no empty margins on a large screen
    assert float(page.evaluate("parseFloat(getComputedStyle(document.querySelector('.sentence')).fontSize)")) > 20


def test_in_a_narrow_view_the_panes_are_tabs(page: Any, tmp_path: Path) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(_real(tmp_path))
    page.wait_for_selector("figure canvas")
    assert page.locator("figure canvas").first.bounding_box()["y"] < 320  # the picture is what one sees first
    assert page.locator(".tile").first.is_hidden() and page.locator("output").is_hidden()
    page.click("[role=tab]:text-is('Heads')")
    page.click(".tile >> nth=2")
    settle(page)
    assert "head=2" in page.url and page.locator("figure canvas").is_visible()  # back at the picture
    page.locator("[role=tab][aria-selected=true]").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("output").is_visible() and page.locator("figure canvas").is_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_head_is_chosen_among_all(page: Any, tmp_path: Path) -> None:
    page.goto(_real(tmp_path))
    page.wait_for_selector(".tile canvas")
    page.locator(".tile").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    settle(page)
    assert page.locator("[aria-current=true]").get_attribute("data-name") == "tile-cross-1"
    assert page.inner_text("figcaption b") == "head 1"
    page.select_option("select[data-name='Rank by']", label="entropy")
    widths = page.locator(".tile .measure i").evaluate_all("all => all.map((each) => parseFloat(each.style.width))")
    assert widths[0] == 100 and widths[1] < 20 < widths[0]  # uniform, and a single key


def test_the_first_three_heads_are_numbered(page: Any, tmp_path: Path) -> None:
    """A sentence names the heads with the largest weights, and a click opens them."""
    labels = [f"t{step}" for step in range(12)]
    page.goto(write_page(tmp_path / "p.html", [map_of(np.tile(_heads(12), (2, 1, 1)), labels, labels)]).as_uri())
    page.wait_for_selector(".top")
    ranks = page.locator(".tile").evaluate_all("all => all.map((tile) => tile.dataset.rank ?? '')")
    assert sorted(ranks[1::3]) == ["1", "2"] and sorted(ranks) == ["", "", "", "1", "2", "3"]  # diagonals first
    assert page.inner_text(".ranking").startswith("The three heads with the largest weights")
    page.click("[data-name=rank-1]")
    settle(page)
    assert page.locator("[aria-current=true]").get_attribute("data-rank") == "2"
    page.select_option("select[data-name='Rank by']", label="entropy")
    assert "lowest entropy" in page.inner_text(".ranking")


def test_the_inspector_compares_before_and_after(page: Any, address: str) -> None:
    _type(page, address)
    page.select_option("select[data-name=Head]", label="head 1")
    assert page.locator(".changes h2").count() == 0
    page.click("text=head 1 off")
    page.wait_for_selector(".changes h2")
    assert page.inner_text(".mark b") == "1 head off"
    pairs = page.locator(".changes .pairs >> nth=0").locator(".pair")
    assert pairs.count() == 3 and pairs.first.locator(".track i").count() == 2
    rows = page.locator(".row-list .track:has(.before)")
    assert rows.count() > 0 and "→ 0.000" in page.inner_text(".row-list")  # the head is off
    page.keyboard.press("Control+z")
    page.wait_for_function("() => !document.querySelector('.mark, .changes h2')")


@pytest.mark.parametrize("heads", [4, 12, 32])
def test_the_grid_stays_a_grid(page: Any, tmp_path: Path, heads: int) -> None:
    """The overview has a row for each layer and a column for each head, for any number of layers and heads."""
    weights = np.repeat(_heads(12)[:1], heads, axis=0)
    labels = [f"t{step}" for step in range(12)]
    [layer] = map_of(weights, labels, labels).layers.values()
    names = [f"model.layers.{number}.self_attn" for number in range(12)]
    layers = {name: dataclasses.replace(layer, name=name, title=name) for name in names}
    shown = dataclasses.replace(map_of(weights, labels, labels), layers=layers)
    for mode, kind in (("heatmap", ".tile"), ("overview", ".thumb")):
        page.goto(f"{write_page(tmp_path / f'{mode}.html', [shown]).as_uri()}#mode={mode}")
        page.wait_for_selector(f"{kind} canvas")
        tiles = page.locator(kind).evaluate_all("all => all.map((each) => [each.offsetTop, each.offsetLeft])")
        assert len(tiles) == 12 * heads
        rows = [tiles[start : start + heads] for start in range(0, len(tiles), heads)]
        assert all(len({top for top, _ in row}) == 1 for row in rows)
        assert all([left for _, left in row] == [left for _, left in rows[0]] for row in rows)
        assert [name.inner_text() for name in page.locator(f".poster:has({kind}) .layer").all()] == [
            str(number) for number in range(12)
        ]
        assert page.locator(f".poster:has({kind}) .layer").last.get_attribute("title") == names[-1]
        assert page.evaluate("document.documentElement.scrollWidth") <= 1000


def _shades(page: Any, head: int) -> list[float]:
    """Return the darkness of each pixel in the thumbnail of a head; 0 is the background."""
    pixels = page.evaluate(
        """head => {
            const canvas = document.querySelectorAll(".tile canvas")[head];
            return [...canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data];
        }""",
        head,
    )
    return [1 - sum(pixels[at : at + 3]) / 765 for at in range(0, len(pixels), 4)]


def test_heads_show_structure_by_default(page: Any, tmp_path: Path) -> None:
    """The thumbnail of a uniform head is uniform, a diagonal is visible, and an attention sink does not hide
    other weights.
    """
    page.goto(f"{_real(tmp_path)}#scale=shared")
    page.wait_for_selector(".tile canvas")
    assert max(_shades(page, 0)) < 0.08  # on one scale, a uniform head is white
    page.goto("about:blank")
    page.goto(_real(tmp_path))
    page.wait_for_selector(".tile canvas")
    even, diagonal, sink = (np.array(_shades(page, head)) for head in range(3))
    assert even.min() > 0.4 and np.ptp(even) < 0.1
    assert (diagonal > 0.5).mean() < 0.2 and diagonal.max() > 0.6
    size = int(len(sink) ** 0.5)
    beside = sink.reshape(size, size)[size // 2, 2:]
    assert beside.max() > 0.4 and beside.max() - beside.min() > 0.2
    assert "own per head" in page.inner_text(".legend")


def test_scale_is_in_the_address_and_in_saved_files(page: Any, tmp_path: Path) -> None:
    page.goto(f"{_real(tmp_path)}#head=2")
    page.wait_for_selector("figure canvas")
    page.select_option("select[data-name=Colors]", label="rank, own per head")
    page.check("text=set aside first token")
    settle(page)
    assert "scale=rank" in page.url and "aside=true" in page.url
    page.reload()
    page.wait_for_selector("figure canvas")
    settle(page)
    saved, scale = _saver(page), "least weight to largest, rank, own per head; first token set aside"
    assert "rank, own per head; first token set aside" in page.inner_text(".legend")
    assert f"# scale: {scale}\r\n" in saved("CSV").decode()
    with Image.open(io.BytesIO(saved("PNG"))) as image:
        image.load()
        assert image.info["scale"] == scale
    picture = ElementTree.fromstring(saved("SVG"))
    assert f"scale: {scale}" in (picture.findtext("{http://www.w3.org/2000/svg}desc") or "")
    assert any("first token set aside" in (text or "") for text in picture.itertext())


def test_the_overview_has_bars_and_a_matrix(page: Any, tmp_path: Path) -> None:
    page.goto(f"{_real(tmp_path)}#mode=overview&measure=entropy")
    page.wait_for_selector(".thumb canvas")
    page.click("button:text-is('Bars: entropy')")
    bars = page.locator(".chart rect").evaluate_all("all => all.map((each) => Number(each.getAttribute('width')))")
    assert len(bars) == 3 and bars == sorted(bars, reverse=True) and bars[0] > 5 * bars[2]
    page.click("button:text-is('Matrix: entropy')")
    assert page.locator(".chart rect").count() == 3 and "chart=matrix" in page.url
    table = _saver(page)("CSV").decode()
    assert re.search(r"layer,head,[^\r]*entropy", table) and re.search(r"cross,0,[\d.]+,(1|0\.99)", table)


def test_changes_are_undone_one_by_one(page: Any, address: str, learned: regard.AnswerRun) -> None:
    _type(page, address)
    page.select_option("select[data-name=Head]", label="head 1")
    page.click("text=head 1 off")
    page.wait_for_selector(".mark b:text-matches('^1 [^,]*$')")
    assert page.locator(".tile.changed").count() == 1
    page.select_option("select[data-name=Head]", label="head 0")
    page.click("text=head 0 uniform")
    page.wait_for_selector(".mark b:text-is('1 head off, 1 head uniform')")
    page.locator("figure [role=grid]").focus()
    page.keyboard.press("Control+z")
    page.wait_for_selector(".mark b:text-matches('^1 [^,]*$')")
    page.click("button:text-is('undo')")
    page.wait_for_function("() => !document.querySelector('.mark')")
    assert page.inner_text(".prediction").split() == [str(each) for each in learned.attend(INPUT).prediction or []]


def test_the_keys_are_listed(page: Any, address: str) -> None:
    _type(page, address)
    page.locator("figure [role=grid]").first.focus()
    page.keyboard.press("?")
    assert page.locator("dialog").is_visible() and "Ctrl + Z" in page.inner_text("dialog")
    page.keyboard.press("Escape")
    assert page.locator("dialog").is_hidden()
    page.locator("#input").focus()
    page.keyboard.press("?")  # typed
    assert page.locator("dialog").is_hidden() and page.input_value("#input").endswith("?")
    page.wait_for_function("() => document.getElementById('message').textContent !== ''")
    page.complaints.clear()


def test_typing_and_show_send_one_request(page: Any, address: str) -> None:
    _type(page, address)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "attend" in request.url else None)
    page.fill("#input", INPUT[::-1])
    page.wait_for_timeout(250)  # typing has sent a request
    page.keyboard.press("Enter")
    page.click("button:text-is('Show')")
    page.wait_for_function("text => document.querySelector('.answer code')?.textContent === text", arg=INPUT[::-1])
    settle(page)
    assert len(asked) == 1
    page.fill("#input", INPUT)
    page.keyboard.press("Enter")  # before typing has asked
    page.wait_for_function("text => document.querySelector('.answer code')?.textContent === text", arg=INPUT)
    page.wait_for_timeout(300)
    assert len(asked) == 2


def test_page_shows_progress(page: Any, address: str) -> None:
    _type(page, address)
    waiting: list[Any] = []
    page.route("**/api/attend", lambda route: waiting.append(route))
    page.fill("#input", INPUT[::-1])
    page.keyboard.press("Enter")
    page.wait_for_timeout(100)
    assert page.inner_text("#work") == ""  # fast answers show no progress
    page.wait_for_selector("#work:has-text('The model is computing')", timeout=1000)
    waiting[0].continue_()
    page.wait_for_function("() => document.getElementById('work').textContent === ''")


def test_many_tokens_of_lines_fit_the_pane(page: Any, tmp_path: Path) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(f"{_real(tmp_path, 100)}#mode=lines&head=1&query=50")
    page.wait_for_selector(".lines line")
    settle(page)
    box, stage = (page.locator(each).bounding_box() for each in (".lines > svg", ".stage"))
    assert box["y"] + box["height"] <= stage["y"] + stage["height"]
    assert (page.text_content("[data-name=line-query-50]") or "").startswith("t50")
    dots = page.locator("[data-name^=line-query]").evaluate_all(
        "all => all.filter((each) => each.firstChild.data === '·').map((each) => each.dataset.name)"
    )
    assert len(dots) > 40 and not {"line-query-49", "line-query-51"} & set(dots)
    assert "labels are dots" in page.inner_text(".lines > p")
    strengths = page.locator(".lines line").evaluate_all(
        "all => all.map((each) => Number(each.getAttribute('stroke-opacity')))"
    )
    assert strengths[0] > 0.9 and max(strengths[5:]) < 0.4  # the chosen row before all others
    page.locator(f"[data-name={dots[-1]}]").click(force=True)
    settle(page)
    label = dots[-1].replace("line-query-", "t")
    assert (page.text_content(f"[data-name={dots[-1]}]") or "").startswith(label)


def test_forced_colours_keep_the_weights(page: Any, tmp_path: Path) -> None:
    page.emulate_media(forced_colors="active")
    page.goto(f"{_real(tmp_path)}#head=1&query=5")
    page.wait_for_selector("figure canvas")
    settle(page)
    colours = (
        page.locator(".tokens > div >> nth=1")
        .locator(".token")
        .evaluate_all("all => all.map((each) => getComputedStyle(each).backgroundColor)")
    )
    assert len(set(colours)) > 1 and colours[4] != colours[30]
