"""The explorer, operated as by a user."""

import csv
import json
import re
import struct
import threading
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

import regard
from regard.interpret.importance import HeadImportance
from tests.browser.conftest import (
    ANSWERED,
    INPUT,
    canvas_pixels,
    choose,
    open_view,
    selection,
    served,
    settle,
    type_input,
    use_tool,
)
from tests.external.test_long_inputs import WordModel

UNTOUCHED = "() => !document.querySelector('.mark b')"


def prediction(page: Any) -> list[int]:
    return [int(word) for word in page.inner_text(".prediction").split()]


def open_input(page: Any, address: str, chosen: str = "") -> None:
    open_view(page, address, f"input={INPUT}{chosen}")
    page.wait_for_function(ANSWERED, arg=INPUT)


def test_typed_input_is_answered_and_the_cursor_is_in_the_input(
    page: Any, address: str, learned: regard.AnswerRun
) -> None:
    open_view(page, address)
    page.wait_for_function("() => document.activeElement.id === 'input'")
    drawn = page.input_value("#input")
    page.keyboard.press("Backspace")  # typing works at once, at the end
    page.wait_for_function("text => document.getElementById('input').value === text", arg=drawn[:-1])
    type_input(page)
    attention = learned.attend(INPUT)
    assert prediction(page) == attention.prediction
    truth = " ".join(map(str, attention.truth or []))
    assert ("✓ right" if attention.prediction == attention.truth else f"truth {truth}") in page.inner_text(".answer")
    assert page.locator("figure canvas").count() == 2 and page.title() == f"signal2: {INPUT} · Regard"
    assert "Accepts 3 signals and 1 to 10 letters: A, B, C" in page.inner_text("#about")
    type_input(page, INPUT.lower(), INPUT)
    assert prediction(page) == attention.prediction


def test_a_refused_input_is_explained_and_dims_the_old_answer(page: Any, address: str) -> None:
    open_input(page, address)
    page.fill("#input", "BC<img src=x onerror=alert(1)>")
    page.wait_for_selector("#message:has-text('<img')")
    page.fill("#input", "BCCX")
    page.wait_for_selector("#message:has-text('BCCX'), #message:has-text(\"'X'\")")
    assert "letter 'X' at step 3 is not in the vocabulary" in page.inner_text("#message")
    assert page.evaluate("document.querySelector('.work').inert") and page.locator("img").count() == 0
    type_input(page)
    page.wait_for_selector(".work:not(.refused)")
    assert not page.evaluate("document.querySelector('.work').inert") and page.inner_text("#message") == ""
    page.complaints.clear()  # the browser logs each status that is not a success


def test_hovering_moves_every_part_for_a_moment(page: Any, address: str, learned: regard.AnswerRun) -> None:
    open_input(page, address, "&head=0")
    before = selection(page)
    box = page.locator("figure canvas").nth(1).bounding_box()
    page.mouse.move(box["x"] + box["width"] - 10, box["y"] + box["height"] - 10)  # the last weight of the last row
    page.wait_for_function("() => document.querySelector('.sentence').textContent.includes('head 1')")
    shown = selection(page)
    assert (shown["head"], shown["query"], shown["key"]) == (1, 2, 12)
    found = re.search(r"→ A \(step 12\): ([\d.]+)$", page.inner_text("output"))
    assert found is not None
    assert abs(float(found[1]) - learned.attend(INPUT).cross.weights[1, 2, 12]) < 1e-4
    page.mouse.move(5, 5)
    page.wait_for_function(
        "text => document.querySelector('.regard-view').dataset.selection === text",
        arg=json.dumps(before, separators=(",", ":"), ensure_ascii=False),
    )


def test_a_head_is_switched_off_and_on(page: Any, address: str, learned: regard.AnswerRun) -> None:
    open_input(page, address, "&head=1")
    page.click(".touch [data-name=off]")
    page.wait_for_selector(".mark b:text-is('1 head off')")
    with regard.intervene(learned.model, "cross", heads=[1]):
        without = learned.attend(INPUT)
    assert prediction(page) == without.prediction
    assert "is switched off" in page.inner_text(".sentence")
    said = page.inner_text(".changes .pairs >> nth=0")
    before = [float(share) for share in re.findall(r"([\d.]+)% →", said)]
    now = [float(share) for share in re.findall(r"→ (?:\d+: )?([\d.]+)%", said)]
    assert before == pytest.approx([100 * share for share in learned.attend(INPUT).probabilities], abs=0.06)
    assert now == pytest.approx([100 * share for share in without.probabilities], abs=0.06)
    page.click(".touch [data-name=uniform]")
    page.wait_for_selector(".mark b:text-is('1 head uniform')")
    page.keyboard.press("Control+z")
    page.wait_for_selector(".mark b:text-is('1 head off')")
    page.click(".mark button")
    page.wait_for_function(UNTOUCHED)
    assert prediction(page) == learned.attend(INPUT).prediction


def test_a_weight_is_dragged_and_drawn_before_the_answer(page: Any, address: str, learned: regard.AnswerRun) -> None:
    open_input(page, address, "&head=0&query=1&key=1&all=false")
    slider = page.wait_for_selector("input[data-name=weight]")
    waiting: list[Any] = []
    page.route("**/api/attend", lambda route: waiting.append(route))  # the model is slow
    before = canvas_pixels(page)
    drag = "(slider, to) => { slider.value = to; slider.dispatchEvent(new Event('input')); }"
    slider.evaluate(drag, "0.75")
    settle(page)
    assert page.inner_text("output").endswith("(step 1): 0.7500") and canvas_pixels(page) != before
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
    assert page.evaluate("element => element.isConnected", slider)
    with regard.intervene(learned.model, "cross", heads=[0], to=0.85, query=1, key=1):
        touched = learned.attend(INPUT)
    assert prediction(page) == touched.prediction and touched.prediction is not None
    said = page.get_attribute("svg.curve", "aria-label")
    assert f"0.85: {touched.probabilities[1]:.2f} for {touched.prediction[1]}" in said
    page.unroute("**/api/attend")
    page.click(".mark button")  # undoes the whole drag
    page.wait_for_function(UNTOUCHED)


def test_importance_runs_in_the_background(
    page: Any, learned: regard.AnswerRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress is shown, other requests are answered during the computation, and the menu stops it."""
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
        open_input(page, address)
        use_tool(page, "Head importance")
        page.wait_for_selector("#work:has-text('1 of 4')")
        type_input(page, INPUT[::-1])
        use_tool(page, "Stop: Head importance")
        assert stopped.wait(5) and page.inner_text("#message") == ""
        page.wait_for_function("() => document.getElementById('work').textContent === ''")
        use_tool(page, "Head importance")
        page.wait_for_selector("#work:has-text('1 of 4')")
        go.set()
        page.wait_for_selector("figcaption:has-text('loss +0.500 when off')")
        assert page.locator("select[data-name='Rank by'] option:checked").inner_text() == "importance"
        assert "asked=importance" in page.url
    page.complaints.clear()


def test_roles_and_examination_are_told_of_the_selected_head(
    page: Any, address: str, learned: regard.AnswerRun
) -> None:
    kept = (found := learned.examine(samples=5)).save(learned.folder / "examined.json")
    open_input(page, address, "&head=1")
    page.click("summary:text-is('More about this head')")
    page.wait_for_selector("text=Examination: ")
    assert found.heads[1].sentence() in page.inner_text(".drawer")
    kept.unlink()
    use_tool(page, "Head roles")
    page.wait_for_selector(".facts:has-text('Over many samples')")
    page.reload()  # slow results are requested again
    page.click("summary:text-is('More about this head')")
    page.wait_for_selector(".facts:has-text('Over many samples')")


def test_samples_of_a_head_are_found_and_opened(page: Any, address: str, learned: regard.AnswerRun) -> None:
    open_input(page, address, "&head=1")
    box = page.locator(".stage").bounding_box()
    use_tool(page, "Top inputs")
    page.wait_for_selector(".tool h2:text-is('Inputs with the largest weights of head 1 of cross')")
    page.select_option("select[data-name='attends to']", label="A")
    page.wait_for_selector("text=/largest weight at \\W?A\\W?[.]/")  # not those of the previous letter
    assert page.locator(".stage").bounding_box() == box  # the picture does not move
    found = learned.samples("cross", 1, token="A").samples[2]
    page.click("button[data-name=sample-2]")
    page.wait_for_function(ANSWERED, arg=found.input)
    page.wait_for_function(
        "told => document.querySelector('output').textContent.includes(told)", arg=f"(step {found.key})"
    )
    assert f"{found.weight:.4f}"[:5] in page.inner_text("output") and selection(page)["head"] == 1
    page.click(".tool >> text=Close")
    assert page.locator(".tool").is_hidden()


def test_training_is_played(page: Any, address: str, learned: regard.AnswerRun) -> None:
    open_input(page, address)
    use_tool(page, "Play training")
    page.wait_for_selector("text=after 150 training steps")
    slider = page.locator("input[data-name=time]")
    slider.focus()
    page.keyboard.press("Home")
    page.wait_for_selector("text=after 0 training steps")
    assert prediction(page) == learned.playback(INPUT).frames[0].prediction
    assert "apply to the trained one" in page.inner_text(".touch")
    page.click("button:text-is('play')")
    page.wait_for_selector("text=after 150 training steps")
    assert page.evaluate("document.activeElement.dataset.name") != "time" and slider.is_visible()


def test_address_stores_the_view(page: Any, address: str, chromium: Any) -> None:
    open_input(page, address, "&head=1&query=2&all=false")
    page.click(".touch [data-name=uniform]")
    page.wait_for_selector(".mark b")
    page.click("[role=radio][data-name=Lines]")
    settle(page)
    said, shown = page.inner_text(".answer"), selection(page)
    other = chromium.new_context(viewport={"width": 1280, "height": 800}).new_page()  # another user with the link
    other.goto(page.url)
    other.wait_for_selector(".mark b")
    settle(other)
    assert other.inner_text(".answer") == said and other.input_value("#input") == INPUT
    assert selection(other) == shown and "mode=lines" in other.url
    other.context.close()
    type_input(page, INPUT[::-1])
    page.go_back()
    page.wait_for_function(ANSWERED, arg=INPUT)
    page.go_forward()
    page.wait_for_function(ANSWERED, arg=INPUT[::-1])


def test_view_is_saved(page: Any, address: str, learned: regard.AnswerRun) -> None:
    open_input(page, address, "&query=1&head=0")

    def saved(kind: str) -> bytes:
        with page.expect_download() as download:
            use_tool(page, kind, "save")
        return Path(download.value.path()).read_bytes()

    table = saved("CSV").decode().splitlines()
    rows = list(csv.DictReader(line for line in table if not line.startswith("# ")))
    cross = learned.attend(INPUT).cross
    assert len(rows) == cross.weights.size
    for row in rows:
        place = int(row["head"]), int(row["query_step"]), int(row["key_step"])
        assert abs(float(row["weight"]) - cross.weights[place]) < 1e-7 and row["key"] == INPUT[place[2]]
    picture = ElementTree.fromstring(saved("SVG"))
    text = "".join(picture.itertext())
    name = "{http://www.w3.org/2000/svg}"
    bold = [label.text for label in picture.iter(f"{name}text") if label.get("font-weight") == "bold"]
    assert bold.count(cross.query_labels[1]) == 2
    fills = [rect.get("fill") for rect in picture.iter(f"{name}rect")]
    largest = max(layer.weights.max() for layer in learned.attend(INPUT).layers.values())
    assert len(fills) > cross.weights.size and f"0 to {largest:.2f}, all heads alike" in text
    assert INPUT in text and f"Prediction: {' '.join(map(str, learned.attend(INPUT).prediction or []))}" in text
    width, height = struct.unpack(">II", saved("PNG")[16:24])
    assert (width, height) == (2 * int(picture.get("width", 0)), 2 * int(picture.get("height", 0)))
    choose(page, mode="lines")
    lines = ElementTree.fromstring(saved("SVG"))
    assert len(list(lines.iter(f"{name}line"))) > 10
    assert b"all-heads" not in saved("Poster of all heads")[:0] and saved("Poster of all heads").startswith(b"\x89PNG")
    measures = saved("Measures of all heads").decode()
    assert "layer,head,relevant,peak,entropy" in measures and measures.count("\ncross,") == 2


def test_saved_files_name_the_changes(page: Any, address: str) -> None:
    open_input(page, address, "&head=1&all=false")
    page.click(".touch [data-name=off]")
    page.wait_for_selector(".mark b")
    page.click("[data-name=view]")
    page.check("text=difference to the original")
    with page.expect_download() as download:
        use_tool(page, "CSV", "save")
    text = Path(download.value.path()).read_text()
    assert "# interventions: cross: head 1 off" in text and "# shows: difference" in text and ",change" in text


def test_a_translator_begins_with_a_sentence_and_reports_unknown_tokens(
    page: Any, translating: str, german: regard.TranslationRun
) -> None:
    open_view(page, translating)
    assert page.input_value("#input") == german.draw()
    assert page.inner_text(".sentence").startswith("Cross layer 0, head ")
    page.fill("#input", "Heute läuft der 猫 Hund.")
    page.wait_for_selector("#note:text-is(\"Note: not in the model's vocabulary: '猫'\")")
    assert not page.locator(".answer .note").is_visible()  # the message appears once
    page.fill("#input", "Heute läuft der alte Hund.")
    page.wait_for_function("() => document.getElementById('note').textContent === ''")


CROSSED = """() => {
    const all = (name) => [...document.querySelectorAll(`.search svg ${name}`)];
    const boxes = all("text").map((text) => [text.getBBox(), text.textContent]);
    const within = ({ x, y }, box) => x > box.x && x < box.x + box.width && y > box.y && y < box.y + box.height;
    return all("path").flatMap((path) => {
        const at = (place) => path.getPointAtLength((place / 59) * path.getTotalLength());
        const points = Array.from({ length: 60 }, (_, place) => at(place));
        return boxes.filter(([box]) => points.some((point) => within(point, box))).map(([, text]) => text);
    });
}"""
"""JavaScript that returns the names crossed by lines of the tree."""


def test_the_search_is_shown_step_by_step(page: Any, translating: str, german: regard.TranslationRun) -> None:
    open_view(page, translating)
    use_tool(page, "Step by step")
    page.wait_for_selector(".search svg")
    tree = german.tree(german.draw())
    assert page.locator(".search svg text.branch").count() == len(tree.branches)
    assert page.locator(".search svg text.best").count() == len(tree.best)
    assert page.evaluate(CROSSED) == []
    page.click("text=step ▶")
    second = tree.branches[tree.best[1]]
    page.wait_for_selector(f"text=, step {second.step}; log-probability so far {second.log_probability:.3f}")
    shares = page.locator(".followers td:not(.bars)").all_inner_texts()
    followers = tree.branches[tree.best[0]].followers
    assert shares == [f"{100 * follower.probability:.1f}%" for follower in followers]
    assert selection(page)["query"] == 1
    other = next(number for number in range(len(tree.branches)) if number not in tree.best)
    page.locator(f"[data-name=branch-{other}]").dispatch_event("click")
    page.wait_for_selector(f"[data-name=branch-{other}].on")
    page.reload()
    page.wait_for_selector(f"[data-name=branch-{other}].on")
    page.select_option("#beam", label="1")
    few = "count => document.querySelectorAll('.search svg text.branch').length < count"
    page.wait_for_function(few, arg=len(tree.branches))
    page.click(".tool >> text=Close")
    page.wait_for_function("() => !location.hash.includes('written')")


def test_two_runs_are_compared(page: Any, learned: regard.AnswerRun) -> None:
    """Both runs share one cursor, and their difference is shown."""
    other = learned.untrained(5)
    with served(learned, [other]) as address:
        open_input(page, address, "&head=1")
        page.click("[data-name=view]")
        page.select_option("select[data-name='Compare with']", label=other.where)
        page.wait_for_selector("figcaption:has-text('difference: displayed minus compared')")
        theirs, ours = (" ".join(map(str, run.attend(INPUT).prediction or ())) for run in (other, learned))
        said = page.locator(".answer").inner_text()
        assert f"Compared: {other.where}: {'the same' if theirs == ours else theirs}" in said
        grids = page.locator("figure [role=grid]")
        assert grids.count() == 3
        grids.nth(1).focus()
        for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
            page.keyboard.press(key)
        settle(page)
        shown, beside = (run.attend(INPUT).cross.weights[1, 1, 1] for run in (learned, other))
        cells = [
            page.locator(f"#{grids.nth(at).get_attribute('aria-activedescendant')}").inner_text() for at in range(3)
        ]
        assert cells[:2] == [f"C {100 * weight:.1f}%" for weight in (shown, beside)]
        sign = "\N{MINUS SIGN}" if shown < beside else "+"
        assert cells[2] == f"C {sign}{abs(shown - beside):.3f}" and "beside=model-0" in page.url


def test_row_of_a_long_input_is_requested(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.external import layer_maps

    monkeypatch.setattr(layer_maps, "LONG", 39)
    ids = {"input_ids": torch.arange(40).unsqueeze(0)}
    subject = regard.look(WordModel(), lambda text: ids, inputs=["long"])
    with served(subject) as address:
        open_view(page, address)
        page.wait_for_selector("[aria-label='Exact row'] table")
        assert "the largest of 16" in page.inner_text(".facts")
        page.fill("[data-name=step]", "35")
        page.keyboard.press("Enter")
        page.wait_for_function(
            "() => document.querySelector('[aria-label=\"Exact row\"] p').textContent.includes('35')"
        )
        [layer] = subject.attend("long").layers.values()
        assert layer.rows is not None
        weights = layer.rows.of(35)[selection(page)["head"]]
        first = page.locator("[aria-label='Exact row'] tbody tr").first.inner_text().split()
        assert int(first[0]) == weights.argmax()
        assert float(first[2]) == pytest.approx(float(weights.max()), rel=1e-5)


def test_layers_are_fetched_before_they_are_chosen(
    page: Any, german: regard.TranslationRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.viz.page.WHOLE", 10)
    monkeypatch.setattr("regard.viz.page.PIXELS", 2)
    asked: list[str] = []
    page.on("requestfinished", lambda request: asked.append(request.url) if "api/layers" in request.url else None)
    with served(german) as address:
        open_view(page, address)
        layers = german.attend(page.input_value("#input")).layers
        while len(asked) < len(layers):
            page.wait_for_timeout(20)
        before = selection(page)["layer"]
        page.locator(".heads [role=grid]").press("ArrowUp")
        settle(page)
        assert selection(page)["layer"] != before and len(asked) == len(layers) > 1


def test_the_first_steps_are_ticked_and_disappear_for_good(page: Any, address: str) -> None:
    page.goto(address)
    page.evaluate("localStorage.removeItem('regard-first-steps')")
    open_input(page, address, "&head=1&all=false")
    assert page.inner_text(".first").startswith("First steps")
    canvas = page.locator("figure canvas").bounding_box()
    page.mouse.click(canvas["x"] + canvas["width"] - 20, canvas["y"] + canvas["height"] - 20)
    page.wait_for_selector(".first .done")
    page.click(".touch [data-name=off]")
    page.click("[data-name='Why it looks there']")
    page.wait_for_selector(".first", state="hidden")
    page.reload()
    page.wait_for_selector("figure canvas")
    assert page.locator(".first").is_hidden()


def test_typing_and_enter_send_one_request(page: Any, address: str) -> None:
    open_view(page, address)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.post_data) if "attend" in request.url else None)
    page.fill("#input", INPUT)
    page.press("#input", "Enter")
    page.wait_for_function(ANSWERED, arg=INPUT)
    page.wait_for_timeout(300)
    assert len([body for body in asked if INPUT in body]) == 1


def test_killed_browser_does_not_affect_others(chromium: Any, page: Any, address: str) -> None:
    other = chromium.new_context().new_page()
    other.goto(address)
    other.evaluate(
        """() => { for (let seed = 0; seed < 30; seed += 1) {
            const headers = { 'content-type': 'application/json' };
            fetch('api/attend', { method: 'POST', headers, body: `{"seed": ${seed}}` });
        } }"""
    )
    other.context.close()  # during its requests
    open_input(page, address)
    assert page.locator("figure canvas").count() == 2
