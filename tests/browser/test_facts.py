"""Texts of pages and saved files at load, for the selected head, and for changes of the model."""

import io
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import regard
from regard.viz.attention_map import AttentionMap
from regard.viz.maps import LayerMap
from regard.viz.page import write_page
from tests.browser.conftest import CHROMIUM, map_of, settle
from tests.browser.test_explorer import _type
from tests.browser.test_printing import pictures

NONE = "This model has no attention to show"
QUIET = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


def test_a_page_that_is_printed_at_load_has_its_picture(exported: Path, tmp_path: Path) -> None:
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    printed = [f"--user-data-dir={tmp_path / 'user'}", f"--print-to-pdf={tmp_path / 'a.pdf'}", exported.as_uri()]
    subprocess.run([CHROMIUM, *QUIET, *printed], check=True, capture_output=True, timeout=60)
    shown = [size for size in pictures((tmp_path / "a.pdf").read_bytes()) if size[:2] == (13, 3)]
    assert len(shown) == 2 and all(coloured > 20 for _, _, coloured in shown)


def test_page_is_never_reported_as_empty_while_loading(own_page: Any, exported: Path) -> None:
    own_page.add_init_script(
        """globalThis.said = [];
        new MutationObserver(() => globalThis.said.push(document.body?.innerText ?? ""))
            .observe(document, { childList: true, subtree: true, characterData: true });"""
    )
    own_page.goto(exported.as_uri())
    own_page.wait_for_selector("figure canvas")
    said = own_page.evaluate("globalThis.said")
    assert said and not any(NONE in each for each in said) and "Loading" not in own_page.inner_text("body")


def test_without_javascript_the_page_says_so(chromium: Any, exported: Path) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(exported.as_uri())
    assert page.locator("noscript").inner_text().startswith("This page requires JavaScript")
    assert not page.locator("#loading").is_visible()
    context.close()


def _heads(page: Any) -> tuple[str, str]:
    """Return the heads named in the sentence and in the strip of tokens."""
    settle(page)
    found = [
        re.search(r"average of heads [\d, ]*\d|head \d+", page.locator(place).inner_text())
        for place in (".sentence", ".tokens > .quiet >> nth=1")
    ]
    return found[0][0] if found[0] else "", found[1][0] if found[1] else ""


def test_sentence_and_strip_show_the_same_head(page: Any, exported: Path, learned: regard.AnswerRun) -> None:
    page.goto(exported.as_uri())
    page.wait_for_selector("figure canvas")
    weights = learned.attend("BCCCBAABACCCA").cross.weights

    def check(expected: str | None = None, *, trained: bool = True) -> None:
        sentence, strip = _heads(page)
        assert sentence == strip != "" and expected in (None, strip)
        head = re.fullmatch(r"head (\d+)", strip)
        query = page.locator(".tokens [aria-pressed=true]").first.get_attribute("data-name").removeprefix("query-")
        tokens = page.locator(".tokens > div >> nth=1").locator(".token")
        shown = [float(each) for each in tokens.evaluate_all("all => all.map((each) => each.title)")]
        if head and trained:
            np.testing.assert_allclose(shown, weights[int(head[1]), int(query)], atol=2e-3)

    check()
    for query in (1, 2):
        page.click(f"[data-name=query-{query}]")
        check()
    for head in ("head 0", "head 1", "all heads"):
        page.select_option("select[data-name=Head]", label=head)
        check(None if head == "all heads" else head)
    page.hover("figure canvas >> nth=0")  # the pointer is on another head, then on none
    page.mouse.move(5, 5)
    check()
    page.check("text=average of the heads")
    check("average of heads 0, 1")
    page.uncheck("text=average of the heads")
    page.click("text=Lines")
    check()
    for off, left in (("key-0", "head 1"), ("key-1", None)):
        page.click(f"[data-name={off}]")
        check(left)
    page.hover("[data-name=line-query-0]")
    page.mouse.move(5, 5)
    check()
    page.click("text=Overview")
    check()
    page.click("text=Heatmap")
    page.locator("input[data-name=time]").focus()
    page.keyboard.press("Home")
    check(trained=False)
    page.select_option("select[data-name='Compare with']", index=1)
    check(trained=False)


def test_sentence_and_strip_with_words(page: Any, german: regard.TranslationRun, tmp_path: Path) -> None:
    page.goto(german.attend("Heute läuft der alte Hund.").to_html(tmp_path / "p.html").as_uri())
    page.wait_for_selector("figure canvas")
    assert "▁" not in page.inner_text("body") and "␣" in page.inner_text(".tokens")
    sentence, strip = _heads(page)
    assert sentence == strip != "" and page.inner_text(".sentence").startswith("To write “")
    page.check("text=whole words")
    sentence, strip = _heads(page)
    assert sentence == strip != ""


def _saver(page: Any) -> Callable[[str], bytes]:
    def saved(kind: str) -> bytes:
        with page.expect_download() as download:
            page.click(f".save button:text-is('{kind}')")
        return Path(download.value.path()).read_bytes()

    return saved


def test_saved_files_name_the_changes(page: Any, address: str, learned: regard.AnswerRun) -> None:
    _type(page, address)
    saved = _saver(page)
    assert "# interventions: none" in saved("CSV").decode()
    page.select_option("select[data-name=Head]", label="head 1")
    page.click("text=head 1 off")
    page.wait_for_selector("text=Interventions: cross: head 1 off")
    before = " ".join(map(str, learned.attend("BCCCBAABACCCA").prediction or ()))
    with regard.intervene(learned, "cross", heads=[1]):
        after = " ".join(map(str, learned.attend("BCCCBAABACCCA").prediction or ()))
    facts = {
        "model": str(learned.folder),
        "layer": "cross",
        "heads": "head 1",
        "interventions": "cross: head 1 off",
        "prediction": after,
        "prediction without interventions": before,
    }
    settle(page)
    table = saved("CSV").decode()
    with Image.open(io.BytesIO(saved("PNG"))) as image:
        image.load()
        texts = dict(image.info)
    picture = ElementTree.fromstring(saved("SVG"))
    description = picture.findtext("{http://www.w3.org/2000/svg}desc") or ""
    for name, value in facts.items():
        assert f"# {name}: {value}\r\n" in table
        assert texts[name] == value
        assert f"{name}: {value}\n" in description
    assert re.search(r"# scale: weight 0 to [\d.]+, the same for all heads\r\n", table)
    drawn = [each.text for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert "Interventions: cross: head 1 off" in drawn
    assert f"Prediction: {after}, without interventions: {before}" in drawn


def test_omitted_names_are_mentioned(page: Any, tmp_path: Path) -> None:
    labels = [f"t{step}" for step in range(70)]
    weights = np.eye(70, dtype=np.float32)[None]
    page.goto(write_page(tmp_path / "p.html", [map_of(weights, labels, labels)]).as_uri())
    page.wait_for_selector("figure canvas")
    page.set_viewport_size({"width": 420, "height": 800})
    settle(page)
    assert re.search(r"1 in \d+ is labeled", page.inner_text(".axis.across"))
    few = map_of(weights[:, :5, :5], labels[:5], labels[:5])
    page.goto(write_page(tmp_path / "q.html", [few]).as_uri())
    page.wait_for_selector("figure canvas")
    settle(page)
    assert "is labeled" not in page.inner_text(".axis.across")


def test_a_prompt_is_of_tokens(page: Any, tmp_path: Path) -> None:
    labels = ["▁the", "▁cat"]
    layer = LayerMap(
        name="h.0", title="h.0", weights=np.array([[[1.0, 0.0], [0.4, 0.6]]], dtype=np.float32),
        query_labels=labels, key_labels=labels, kind_override="decoder",
    )  # fmt: skip
    found = AttentionMap(
        task="gpt2", input="the cat", prediction="ran", truth=None, layers={"h.0": layer}, outputs=["▁ran"],
        probabilities=[0.5],
    )  # fmt: skip
    page.goto(found.to_html(tmp_path / "p.html").as_uri())
    page.wait_for_selector("figure canvas")
    settle(page)
    said = page.inner_text("#view")
    assert "tokens (queries)" in said and "outputs" not in said
    assert page.inner_text(".sentence").startswith("At “cat” (step 1)")
