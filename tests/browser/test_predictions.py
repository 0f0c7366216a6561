"""The card of next tokens: bars, adding a token, parts of heads, the logit lens, and value-weighted
attention.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import regard
from tests.browser.conftest import playwright, served, settle
from tests.browser.test_access import AXE, find_violations
from tests.external.conftest import model_of, small, tokenizer  # noqa: F401

expect = playwright.expect
pytestmark = pytest.mark.filterwarnings("ignore")
TEXT, MASKED = "the cat sat on the", "the cat <mask> on the mat"


@pytest.fixture(scope="module")
def causal(model_of: Callable[[str], Any], tokenizer: Any) -> regard.ExternalModel:  # noqa: F811
    return regard.look(model_of("gpt2"), tokenizer, inputs=[TEXT])


@pytest.fixture(scope="module")
def writing(causal: regard.ExternalModel) -> Iterator[str]:
    with served(causal) as place:
        yield place


def open_page(page: Any, address: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(address)
    page.wait_for_selector(".tokens-next li")
    settle(page)


def shares(page: Any) -> list[str]:
    return list(page.locator(".tokens-next .share").all_inner_texts())


def test_tokens_are_those_of_the_model_and_limits_change_them(
    page: Any, writing: str, causal: regard.ExternalModel
) -> None:
    open_page(page, writing)
    tokens = regard.next_tokens(causal, TEXT).tokens
    assert page.locator(".tokens-next button").all_inner_texts() == [item.token for item in tokens]
    before = shares(page)
    page.fill("[data-name='Top-k']", "3")
    page.press("[data-name='Top-k']", "Tab")
    expect(page.locator(".tokens-next li")).to_have_count(3)
    assert "3 tokens kept" in page.inner_text(".predictions") and shares(page) != before[:3]


def test_a_written_token_is_attended_and_taken_back(page: Any, writing: str) -> None:
    open_page(page, writing)
    button = page.locator(".tokens-next button:enabled").first
    word = button.inner_text()
    button.click()
    expect(page.locator("#input")).to_have_value(f"{TEXT} {word}")
    expect(page.locator(".predictions")).to_contain_text("position 5")
    page.click("[data-name='Undo writing']")
    expect(page.locator("#input")).to_have_value(TEXT)
    page.wait_for_selector("[data-name='Undo writing']:disabled")


def test_heads_that_are_off_show_both_probabilities(page: Any, writing: str) -> None:
    open_page(page, f"{writing}#head=1")
    page.click(".touch button >> nth=0")
    page.wait_for_selector(".tokens-next .changed")
    assert page.locator(".tokens-next li").first.locator(".shares > span").count() == 2


def test_parts_of_heads_open_a_head_and_the_lens_is_a_table(page: Any, writing: str) -> None:
    open_page(page, writing)
    page.click("[data-name='Logit by head']")
    page.wait_for_selector(".parts button")
    assert page.locator(".parts button").count() == 8
    page.locator(".parts button").nth(6).click()
    settle(page)
    assert "head=2" in page.url and "h.1.attn" in page.url
    page.click("[data-name='Logit lens']")
    page.wait_for_selector("dialog.lens table")
    assert page.locator("dialog.lens tbody tr").count() == 3
    assert "transformer.ln_f and lm_head" in page.inner_text("dialog.lens")
    page.press("body", "Escape")


@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: npm ci")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing_in_predictions(page: Any, writing: str, width: int, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 844})
    page.goto(f"{writing}#head=1")
    page.wait_for_selector(".tokens-next li", state="attached")
    tabs = page.locator("[role=tab]")
    if width == 390:
        tabs.nth(2).click()
    assert find_violations(page) == [], "tokens"
    page.click(".touch button >> nth=0")
    page.wait_for_selector(".tokens-next .shares > span:nth-child(2)")
    page.click("[data-name='Logit by head']")
    page.wait_for_selector(".parts button")
    assert find_violations(page) == [], "logit by head"
    page.click("[data-name='Logit lens']")
    page.wait_for_selector("dialog.lens table")
    assert find_violations(page) == [], "lens"
    page.press("body", "Escape")
    page.click("#values")
    page.wait_for_selector("#values[aria-pressed=true]")
    assert find_violations(page) == [], "weighted values"
    page.click("#texts")
    page.wait_for_selector("#list li")
    assert find_violations(page) == [], "texts"
    if width == 390:
        tabs.nth(0).click()
        assert find_violations(page) == [], "poster"
        tabs.nth(1).click()
    page.click("[role=radio][data-name='Overview']")
    settle(page)
    assert find_violations(page) == [], "overview"


def test_weighted_values_are_shown_and_said(page: Any, writing: str, causal: regard.ExternalModel) -> None:
    open_page(page, f"{writing}#head=1")
    page.click("#values")
    page.wait_for_selector("#values[aria-pressed=true]")
    expect(page.locator("#note")).to_contain_text("Kobayashi")
    page.click("[role=radio][data-name='Table']")
    layer = causal.layers[0].name
    page.wait_for_selector("table")
    weighted = regard.weighted_values(causal, TEXT).weighted[layer][1][-1]
    row = page.locator(".stage tbody tr").last.inner_text().split()
    assert f"{weighted[0] / weighted.sum():.3f}" in row


def test_unknown_values_disable_the_switch(
    page: Any,
    model_of: Callable[[str], Any],  # noqa: F811
    tokenizer: Any,  # noqa: F811
) -> None:
    with served(regard.look(model_of("deberta"), tokenizer, inputs=[TEXT])) as place:
        page.goto(place)
        page.wait_for_selector("#values[aria-disabled=true][title*='are not recorded']")
        page.click("#values", force=True)
        expect(page.locator("#message")).to_contain_text("its values are not recorded")
        assert page.get_attribute("#values", "aria-pressed") == "false"


def test_a_mask_is_filled_and_a_text_without_one_uses_the_chosen_row(
    page: Any,
    model_of: Callable[[str], Any],  # noqa: F811
    tokenizer: Any,  # noqa: F811
) -> None:
    with served(regard.look(model_of("bert-mlm"), tokenizer, inputs=[MASKED])) as place:
        open_page(page, place)
        assert "At “<mask>”, position 2" in page.inner_text(".predictions")
        button = page.locator(".tokens-next button:enabled").first
        word = button.inner_text()
        button.click()
        expect(page.locator("#input")).to_have_value(MASKED.replace("<mask>", word))
        expect(page.locator(".predictions")).to_contain_text("No <mask> is in")
