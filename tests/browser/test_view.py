"""The view in exported pages and notebooks: operated with pointer and keys, in every theme, with any labels."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.interpret.importance import importance_by_layer
from regard.viz.maps import Patches
from regard.viz.page import view_json, write_page
from tests.browser.conftest import INPUT, canvas_pixels, choose, map_of, open_view, selection, settle

WRITTEN = """window.written = []; window.turned = 0;
const { fillText, rotate } = CanvasRenderingContext2D.prototype;
CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
    window.written.push(text);
    return fillText.call(this, text, ...place);
};
CanvasRenderingContext2D.prototype.rotate = function (angle) {
    window.turned += 1;
    return rotate.call(this, angle);
};"""
"""JavaScript that records what is written on canvases."""


def exported_page(tmp_path: Path, weights: np.ndarray, queries: list[str], keys: list[str]) -> str:
    return write_page(tmp_path / "p.html", [map_of(weights, queries, keys)]).as_uri()


def _random(tmp_path: Path, heads: int, size: int) -> str:
    weights = np.random.default_rng(0).dirichlet(np.ones(size), size=(heads, size)).astype(np.float32)
    labels = [f"t{step}" for step in range(size)]
    return exported_page(tmp_path, weights, labels, labels)


def test_opens_from_a_file_offline(own_page: Any, exported: Path, learned: regard.AnswerRun) -> None:
    requests: list[str] = []
    own_page.on("request", lambda request: requests.append(request.url))
    open_view(own_page, exported.as_uri())
    assert requests == ["about:blank", exported.as_uri()][-len(requests) :]
    assert own_page.inner_text("h1") == f"signal2: {INPUT}"
    assert "after 150 training steps" in own_page.inner_text(".playback")
    own_page.locator("input[data-name=time]").focus()
    own_page.keyboard.press("Home")
    settle(own_page)
    first = learned.playback(INPUT).frames[0].prediction
    assert own_page.inner_text(".prediction").split() == list(map(str, first or []))
    assert own_page.evaluate("document.activeElement.dataset.name") == "time"  # it is dragged on


def test_colours_follow_the_weights_in_every_theme(page: Any, tmp_path: Path) -> None:
    """A weak head is paler than a strong one; on a dark page it is darker; on paper as on a light page."""
    weights = np.array([[[0.9, 0.1]], [[0.45, 0.55]]], dtype=np.float32)
    page.goto(exported_page(tmp_path, weights, ["q"], ["a", "b"]))
    page.wait_for_selector("figure canvas")
    settle(page)

    def shade(head: int, key: int) -> float:
        red, green, blue = page.evaluate(
            """([head, share]) => {
                const canvas = document.querySelectorAll("figure canvas")[head];
                const [x, y] = [canvas.width * share, 60];
                return [...canvas.getContext("2d").getImageData(x, y, 1, 1).data].slice(0, 3);
            }""",
            [head, 0.3 + 0.5 * key],
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    assert shade(0, 0) < shade(1, 1) < shade(1, 0) < shade(0, 1)
    assert page.inner_text(".ramp").split() == ["0", "0.90"]
    page.select_option("select[data-name=Colors]", label="each head its own")
    settle(page)
    captions = page.locator("figcaption").all_inner_texts()
    assert ["own scale: 0 to 0.90" in captions[0], "own scale: 0 to 0.55" in captions[1]] == [True, True]
    assert "scale=own" in page.url and abs(shade(0, 0) - shade(1, 1)) < 2
    choose(page, scale="shared")
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector(".regard-view.dark")
    settle(page)
    assert shade(0, 0) > shade(1, 1) > shade(1, 0) > shade(0, 1)
    page.emulate_media(color_scheme="dark", media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    settle(page)
    assert shade(0, 0) < shade(1, 1) < shade(0, 1)


@pytest.mark.parametrize("how", ["system", "notebook"])
def test_the_theme_changes(page: Any, tmp_path: Path, how: str) -> None:
    """After a change of theme, everything looks the same as on a page opened in this theme."""
    open_view(page, exported_page(tmp_path, np.array([[[1.0, 0.0], [0.5, 0.5]]], np.float32), ["p", "q"], ["a", "b"]))

    def drawn() -> list[str]:
        page.wait_for_timeout(150)
        return page.evaluate("[...document.querySelectorAll('canvas')].map((canvas) => canvas.toDataURL())")

    light = drawn()
    if how == "system":
        page.emulate_media(color_scheme="dark")
    else:  # a style of the notebook
        page.evaluate("document.body.style.cssText = 'color: oklch(0.95 0 0); background: black'")
    page.wait_for_selector(".regard-view.dark")
    dark = drawn()
    assert len(dark) == len(light) == 3  # picture, legend, and the grid of heads
    assert all(one != other for one, other in zip(light, dark, strict=True))
    if how == "system":
        page.reload()
        page.wait_for_selector("figure canvas")
        assert drawn() == dark
        page.emulate_media(color_scheme="light")
    else:
        page.evaluate("document.body.style.cssText = ''")
    page.wait_for_selector(".regard-view:not(.dark)")
    assert drawn() == light


def test_kinds_layers_and_words(page: Any, german: regard.TranslationRun, tmp_path: Path) -> None:
    attention = german.attend("Heute läuft der alte Hund.")
    open_view(page, attention.to_html(tmp_path / "page.html").as_uri())
    grid = page.locator(".heads [role=grid]")
    assert grid.get_attribute("aria-rowcount") == str(len(attention.layers))
    assert grid.get_attribute("data-head").startswith("cross 0.")
    columns = page.locator("figure [role=grid]").first.get_attribute("aria-colcount")
    page.click("[data-name=view]")
    page.check("text=whole words")
    settle(page)
    words = page.locator("figure [role=grid]").first.get_attribute("aria-colcount")
    assert int(words) == len(attention.words().cross.key_labels) < int(columns)
    grid.focus()
    page.keyboard.press("ArrowUp")
    settle(page)
    assert grid.get_attribute("data-head").startswith("decoder 0.")
    choose(page, mode="flow", layer="encoder.1.self_attention")
    assert "Abnar and Zuidema" in page.inner_text(".facts") and page.locator("figure").count() == 1
    assert page.inner_text(".sentence").startswith("Rollout up to")


def test_several_inputs(page: Any, learned: regard.AnswerRun, tmp_path: Path) -> None:
    maps = [learned.attend(text) for text in (INPUT, INPUT[::-1])]
    open_view(page, write_page(tmp_path / "p.html", maps).as_uri())
    page.select_option("select[data-name=Input]", label=INPUT[::-1])
    settle(page)
    assert selection(page)["input"] == INPUT[::-1] and "map=1" in page.url


def test_keys_move_and_zoom(page: Any, tmp_path: Path) -> None:
    open_view(page, _random(tmp_path, 1, 90))
    grid = page.locator("figure [role=grid]")
    grid.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "End", "ArrowLeft"):
        page.keyboard.press(key)
    settle(page)
    assert (selection(page)["query"], selection(page)["key"]) == (1, 88)
    whole = canvas_pixels(page)
    page.keyboard.press("+")
    settle(page)
    zoomed = canvas_pixels(page)
    assert zoomed != whole
    page.keyboard.press("ArrowLeft")  # the zoom stays when something else is chosen
    page.keyboard.press("ArrowRight")
    settle(page)
    assert canvas_pixels(page) == zoomed
    page.keyboard.press("0")
    settle(page)
    assert canvas_pixels(page) == whole
    page.keyboard.press("?")
    assert page.locator("dialog").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("dialog").is_hidden()


def test_labels_are_whole_and_all_upright_or_none(own_page: Any, tmp_path: Path) -> None:
    """Letters are written horizontally; labels wider than a column turn all columns; of too many every n-th is
    written, and that is said."""
    own_page.add_init_script(WRITTEN)
    weights = np.full((1, 4, 4), 0.25, dtype=np.float32)
    open_view(own_page, exported_page(tmp_path, weights, list("abcd"), list("abcd")))
    assert own_page.evaluate("window.turned") == 0
    wide = ["WWWWW", "MMMMM", "WMWMW", "MWMWM"] * 8
    open_view(own_page, exported_page(tmp_path, np.full((1, 1, 32), 1 / 32, np.float32), ["q"], wide))
    assert own_page.evaluate("window.turned % 32") == 0 and own_page.evaluate("window.turned") >= 32
    open_view(own_page, _random(tmp_path, 18, 150))
    written = own_page.evaluate("window.written")
    assert any("1 label in" in text for text in written) and not any("…" in text for text in written)
    assert "rounded by at most 0.4 %" in own_page.inner_text(".answer .note")  # in 8 bits


def test_lines_report_what_is_left_out(own_page: Any, tmp_path: Path) -> None:
    own_page.add_init_script(WRITTEN)
    open_view(own_page, _random(tmp_path, 1, 70), "mode=lines&top=0")
    assert any("weaker lines are left out" in text for text in own_page.evaluate("window.written"))
    box = own_page.locator("figure canvas").bounding_box()
    own_page.mouse.move(box["x"] + 10, box["y"] + box["height"] - 8)  # the last query
    own_page.wait_for_function(
        "() => JSON.parse(document.querySelector('.regard-view').dataset.selection).query === 69"
    )
    own_page.mouse.click(box["x"] + box["width"] - 10, box["y"] + box["height"] - 8)  # the last key
    assert selection(own_page)["key"] == 69


def test_weights_overlay_an_image(page: Any, tmp_path: Path) -> None:
    weights = np.full((2, 5, 5), 0.05, np.float32)
    weights[:, :, 0] = 0.1
    weights[0, 0, 3] = weights[1, 2, 4] = 0.75
    labels = ["[CLS]", "0,0", "0,1", "1,0", "1,1"]
    seen = map_of(weights, labels, labels)
    layer = dataclasses.replace(seen.layers["cross"], kind_override="encoder", patches=Patches(1, 2, 2))
    pixels = np.full((20, 20, 3), 200, np.uint8)
    seen = dataclasses.replace(seen, layers={"cross": layer}, pixels=pixels)
    open_view(page, seen.to_html(tmp_path / "page.html").as_uri(), "layer=cross&query=0&head=0")

    def strongest(head: int) -> list[int]:
        colours = page.evaluate(
            """(head) => {
                const canvas = document.querySelectorAll("figure canvas")[head];
                const context = canvas.getContext("2d");
                const side = Math.min(canvas.width, canvas.height - 26);
                return [0, 1, 2, 3].map((patch) => {
                    const [x, y] = [(patch % 2) + 0.5, Math.floor(patch / 2) + 0.5];
                    return [...context.getImageData((x * side) / 2, 26 + (y * side) / 2, 1, 1).data];
                });
            }""",
            head,
        )
        return [patch for patch, (red, _, blue, _) in enumerate(colours) if red - blue > 120]

    assert page.inner_text(".ramp").split() == ["0", "0.750"]
    assert (strongest(0), strongest(1)) == ([2], [])
    box = page.locator("figure canvas").nth(1).bounding_box()
    side = min(box["width"], box["height"] - 26)
    page.mouse.click(box["x"] + 0.75 * side, box["y"] + 26 + 0.25 * side)  # the patch in the upper right
    page.mouse.move(2, 2)
    settle(page)
    assert selection(page)["query"] == 2 and (strongest(0), strongest(1)) == ([], [3])
    page.click("[role=radio][data-name=Matrix]")
    page.reload()
    page.wait_for_selector("figure canvas")
    assert "mode=heatmap" in page.url and page.locator("[data-name=Matrix][aria-checked=true]").count() == 1


@pytest.mark.parametrize(
    "labels", [[], ["", "\u200b", "\u202eabc", "\t", "</script><img src=x>"]], ids=["none", "unseen"]
)
def test_any_labels(page: Any, tmp_path: Path, labels: list[str]) -> None:
    weights = np.full((2, len(labels), len(labels)), 1 / max(len(labels), 1), dtype=np.float32)
    page.goto(exported_page(tmp_path, weights, labels, labels))
    page.wait_for_selector(".legend")
    for mode in ("Lines", "Matrix"):
        page.click(f"[role=radio][data-name={mode}]")
        settle(page)
    said = page.locator(".row .key-name").all_inner_texts()
    assert sorted(said) == sorted(["∅", "[U+200B]", "[U+202E]abc", "⇥", "</script><img src=x>"][: len(labels)])
    assert "\u202e" not in page.inner_text("#view") and page.locator("img").count() == 0


def test_forced_colours_keep_the_weights(page: Any, tmp_path: Path) -> None:
    open_view(page, _random(tmp_path, 2, 8))
    before = canvas_pixels(page)
    page.emulate_media(forced_colors="active")
    settle(page)
    assert canvas_pixels(page) == before


def test_focus_and_size_survive_hiding_and_narrowing(page: Any, exported: Path) -> None:
    open_view(page, exported.as_uri())
    before = page.locator("figure canvas").first.bounding_box()
    page.evaluate("document.getElementById('view').style.display = 'none'")
    settle(page)
    page.evaluate("document.getElementById('view').style.display = ''")
    settle(page)
    assert page.locator("figure canvas").first.bounding_box() == before
    page.locator("figure [role=grid]").nth(1).focus()
    page.set_viewport_size({"width": 500, "height": 800})
    settle(page)
    assert page.evaluate("document.activeElement.dataset.name") == "picture-1"


# The view in other pages.

SHOW = """async ([text, options]) => {
    const { show } = await import("/view.js");
    const frozen = (value) => {
        if (typeof value !== "object" || value === null) return value;
        Object.values(value).forEach(frozen);
        return Object.freeze(value);
    };
    window.given = frozen(JSON.parse(text));
    window.before = JSON.stringify(window.given);
    window.asked = [];
    const element = document.getElementById("view");
    window.view = await show(element, window.given, { touch: (all) => window.asked.push(frozen(all)) });
}"""


def test_data_of_the_caller_is_unchanged(page: Any, address: str, learned: regard.AnswerRun) -> None:
    """The view works with frozen data and does not change the data."""
    open_view(page, address)
    attention, playback = learned.attend(INPUT), learned.playback(INPUT)
    with regard.intervene(learned.model, "cross", heads=[1]):
        touched = learned.attend(INPUT)
    worth = importance_by_layer(learned.importance())
    given = view_json([touched, attention], packed=True, original=attention, importance=worth, playback=vars(playback))
    page.evaluate(
        SHOW, [given.replace("{", '{"interventions": [{"layer": "cross", "heads": [1], "to": "off"}], ', 1), {}]
    )
    settle(page)
    for mode in ("Lines", "Flow", "Matrix"):
        page.click(f"[role=radio][data-name={mode}]")
        settle(page)
    page.evaluate("window.view.choose({ head: 1, change: true })")
    page.click(".touch [data-name=uniform]")
    page.click(".mark button")
    assert page.evaluate("window.asked.map(([{ to }]) => to)") == ["uniform", "off"]  # as it was
    page.locator("input[data-name=time]").focus()
    page.keyboard.press("Home")
    settle(page)
    assert page.evaluate("JSON.stringify(window.given) === window.before")
    page.evaluate("window.view.destroy()")
    assert page.locator(".regard-view").count() == 0


@pytest.mark.parametrize("style", ["display: none", "width: 3px; overflow: hidden", None])
def test_without_room_nothing_fails(page: Any, address: str, learned: regard.AnswerRun, style: str | None) -> None:
    """A view in a hidden, narrow or detached container does not fail, and is drawn when it becomes visible; new
    data of the same size is drawn on the same canvas."""
    open_view(page, address)
    given = [view_json([learned.attend(text)], packed=True) for text in (INPUT, INPUT[::-1])]
    same = page.evaluate(
        """async ([first, second, style]) => {
            const { show, unpackWeights } = await import("/view.js");
            const home = document.getElementById("view");
            const box = document.createElement("div");
            box.style.cssText = style ?? "";
            home.replaceChildren(...(style === null ? [] : [box]));
            const view = await show(box, JSON.parse(first));
            for (const mode of ["lines", "flow", "heatmap"]) {
                view.choose({ mode });
                dispatchEvent(new Event("beforeprint"));
                dispatchEvent(new Event("afterprint"));
                await new Promise(setTimeout);
            }
            box.style.cssText = "";
            home.replaceChildren(box);
            await new Promise(requestAnimationFrame);
            const before = box.querySelector("figure canvas");
            view.update(await unpackWeights(JSON.parse(second)));
            return before === box.querySelector("figure canvas");
        }""",
        [*given, style],
    )
    page.wait_for_function("() => document.querySelector('#view figure canvas')?.clientWidth > 150")
    assert same


def test_widget_requests_exact_weights(page: Any, address: str, learned: regard.AnswerRun) -> None:
    """The selected row has exact weights, except in a snapshot, which the kernel does not store."""
    open_view(page, address)
    playback = learned.playback(INPUT)
    page.evaluate(
        """async (text) => {
            const { default: widget } = await import("/view.js");
            const listeners = {};
            window.asked = [];
            const model = {
                get: (name) => (name === "data" ? text : false),
                on: (event, listener) => { listeners[event] = listener; },
                send: ({ id, ...row }) => {
                    window.asked.push(row);
                    listeners["msg:custom"]({ id, found: Array(20).fill(0.123456789012) });
                },
            };
            window.leave = await widget.render({ model, el: document.getElementById("view") });
        }""",
        view_json(playback.frames[-1:], packed=True, playback=vars(playback)),
    )
    settle(page)
    page.locator("figure [role=grid]").nth(1).focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_function("() => document.querySelector('output').textContent.endsWith('0.123456789012 exactly')")
    assert page.evaluate("window.asked") == [{"map": 0, "layer": "cross", "head": 1, "query": 0}]
    page.locator("input[data-name=time]").focus()
    page.keyboard.press("Home")
    page.wait_for_selector("text=after 0 training steps")
    assert "exactly" not in page.inner_text("output") and page.evaluate("window.asked.length") == 1
    page.evaluate("window.leave()")


def test_widget_of_a_run_explains_a_weight(own_page: Any, address: str, learned: regard.AnswerRun) -> None:
    widget = learned.view(INPUT)
    answers: list[dict[str, Any]] = []
    widget.send = answers.append

    def ask(question: dict[str, Any]) -> dict[str, Any]:
        widget._answer(widget, question, [])
        return answers[-1]

    own_page.expose_function("askPython", ask)
    own_page.set_viewport_size({"width": 1280, "height": 800})
    open_view(own_page, address)
    own_page.evaluate(
        """async (data) => {
            const { default: widget } = await import("/view.js");
            const listeners = {};
            const model = {
                get: (name) => (name === "data" ? data : true),
                on: (event, listener) => { listeners[event] = listener; },
                send: async (question) => { listeners["msg:custom"](await window.askPython(question)); },
            };
            window.leave = await widget.render({ model, el: document.getElementById("view") });
        }""",
        widget.data,
    )
    own_page.click("[data-name='How it is computed']")
    own_page.wait_for_selector(".sum h2")
    title = own_page.inner_text(".sum h2")
    found = learned.explain(INPUT, layer="cross", head=int(title.split()[2]))
    assert f"the weight {found.weight:.4f} on" in title
    assert ask({"id": "1", "explain": {"layer": "nowhere"}})["error"].startswith("layer 'nowhere'")
    own_page.evaluate("window.leave()")


@pytest.mark.slow
def test_four_thousand_tokens_do_not_freeze_the_page(own_page: Any, tmp_path: Path) -> None:
    size = 4096
    weights = np.random.default_rng(0).random((1, size, size), dtype=np.float32) ** 20
    weights /= weights.sum(-1, keepdims=True)
    labels = [f"t{step}" for step in range(size)]
    own_page.set_default_timeout(60_000)
    own_page.goto(exported_page(tmp_path, weights, labels, labels))
    own_page.wait_for_selector("figure canvas")
    own_page.evaluate(
        """() => { window.longest = 0; let last = performance.now();
            const watch = () => {
                const now = performance.now();
                window.longest = Math.max(window.longest, now - last);
                last = now;
                requestAnimationFrame(watch);
            };
            requestAnimationFrame(watch); }"""
    )
    box = own_page.locator("figure canvas").bounding_box()
    for step in range(40):
        own_page.mouse.move(box["x"] + 150 + 5 * step, box["y"] + 150 + 5 * step)
    own_page.click("button:text-is('+')")
    own_page.mouse.move(box["x"] + 300, box["y"] + 300)
    own_page.mouse.down()
    own_page.mouse.move(box["x"] + 200, box["y"] + 200, steps=10)
    own_page.mouse.up()
    own_page.click("[role=radio][data-name=Lines]")
    own_page.click("[role=radio][data-name=Matrix]")
    settle(own_page)
    assert own_page.evaluate("window.longest") < 1000  # milliseconds, on a busy machine
