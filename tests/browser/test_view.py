"""The view in an exported page, opened from a file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.interpret.importance import importance_by_layer
from regard.viz.page import view_json, write_page
from tests.browser.conftest import map_of, settle


def _pixel(page: Any, figure: int, x: float, y: float) -> list[int]:
    """Return the color of a canvas at a position, given as fractions of its width and height."""
    return page.evaluate(
        """([figure, x, y]) => {
            const canvas = document.querySelectorAll('figure canvas')[figure];
            const [column, row] = [Math.floor(x * canvas.width), Math.floor(y * canvas.height)];
            return Array.from(canvas.getContext('2d').getImageData(column, row, 1, 1).data).slice(0, 3);
        }""",
        [figure, x, y],
    )


def test_opens_from_a_file_offline(own_page: Any, exported: Path, learned: regard.AnswerRun) -> None:
    own_page.context.set_offline(True)
    own_page.goto(exported.as_uri())
    own_page.wait_for_selector("figure canvas")
    assert "after 150 training steps" in own_page.inner_text("#view")
    own_page.locator("input[data-name=time]").focus()
    own_page.keyboard.press("Home")
    own_page.wait_for_selector("text=after 0 training steps")


def test_colours_follow_the_weights_on_one_scale(page: Any, tmp_path: Path) -> None:
    """White is zero and dark blue is the largest weight of all heads; a dark page inverts the colors."""
    weights = np.array([[[1.0, 0.0]], [[0.5, 0.5]]], dtype=np.float32)
    page.goto(write_page(tmp_path / "p.html", [map_of(weights, ["q"], ["a", "b"])]).as_uri())
    page.wait_for_selector("figure canvas")
    settle(page)
    width, left, cell = (
        page.evaluate("document.querySelector('figure canvas').clientWidth"),
        page.evaluate("document.querySelector('figure canvas').clientWidth - 4 - 80"),
        40,
    )

    def shade(head: int, key: int) -> float:
        red, green, blue = _pixel(page, head, (left + (key + 0.3) * cell) / width, 0.65)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    assert shade(0, 0) < shade(1, 0) < shade(0, 1) and abs(shade(1, 0) - shade(1, 1)) < 2
    assert shade(0, 1) > 250
    page.emulate_media(color_scheme="dark")
    settle(page)
    assert shade(0, 0) > shade(1, 0) > shade(0, 1)
    page.emulate_media(color_scheme="dark", media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    settle(page)
    assert shade(0, 0) < shade(0, 1)


def test_layers_heads_kinds_and_words(page: Any, german: regard.TranslationRun, tmp_path: Path) -> None:
    attention = german.attend("Heute läuft der alte Hund.")
    page.goto(attention.to_html(tmp_path / "p.html").as_uri())
    page.wait_for_selector("figure canvas")
    assert page.locator("figure canvas").count() == 2
    page.select_option("select[data-name=Kind]", label="encoder")
    page.select_option("select[data-name=Layer]", index=1)
    settle(page)
    assert page.locator("select[data-name=Layer] option:checked").inner_text().endswith("layer 1")
    page.select_option("select[data-name=Head]", label="head 1")
    settle(page)
    assert page.locator("figure canvas").count() == 1
    page.select_option("select[data-name=Kind]", index=2)
    settle(page)
    before = page.locator(".tokens > div").nth(1).inner_text()
    page.check("text=whole words")
    settle(page)
    after = page.locator(".tokens > div").nth(1).locator(".token").all_inner_texts()
    assert after == attention.words().cross.key_labels and "".join(after) != before


def test_several_inputs(page: Any, learned: regard.AnswerRun, tmp_path: Path) -> None:
    maps = [learned.attend(seed=seed) for seed in range(3)]
    page.goto(write_page(tmp_path / "p.html", maps).as_uri())
    page.wait_for_selector("figure canvas")
    page.select_option("select[data-name=Input]", index=2)
    page.wait_for_function("text => document.querySelector('.answer code').textContent === text", arg=maps[2].input)


def test_keys_move_and_zoom(page: Any, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    weights = generator.dirichlet(np.ones(200), size=(2, 200)).astype(np.float32)
    labels = [f"w{step}" for step in range(200)]
    page.goto(f"{write_page(tmp_path / 'p.html', [map_of(weights, labels, labels)]).as_uri()}#head=0")
    page.wait_for_selector("figure canvas")
    page.locator("figure [role=grid]").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "+", "+", "]"):
        page.keyboard.press(key)
        settle(page)
    assert page.locator("figcaption").first.inner_text().startswith("head 1")
    assert page.inner_text("output") == f"head 1: w1 → w1 (step 1): {weights[1, 1, 1]:.4f}"


def test_lines(page: Any, learned: regard.AnswerRun, exported: Path) -> None:
    page.goto(exported.as_uri())
    page.wait_for_selector("figure canvas")
    page.click("text=Lines")
    page.wait_for_selector("svg[aria-label^=Lines]")
    assert page.locator("svg[aria-label^=Lines] line").count() > 3
    page.locator("svg[aria-label^=Lines] text.word").first.hover()
    visible = page.locator("svg[aria-label^=Lines] line[visibility=visible]").count()
    assert 0 < visible < page.locator("svg[aria-label^=Lines] line").count()


def test_data_of_the_caller_is_unchanged(page: Any, address: str, learned: regard.AnswerRun) -> None:
    """The view works with frozen data and does not change the data."""
    page.goto(address)
    page.wait_for_selector("canvas")
    attention, playback = learned.attend("BCCCBAABACCCA"), learned.playback("BCCCBAABACCCA")
    with regard.intervene(learned.model, "cross", heads=[1]):
        touched = learned.attend("BCCCBAABACCCA")
    given = view_json(
        [touched, attention],
        packed=True,
        original=attention,
        importance=importance_by_layer(learned.importance()),
        playback=vars(playback),
    )
    page.evaluate(
        """async (text) => {
            const { show } = await import("/js/entry.js");
            const frozen = (value) => {
                if (typeof value !== "object" || value === null) return value;
                Object.values(value).forEach(frozen);
                return Object.freeze(value);
            };
            const data = JSON.parse(text);
            for (const layer of data.maps[0].layers) { // as if its labels were pieces of two words
                const last = layer.keys.length - 1;
                layer.key_words = [[0], Array.from({ length: last }, (_, index) => index + 1)];
            }
            window.given = frozen({ ...data, interventions: [{ layer: "cross", heads: [1], to: "off" }] });
            window.before = JSON.stringify(window.given);
            window.asked = [];
            const element = document.getElementById("view");
            window.view = await show(element, window.given, { touch: (all) => window.asked.push(frozen(all)) });
        }""",
        given,
    )
    settle(page)
    for mode in ("Lines", "Overview", "Heatmap"):
        page.click(f"button:text-is('{mode}')")
        settle(page)
    page.check("text=whole words")
    settle(page)
    assert page.locator(".tokens > div").nth(1).locator(".token").count() == 2
    page.uncheck("text=whole words")
    page.check("text=difference to the original")
    page.select_option("select[data-name=Head]", label="head 1")
    settle(page)
    page.click("text=head 1 uniform")
    page.click(".mark button")
    assert page.evaluate("window.asked.map(([{ to }]) => to)") == [
        "uniform",
        "off",
    ]  # as it was
    page.locator("input[data-name=time]").focus()
    page.keyboard.press("Home")
    settle(page)
    assert page.evaluate("JSON.stringify(window.given) === window.before")
    page.evaluate("window.view.destroy()")
    assert page.locator(".regard-view").count() == 0


def test_widget_requests_exact_weights(page: Any, address: str, learned: regard.AnswerRun) -> None:
    """The selected row has exact weights, except in a snapshot, which the kernel does not store."""
    page.goto(address)
    page.wait_for_selector("canvas")
    playback = learned.playback("BCCCBAABACCCA")
    page.evaluate(
        """async (text) => {
            const { default: widget } = await import("/js/entry.js");
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
    assert "exactly" not in page.inner_text("output")
    assert page.evaluate("window.asked.length") == 1
    page.evaluate("window.leave()")


def test_widget_of_a_run_explains_a_weight(own_page: Any, address: str, learned: regard.AnswerRun) -> None:
    widget = learned.view("BCCCBAABACCCA")
    answers: list[dict[str, Any]] = []
    widget.send = answers.append

    def ask(question: dict[str, Any]) -> dict[str, Any]:
        widget._answer(widget, question, [])
        return answers[-1]

    own_page.expose_function("askPython", ask)
    own_page.goto(address)
    own_page.wait_for_selector("canvas")
    own_page.evaluate(
        """async (data) => {
            const { default: widget } = await import("/js/entry.js");
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
    own_page.click("text=Explain this weight")
    own_page.wait_for_selector(".sum h2")
    title = own_page.inner_text(".sum h2")
    found = learned.explain("BCCCBAABACCCA", layer="cross", head=int(title.split()[2]))
    assert f"the weight {found.weight:.4f} on" in title
    assert ask({"id": "1", "explain": {"layer": "nowhere"}})["error"].startswith("layer 'nowhere'")
    own_page.evaluate("window.leave()")


def test_a_view_that_is_hidden(page: Any, exported: Path) -> None:
    """A view that was drawn without width in a hidden notebook tab is drawn correctly when it becomes
    visible.
    """
    page.goto(exported.as_uri())
    page.wait_for_selector("figure canvas")
    before = page.locator("figure canvas").first.bounding_box()
    page.evaluate("document.getElementById('view').style.display = 'none'")
    settle(page)
    page.evaluate("document.getElementById('view').style.display = ''")
    settle(page)
    assert page.locator("figure canvas").first.bounding_box() == before


def test_the_focus_stays_where_it_is_when_the_page_becomes_narrower(page: Any, exported: Path) -> None:
    page.goto(exported.as_uri())
    page.wait_for_selector("figure canvas")
    page.locator("figure [role=grid]").nth(1).focus()
    page.set_viewport_size({"width": 500, "height": 800})
    settle(page)
    assert page.evaluate("document.activeElement.dataset.name") == "heatmap-1"


@pytest.mark.slow
def test_four_thousand_tokens_do_not_freeze_the_page(own_page: Any, tmp_path: Path) -> None:
    size = 4096
    weights = np.random.default_rng(0).random((1, size, size), dtype=np.float32) ** 20
    weights /= weights.sum(-1, keepdims=True)
    labels = [f"t{step}" for step in range(size)]
    own_page.set_default_timeout(60_000)
    own_page.goto(write_page(tmp_path / "p.html", [map_of(weights, labels, labels)]).as_uri())
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
    own_page.click("button:text-is('+')")
    own_page.mouse.move(box["x"] + 300, box["y"] + 300)
    own_page.mouse.down()
    own_page.mouse.move(box["x"] + 200, box["y"] + 200, steps=10)
    own_page.mouse.up()
    own_page.click("text=Lines")
    own_page.click("text=Heatmap")
    settle(own_page)
    assert own_page.evaluate("window.longest") < 1000  # milliseconds, on a busy machine


def test_hostile_labels_stay_text(page: Any, tmp_path: Path) -> None:
    hostile = "</script><img src=x onerror=\"document.title='hacked'\">"
    weights = np.ones((1, 1, 1), dtype=np.float32)
    page.goto(write_page(tmp_path / "p.html", [map_of(weights, [hostile], [hostile])]).as_uri())
    page.wait_for_selector("figure canvas")
    for mode in ("Lines", "Overview", "Heatmap"):
        page.click(f"button:text-is('{mode}')")
        settle(page)
    assert page.locator("img").count() == 0 and page.title() == "test: x · Regard"
    assert json.dumps(hostile) and hostile in page.locator(".token").first.inner_text()
