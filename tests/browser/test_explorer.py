"""The explorer, operated as by a user."""

import csv
import re
import struct
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import regard

INPUT = "BCCCBAABACCCA"


def _type(page: Any, address: str, text: str = INPUT) -> None:
    page.goto(address)
    page.wait_for_selector("canvas")  # of a random sample
    page.fill("#input", text)
    page.wait_for_function("text => document.querySelector('.answer code')?.textContent === text", arg=text)


def _prediction(page: Any) -> list[int]:
    return [int(word) for word in page.inner_text(".prediction").split()]


def test_typed_input_is_answered(page: Any, address: str, learned: regard.AnswerRun) -> None:
    _type(page, address)
    attention = learned.attend(INPUT)
    assert _prediction(page) == attention.prediction
    assert "truth 2 4 4" in page.inner_text(".answer")
    assert page.locator("figure canvas").count() == 2


def test_invalid_input_is_reported(page: Any, address: str) -> None:
    _type(page, address)
    page.fill("#input", "BCCX")
    page.wait_for_function("() => document.getElementById('message').textContent !== ''")
    assert "letter 'X' at step 3 is not in the vocabulary" in page.inner_text("#message")
    page.fill("#input", INPUT)
    page.wait_for_function("() => document.getElementById('message').textContent === ''")
    page.complaints.clear()  # the browser logs each status that is not a success


def test_hovering_marks_the_row_and_shows_the_weight(page: Any, address: str, learned: regard.AnswerRun) -> None:
    _type(page, address)
    box = page.locator("figure canvas").nth(1).bounding_box()
    page.mouse.move(box["x"] + box["width"] - 10, box["y"] + box["height"] - 10)  # the last weight of the last row
    page.wait_for_function("() => document.querySelector('output').textContent.startsWith('head 1: count C')")
    found = re.search(r"→ A \(step 12\): ([\d.]+)$", page.inner_text("output"))
    assert found is not None
    assert abs(float(found[1]) - learned.attend(INPUT).cross.weights[1, 2, 12]) < 1e-4
    assert page.locator(".token.on").inner_text() == "count C (2nd)"


def test_a_head_is_switched_off_and_on(page: Any, address: str, learned: regard.AnswerRun) -> None:
    _type(page, address)
    page.select_option("select[data-name=Head]", label="head 1")
    page.click("text=head 1 off")
    page.wait_for_selector(".mark b:text-matches('^1 [^,]*$')")
    with regard.intervene(learned.model, "cross", heads=[1]):
        without = learned.attend(INPUT)
    assert _prediction(page) == without.prediction
    said = page.inner_text(".changes .pairs >> nth=0")
    shown = [float(share) for share in re.findall(r"→ ([\d.]+)%", said)]
    before = [float(share) for share in re.findall(r"([\d.]+)% →", said)]
    whole = learned.attend(INPUT).probabilities
    assert len(shown) == len(whole) and all(abs(a - 100 * b) < 0.06 for a, b in zip(before, whole, strict=True))
    assert all(abs(a - 100 * b) < 0.06 for a, b in zip(shown, without.probabilities, strict=True))
    page.check("text=difference to the original")
    page.click(".mark button")
    page.wait_for_function("() => !document.querySelector('.mark')")
    assert _prediction(page) == learned.attend(INPUT).prediction


def test_a_weight_is_dragged(page: Any, address: str, learned: regard.AnswerRun) -> None:
    _type(page, address)
    page.select_option("select[data-name=Head]", label="head 0")
    page.locator("figure [role=grid]").focus()
    page.keyboard.press("ArrowDown")  # the first key selects, the next ones move
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    slider = page.locator("input[data-name=weight]")
    slider.focus()
    page.keyboard.press("End")
    page.wait_for_selector(".mark b:text-matches('^1 [^,]*$')")
    with regard.intervene(learned.model, "cross", heads=[0], to=1.0, query=1, key=1):
        touched = learned.attend(INPUT)
    assert _prediction(page) == touched.prediction
    assert "head 0: count C (1st) → C (step 1): 1 exactly" in page.inner_text("output")


def test_importance_is_in_the_view(page: Any, address: str, learned: regard.AnswerRun) -> None:
    _type(page, address)
    page.click("text=Head importance")
    page.wait_for_selector("text=off: loss")
    added = learned.importance().added["cross"][0]
    assert f"{abs(added):.3f}" in page.locator("figcaption").first.inner_text()
    page.click("text=Overview")
    assert page.locator(".thumb").count() == 4


def test_samples_of_a_head_are_found_and_opened(page: Any, address: str, learned: regard.AnswerRun) -> None:
    _type(page, address)
    page.locator("figure [role=grid]").nth(1).focus()
    page.keyboard.press("ArrowDown")
    page.click("text=Top inputs")
    page.wait_for_selector("#samples h2:text-is('Inputs on which head 1 of cross has its largest weights')")
    page.select_option("select[data-name='attends to']", label="A")
    page.wait_for_selector("text=/largest weight at \\W?A\\W?[.]/")  # not those of the previous letter
    found = learned.samples("cross", 1, token="A").samples[2]
    page.click("button[data-name=sample-2]")
    page.wait_for_function("text => document.getElementById('input').value === text", arg=found.input)
    page.wait_for_function(
        "told => document.querySelector('output').textContent.includes(told)", arg=f"(step {found.key}): "
    )
    assert page.inner_text("output").startswith("head 1: ")
    assert f"{found.weight:.4f}"[:5] in page.inner_text("output")
    page.click("#samples >> text=Close")
    assert page.locator("#samples").is_hidden()


def test_attention_forms(page: Any, address: str, learned: regard.AnswerRun) -> None:
    _type(page, address)
    page.click("text=Play training")
    page.wait_for_selector("input[data-name=time]")
    assert "after 150 training steps" in page.inner_text("#view")
    page.locator("input[data-name=time]").focus()
    page.keyboard.press("Home")
    page.wait_for_selector("text=after 0 training steps")
    first = learned.playback(INPUT).frames[0]
    assert _prediction(page) == first.prediction
    page.click("button:text-is('play')")
    page.wait_for_selector("text=after 150 training steps")


def test_text_of_an_input_stays_text(page: Any, address: str) -> None:
    """Markup in an input is shown as text, not executed."""
    page.goto(address)
    page.wait_for_selector("canvas")
    page.fill("#input", "<img src=x onerror=alert(1)>")
    page.wait_for_function("() => document.getElementById('message').textContent !== ''")
    assert page.locator("img").count() == 0
    page.complaints.clear()


def test_a_phone(page: Any, address: str) -> None:
    _type(page, address)
    page.set_viewport_size({"width": 360, "height": 740})
    page.wait_for_timeout(200)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    for mode in ("Lines", "Overview", "Heatmap"):
        page.click(f"button:text-is('{mode}')")
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


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
    _type(page, address)
    assert page.locator("figure canvas").count() == 2


def test_page_describes_valid_inputs_and_accepts_lower_case(page: Any, address: str, learned: regard.AnswerRun) -> None:
    page.goto(address)
    page.wait_for_selector("canvas")
    assert page.inner_text("#accepts") == (
        "Accepts 3 signals and 1 to 10 letters: A, B, C; all training inputs have 10 letters."
    )
    page.fill("#input", INPUT.lower())
    page.wait_for_function("text => document.querySelector('.answer code')?.textContent === text", arg=INPUT)
    assert _prediction(page) == learned.attend(INPUT).prediction
    assert page.title() == f"signal2: {INPUT} · Regard"


def test_description_in_words(page: Any, address: str, learned: regard.AnswerRun) -> None:
    _type(page, address)
    page.select_option("select[data-name=Head]", label="head 1")
    page.click("[data-name=query-2]")
    page.wait_for_function("() => document.querySelector('.sentence').textContent.startsWith('To count C')")
    said = page.inner_text(".sentence")
    cross = learned.attend(INPUT).cross
    assert cross.relevant is not None
    share = cross.weights[1, 2][cross.relevant[2]].sum()
    assert f"{100 * share:.0f}% of its weight is on the inputs that this output depends on" in said
    assert f"(uniform attention would have {100 * cross.relevant[2].mean():.0f}%)" in said
    assert "outputs (queries)" in page.inner_text("figure") and "inputs (keys)" in page.inner_text("figure")
    assert "each row sums to 1" in page.inner_text("figure")
    page.click("text=head 1 off")
    page.wait_for_selector(".mark b:text-matches('^1 [^,]*$')")
    assert "before it was switched off" in page.inner_text("figure")
    assert page.inner_text(".sentence") == "Head 1 is off. The weights of all compared heads stay."
    assert "Probability of each output" in page.inner_text(".changes")


def test_examination_is_shown(page: Any, address: str, learned: regard.AnswerRun) -> None:
    found = learned.examine(samples=5)
    kept = found.save(learned.folder / "examined.json")
    _type(page, address)
    page.select_option("select[data-name=Head]", label="head 1")
    page.wait_for_selector("text=Examination: ")
    assert found.heads[1].sentence() in page.inner_text("#view")
    kept.unlink()


def test_a_translator_begins_with_a_sentence(page: Any, translating: str, german: regard.TranslationRun) -> None:
    page.goto(translating)
    page.wait_for_selector("figure canvas")
    assert page.input_value("#input") == german.draw() == page.inner_text(".answer code")
    assert page.inner_text(".sentence").startswith("To write “")


def test_a_refused_input_dims_the_old_answer(page: Any, address: str) -> None:
    _type(page, address)
    page.fill("#input", "ABX")
    page.wait_for_selector("#view.refused")
    assert page.evaluate("document.getElementById('view').inert")
    assert float(page.evaluate("getComputedStyle(document.getElementById('view')).opacity")) < 0.5
    page.fill("#input", INPUT)
    page.wait_for_selector("#view:not(.refused)")
    assert not page.evaluate("document.getElementById('view').inert")
    page.complaints.clear()


def test_a_tour_by_keys(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("figure canvas")
    page.focus("#draw")
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tour"
    page.keyboard.press("Enter")
    page.wait_for_selector("text=1 of 12")
    assert page.locator("#input.toured").count() == 1
    for stop in range(2, 13):
        page.keyboard.press("Enter")
        page.wait_for_selector(f"text={stop} of 12")
        assert page.locator(".toured").count() == 1
    page.keyboard.press("Enter")
    assert not page.locator("#guide").is_visible() and page.locator(".toured").count() == 0
    assert page.evaluate("document.activeElement.id") == "tour"
    page.keyboard.press("Enter")
    page.wait_for_selector("text=1 of 12")
    page.set_viewport_size({"width": 390, "height": 844})
    box = page.locator("#guide").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    page.keyboard.press("Escape")
    assert not page.locator("#guide").is_visible()


def test_address_stores_the_view(page: Any, address: str, chromium: Any) -> None:
    _type(page, address)
    page.select_option("select[data-name=Head]", label="head 1")
    page.click("[data-name=query-2]")
    page.click("text=head 1 uniform")
    page.wait_for_selector(".mark b:text-matches('^1 [^,]*$')")
    page.click("text=Table")
    page.wait_for_selector("table")
    said = page.inner_text(".answer")
    other = chromium.new_context().new_page()  # another user with the link
    other.goto(page.url)
    other.wait_for_selector("table")
    other.wait_for_selector(".mark b:text-matches('^1 [^,]*$')")
    assert other.inner_text(".answer") == said and other.input_value("#input") == INPUT
    assert other.locator("caption").all_inner_texts() == page.locator("caption").all_inner_texts()
    other.context.close()
    page.reload()
    page.wait_for_selector("table")
    assert page.inner_text(".answer") == said
    page.evaluate("input => { location.hash = `#input=${input}&mode=lines`; }", INPUT[::-1])
    page.wait_for_function("text => document.querySelector('.answer code')?.textContent === text", arg=INPUT[::-1])
    page.wait_for_selector(".lines")


def _in(picture: ElementTree.Element, text: str) -> bool:
    return text in "".join(picture.itertext())


def test_view_is_saved(page: Any, address: str, learned: regard.AnswerRun) -> None:
    _type(page, address)

    def saved(kind: str) -> bytes:
        with page.expect_download() as download:
            page.click(f".save button:text-is('{kind}')")
        return Path(download.value.path()).read_bytes()

    table = saved("CSV").decode().splitlines()
    rows = list(csv.DictReader(line for line in table if not line.startswith("# ")))
    weights = learned.attend(INPUT).cross.weights
    assert len(rows) == weights.size
    for row in rows:
        place = int(row["head"]), int(row["query_step"]), int(row["key_step"])
        assert abs(float(row["weight"]) - weights[place]) < 1e-7 and row["key"] == INPUT[place[2]]
    page.click("[data-name=query-1]")
    picture = ElementTree.fromstring(saved("SVG"))
    name = "{http://www.w3.org/2000/svg}"
    rects = list(picture.iter(f"{name}rect"))
    chosen = [each for each in rects if each.get("class") == "chosen"]
    heads = len(weights)
    assert len(rects) == 2 + weights.size + heads and len(chosen) == heads  # paper and scale; a row of each head
    bold = [each.text for each in picture.iter(f"{name}text") if each.get("font-weight") == "bold"]
    assert bold.count(learned.attend(INPUT).cross.query_labels[1]) == heads
    assert _in(picture, "weight 0") and _in(picture, f"{weights.max():.3f}, the same for all heads")
    assert len(list(picture.iter(f"{name}stop"))) == 17
    assert INPUT in "".join(picture.itertext())
    width, height = struct.unpack(">II", saved("PNG")[16:24])
    assert (width, height) == (2 * int(picture.get("width", 0)), 2 * int(picture.get("height", 0)))
    page.click("text=Lines")
    lines = ElementTree.fromstring(saved("SVG"))
    assert (
        len(list(lines.iter(f"{name}line"))) == page.locator(".lines svg line").count()
    )  # two buttons belong to the key
    assert saved("PNG").startswith(b"\x89PNG")
    assert _in(lines, "weight 0")
    page.click("text=Overview")
    gallery = ElementTree.fromstring(saved("SVG"))
    images = [each.get("href", "") for each in gallery.iter(f"{name}image")]
    assert len(images) == page.locator(".thumb").count() == 4
    assert all(each.startswith("data:image/png;base64,") for each in images) and _in(gallery, "all layers")
    width, height = struct.unpack(">II", saved("PNG")[16:24])
    assert (width, height) == (2 * int(gallery.get("width", 0)), 2 * int(gallery.get("height", 0)))


def test_unknown_tokens_are_reported_beside_the_field(page: Any, translating: str) -> None:
    page.goto(translating)
    page.wait_for_selector("figure canvas")
    page.fill("#input", "Heute läuft der 猫 Hund.")
    page.wait_for_selector("#note:text-is(\"Note: not in the model's vocabulary: '猫'\")")
    field, note, view = (page.locator(each).bounding_box() for each in ("#input", "#note", "#view"))
    assert 0 <= note["y"] - (field["y"] + field["height"]) < 20 and note["y"] + note["height"] < view["y"]
    assert not page.locator("#view .note").is_visible()  # the message appears once
    page.fill("#input", "Heute läuft der alte Hund.")
    page.wait_for_function("() => document.getElementById('note').textContent === ''")
