"""Further displays: lines of heads, means, arcs, flow, several rows, and a weight that is being dragged."""

import dataclasses
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.interpret.importance import HeadImportance
from regard.viz.maps import Patches
from tests.browser.conftest import map_of, served, settle
from tests.external.test_long_inputs import WordModel

INPUT = "BCCCBAABACCCA"


def _open(page: Any, address: str, chosen: str = "") -> None:
    page.goto(f"{address}#input={INPUT}{chosen}")
    page.wait_for_selector(".sentence")
    page.wait_for_function("text => document.querySelector('.answer code')?.textContent === text", arg=INPUT)


def _lines(page: Any) -> int:
    return int(page.locator(".lines > svg line").count())


def test_heads_of_lines_are_switched(page: Any, address: str, learned: regard.AnswerRun) -> None:
    _open(page, address, "&mode=lines")
    both = _lines(page)
    page.click("[data-name=key-0]")
    page.wait_for_selector("[data-name=key-0][aria-pressed=false]")
    one = _lines(page)
    assert 0 < one < both and "off=0" in page.url
    page.select_option("select[data-name='Of each row']", label="the 1 largest")
    weights = learned.attend(INPUT).cross.weights[1]
    chosen = int((weights[0] > 0.01 * learned.attend(INPUT).cross.weights.max()).sum())
    assert _lines(page) == chosen + 2  # all of the chosen row, and the largest of each other one
    page.select_option("select[data-name='Of each row']", label="all")
    page.select_option("select[data-name=Weights]", label="0.1 and more")
    assert _lines(page) == int((learned.attend(INPUT).cross.weights[1] >= 0.1).sum())


def test_an_average_of_heads(page: Any, address: str, learned: regard.AnswerRun) -> None:
    _open(page, address, "&mode=table&mean=true")
    page.wait_for_selector("table")
    rows = page.locator("tbody tr").all()
    found = [[float(each) for each in row.locator("td").all_inner_texts()] for row in rows]
    assert np.abs(np.array(found) - learned.attend(INPUT).cross.weights.mean(0)).max() < 6e-4
    assert "average of heads 0, 1" in page.inner_text("caption")
    assert page.locator("text=Select a head of a layer to change it").count() == 1


def test_rows_are_summed(page: Any, address: str, learned: regard.AnswerRun) -> None:
    _open(page, address, "&head=1")
    page.click("[data-name=query-0]")
    page.click("[data-name=query-2]", modifiers=["Shift"])
    page.wait_for_function("() => document.querySelector('.sentence').textContent.includes('together')")
    weights = learned.attend(INPUT).cross.weights[1, [0, 2]].sum(0)
    assert f"(step {weights.argmax()}, {weights.max():.2f})" in page.inner_text(".sentence")
    titles = page.locator(".tokens > div").nth(1).locator(".token").evaluate_all("all => all.map(each => each.title)")
    assert [float(title.split()[0]) for title in titles] == pytest.approx(weights, abs=6e-4)
    assert page.locator(".token.on").count() == 2 and "also=2" in page.url


def test_arcs_and_flow(page: Any, address: str, translating: str) -> None:
    _open(page, address)
    assert page.locator("button:text-is('Arcs')").count() == 0  # outputs (queries) and inputs are two sides
    page.select_option("select[data-name=Kind]", label="encoder")
    page.click("button:text-is('Arcs')")
    assert page.locator(".lines > svg path").count() > 20
    page.goto(translating)
    page.wait_for_selector("figure canvas")
    page.click("button:text-is('Flow')")
    page.wait_for_selector("text=Abnar and Zuidema")
    assert page.locator("figcaption b").all_inner_texts() == ["layer 0, through the encoder"]
    page.select_option("select[data-name=Kind]", label="encoder")
    settle(page)
    assert page.locator("figcaption b").all_inner_texts() == ["after layer 0", "after layer 1"]
    assert page.locator("select[data-name=Head], select[data-name=Layer]").count() == 0  # it includes all of them
    page.select_option("select[data-name=Kind]", label="decoder")
    settle(page)
    assert page.locator("button:text-is('Flow')").count() == 0  # its states also depend on the input
    page.select_option("select[data-name=Kind]", label="encoder")
    page.click("button:text-is('Flow')")
    assert "each row sums to 1" in page.inner_text("figure")


def test_dragged_weight_changes_the_answer(page: Any, address: str, learned: regard.AnswerRun) -> None:
    """The slider element is not replaced, and each answer adds a point to the curve."""
    _open(page, address, "&head=0&query=1&key=1")
    slider = page.wait_for_selector("input[data-name=weight]")
    box = slider.bounding_box()
    page.mouse.move(box["x"] + 4, box["y"] + box["height"] / 2)
    page.mouse.down()
    for share in (0.25, 0.5, 0.75):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
        page.wait_for_function(
            """value => {
                const found = document.querySelector("output").textContent.match(/: ([.\\d]+) exactly/);
                return found && Math.abs(Number(found[1]) - Number(value)) < 1e-3;
            }""",
            arg=slider.input_value(),
        )  # answered before the slider is released
    page.mouse.up()
    assert page.evaluate("element => element.isConnected", slider)
    said = page.get_attribute("svg.curve", "aria-label")
    assert page.locator("svg.curve text.axis").all_text_contents() == ["weight", "probability"]
    value = float(slider.input_value())
    with regard.intervene(learned.model, "cross", heads=[0], to=value, query=1, key=1):
        touched = learned.attend(INPUT)
    assert touched.prediction is not None
    assert f"{value:.2f}: {touched.probabilities[1]:.2f} for {touched.prediction[1]}" in said
    page.click(".mark button")  # undoes the whole drag
    page.wait_for_selector(".mark", state="detached")


def test_importance_runs_in_the_background(
    page: Any, learned: regard.AnswerRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress is shown, other requests are answered during the computation, and a second click stops the
    computation.
    """
    import regard.server.explorer

    begun, go, stopped = threading.Event(), threading.Event(), threading.Event()

    def slow(subject: Any, *, on_progress: Any) -> HeadImportance:
        on_progress(1, 4)
        begun.set()
        try:
            while not go.wait(0.02):
                subject.attend(INPUT)  # which ends when nothing waits for it
        except BaseException:
            stopped.set()
            raise
        return HeadImportance(samples=1, loss=0.0, added={"cross": [0.5, -0.25]})

    monkeypatch.setattr(regard.server.explorer, "head_importance", slow)
    with served(learned) as address:
        _open(page, address)
        page.click("#importance")
        page.wait_for_selector("text=Stop (1 of 4)")
        page.fill("#input", INPUT[::-1])
        page.wait_for_function(
            "text => document.querySelector('.answer code')?.textContent === text", arg=INPUT[::-1], timeout=1000
        )
        page.click("#importance")
        page.wait_for_selector("button:text-is('Head importance')")
        assert stopped.wait(5) and page.inner_text("#message") == ""
        page.click("#importance")
        page.wait_for_selector("text=Stop (1 of 4)")
        go.set()
        page.wait_for_selector("text=off: loss +0.500")
    page.complaints.clear()


def test_gallery_describes_heads(page: Any, address: str, learned: regard.AnswerRun) -> None:
    _open(page, address)
    page.click("#roles")
    page.wait_for_selector(".thumb .role")
    told = learned.roles()
    shown = page.locator(".thumb .role").all_inner_texts()
    expected = [
        each.description if each.role is None or each.strength is None else f"{each.role}: {each.strength.mean:.2f}"
        for each in told.heads
    ]
    assert shown == expected
    page.click("#importance")
    page.check("text=sorted by importance")
    added = learned.importance().added
    best = max((value, layer, head) for layer, values in added.items() for head, value in enumerate(values))
    first = page.locator(".thumb").first
    assert first.get_attribute("data-name") == f"thumb-{best[1]}-{best[2]}"
    page.wait_for_function("() => location.hash.includes('asked=importance%2Croles')")
    page.reload()  # slow results are requested again
    page.wait_for_selector(".thumb .role")
    page.wait_for_function(
        "name => document.querySelector('.thumb').dataset.name === name", arg=f"thumb-{best[1]}-{best[2]}"
    )
    assert sorted(page.locator(".thumb .role").all_inner_texts()) == sorted(expected)
    page.locator(".thumb").first.click()
    page.wait_for_selector("text=Over many samples, ")


CROSSED = """() => {
    const all = (name) => [...document.querySelectorAll(`.steps svg ${name}`)];
    const boxes = all("text").map((each) => [each.getBBox(), each.textContent]);
    const within = ({ x, y }, box) => x > box.x && x < box.x + box.width && y > box.y && y < box.y + box.height;
    return all("path").flatMap((path) => {
        const at = (place) => path.getPointAtLength((place / 59) * path.getTotalLength());
        const points = Array.from({ length: 60 }, (_, place) => at(place));
        return boxes.filter(([box]) => points.some((point) => within(point, box))).map(([, text]) => text);
    });
}"""
"""JavaScript that returns the names crossed by lines of the tree."""


def test_answer_is_explained_step_by_step(page: Any, translating: str, german: regard.TranslationRun) -> None:
    page.goto(translating)
    page.wait_for_selector("figure canvas")
    page.click("#tree")
    page.wait_for_selector(".steps svg")
    tree = german.tree(german.draw())
    assert page.locator(".steps svg text.branch").count() == len(tree.branches)
    assert page.locator(".steps svg text.best").count() == len(tree.best)
    assert page.evaluate(CROSSED) == []
    page.click("text=step ▶")
    second = tree.branches[tree.best[1]]
    page.wait_for_selector(f"text=, step {second.step}; log-probability so far {second.log_probability:.3f}")
    shares = page.locator(".followers td:not(.bars)").all_inner_texts()
    followers = tree.branches[tree.best[0]].followers
    assert shares == [f"{100 * each.probability:.1f}%" for each in followers]
    page.wait_for_function("() => document.querySelector('.token.on').dataset.name === 'query-1'")
    other = next(number for number in range(len(tree.branches)) if number not in tree.best)
    page.click(f"[data-name=branch-{other}]")
    page.wait_for_selector(f"[data-name=branch-{other}].on")
    page.reload()
    page.wait_for_selector(f"[data-name=branch-{other}].on")
    page.select_option("#beam", label="1")
    page.wait_for_function(
        "count => document.querySelectorAll('.steps svg text.branch').length < count", arg=len(tree.branches)
    )
    page.reload()
    page.wait_for_selector(".steps svg")
    assert page.input_value("#beam") == "1"
    page.click("text=Close")
    page.wait_for_selector("#steps", state="hidden")
    page.wait_for_function("() => !location.hash.includes('written')")


def test_two_runs_are_compared(page: Any, learned: regard.AnswerRun, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Both runs share one cursor, and their difference is shown."""
    other = learned.untrained(5)
    with served(learned, [other]) as address:
        page.set_viewport_size({"width": 1700, "height": 900})
        _open(page, address, "&head=1")
        page.select_option("select[data-name='Compare with']", label=other.where)
        page.wait_for_selector("text=difference: displayed minus compared")
        theirs, ours = (" ".join(map(str, each.attend(INPUT).prediction or ())) for each in (other, learned))
        said = page.locator(".answer").inner_text()
        assert f"Compared: {other.where}: {'the same' if theirs == ours else theirs}" in said
        assert page.locator("figure").count() == 3
        assert len({figure.bounding_box()["y"] for figure in page.locator("figure").all()}) == 1  # in one line
        grids = page.locator("figure [role=grid]")
        grids.nth(1).focus()
        for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
            page.keyboard.press(key)
            settle(page)
        shown, beside = (each.attend(INPUT).cross.weights[1, 1, 1] for each in (learned, other))
        cells = [
            page.locator(f"#{grids.nth(at).get_attribute('aria-activedescendant')}").inner_text() for at in range(3)
        ]
        assert cells[:2] == [f"C {100 * each:.1f}%" for each in (shown, beside)]
        sign = "\N{MINUS SIGN}" if shown < beside else "+"
        assert cells[2] == f"C {sign}{abs(shown - beside):.3f}"
        assert "beside=model-0" in page.url
        assert page.locator(".legend canvas").count() == 2
        page.reload()
        page.wait_for_selector("text=difference: displayed minus compared")


def test_weights_overlay_an_image(page: Any, tmp_path: Path) -> None:
    weights = np.full((2, 5, 5), 0.05, np.float32)
    weights[:, :, 0] = 0.1
    weights[0, 0, 3] = weights[1, 2, 4] = 0.75
    labels = ["[CLS]", "0,0", "0,1", "1,0", "1,1"]
    seen = map_of(weights, labels, labels)
    layer = dataclasses.replace(seen.layers["cross"], kind_override="encoder", patches=Patches(1, 2, 2))
    pixels = np.full((20, 20, 3), 200, np.uint8)
    seen = dataclasses.replace(seen, layers={"cross": layer}, pixels=pixels)
    page.goto(seen.to_html(tmp_path / "page.html").as_uri())
    page.wait_for_selector(".seen image")

    def strongest(head: int) -> list[int]:
        patches = page.locator(".seen").nth(head).locator("rect[fill-opacity]")
        return [index for index in range(4) if float(patches.nth(index).get_attribute("fill-opacity")) > 0.8]

    assert page.locator(".seen").count() == 2 and "0.750, largest on a patch" in page.inner_text(".legend")
    assert (strongest(0), strongest(1)) == ([2], [])
    side = page.locator(".seen svg").nth(1).bounding_box()
    page.locator(".seen > div").nth(1).click(position={"x": side["width"] * 0.75, "y": side["height"] * 0.25})
    page.wait_for_function("() => location.hash.includes('query=2')")  # the patch in the upper right
    assert (strongest(0), strongest(1)) == ([], [3])
    page.keyboard.press("ArrowDown")
    page.wait_for_function("() => location.hash.includes('query=4')")
    page.click("text=Heatmap")
    page.wait_for_selector("figure canvas")
    page.reload()
    page.wait_for_selector("figure canvas")  # the selection is kept


def test_row_of_a_long_input_is_requested(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.external import layer_maps

    monkeypatch.setattr(layer_maps, "LONG", 39)
    ids = {"input_ids": torch.arange(40).unsqueeze(0)}
    subject = regard.look(WordModel(), lambda text: ids, inputs=["long"])
    with served(subject) as address:
        page.goto(address)
        page.wait_for_selector(".sum table")
        assert "the largest of 16" in page.inner_text(".sentence")
        page.fill("[data-name=step]", "35")
        page.keyboard.press("Enter")
        page.wait_for_function("() => document.querySelector('.sum p').textContent.includes('35')")
        [layer] = subject.attend("long").layers.values()
        assert layer.rows is not None
        weights = layer.rows.of(35)[0]
        first = page.locator(".sum tbody tr").first.inner_text().split()
        assert int(first[0]) == weights.argmax()
        assert float(first[2]) == pytest.approx(float(weights.max()), rel=1e-5)


def test_lines_have_a_separate_scale(page: Any, address: str) -> None:
    _open(page, address, "&mode=lines")
    end = "document.querySelector('.legend canvas').getContext('2d').getImageData(119, 5, 1, 1).data.join()"
    assert page.evaluate(end) == "17,17,17,255"  # several heads: ink, since each has its own color
    page.select_option("select[data-name=Head]", label="head 1")
    line = page.get_attribute(".lines > svg line", "stroke")
    settle(page)
    red, green, blue = (int(line[at : at + 2], 16) for at in (1, 3, 5))
    assert page.evaluate(end) == f"{red},{green},{blue},255"


def test_four_heads_form_a_square(page: Any, tmp_path: Path) -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(5), size=(4, 5)).astype(np.float32)
    file = map_of(weights, list("abcde"), list("vwxyz")).to_html(tmp_path / "p.html")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(file.as_uri())
    page.wait_for_selector("figure canvas")
    tops = page.locator("figure").evaluate_all("all => all.map(each => each.offsetTop)")
    assert tops[0] == tops[1] < tops[2] == tops[3]


def test_dragged_weight_is_drawn_before_the_answer(page: Any, address: str, learned: regard.AnswerRun) -> None:
    _open(page, address, "&head=0&query=1&key=1")
    slider = page.wait_for_selector("input[data-name=weight]")
    waiting: list[Any] = []
    page.route("**/api/attend", lambda route: waiting.append(route))  # the model is slow
    before = page.evaluate("document.querySelector('figure canvas').toDataURL()")
    drag = "(slider, to) => { slider.value = to; slider.dispatchEvent(new Event('input')); }"
    slider.evaluate(drag, "0.75")
    settle(page)
    assert page.inner_text("output").endswith("(step 1): 0.7500")
    assert page.evaluate("document.querySelector('figure canvas').toDataURL()") != before
    slider.evaluate(drag, "0.85")
    settle(page)
    first, *more = waiting
    assert not more  # one request at a time
    first.continue_()
    while len(waiting) < 2:
        page.wait_for_timeout(20)
    settle(page)
    assert ": 0.85" in page.inner_text("output")  # the old answer does not reset the weight
    waiting[1].continue_()
    page.wait_for_selector("output:has-text('exactly')")
    with regard.intervene(learned.model, "cross", heads=[0], to=0.85, query=1, key=1):
        touched = learned.attend(INPUT)
    assert page.inner_text(".prediction").split() == [str(each) for each in touched.prediction or []]
