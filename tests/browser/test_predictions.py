"""The card of next tokens: bars, another token, parts of heads, logit lens, value-weighted attention."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import regard
from tests.browser.conftest import playwright, served, settle, use_tool
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
    page.click("summary:text-is('Sampling')")
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
    page.click(".touch [data-name=off]")
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
    if width == 390:
        page.click("[data-name=Details]")
    assert find_violations(page) == [], "tokens"
    page.click(".touch [data-name=off]")
    page.wait_for_selector(".tokens-next .shares > span:nth-child(2)")
    page.click("[data-name='Logit by head']")
    page.wait_for_selector(".parts button")
    assert find_violations(page) == [], "logit by head"
    page.click("[data-name='Logit lens']")
    page.wait_for_selector("dialog.lens table")
    assert find_violations(page) == [], "lens"
    page.press("body", "Escape")
    use_tool(page, "Value-weighted")
    expect(page.locator("#note")).to_contain_text("Kobayashi")
    assert find_violations(page) == [], "weighted values"
    use_tool(page, "Inputs (1)")
    assert find_violations(page) == [], "texts"


def test_weighted_values_are_shown_and_said(page: Any, writing: str, causal: regard.ExternalModel) -> None:
    layer = causal.layers[0].name
    open_page(page, f"{writing}#layer={layer}&head=1&query=4&key=0")
    before = page.inner_text("output")
    use_tool(page, "Value-weighted")
    expect(page.locator("#note")).to_contain_text("Kobayashi")
    weighted = regard.weighted_values(causal, TEXT).weighted[layer][1][-1]
    expect(page.locator(".row li[data-key='0'] .number")).to_have_text(f"{weighted[0] / weighted.sum():.3f}")
    assert page.inner_text("output") != before


def test_unknown_values_are_explained(
    page: Any,
    model_of: Callable[[str], Any],  # noqa: F811
    tokenizer: Any,  # noqa: F811
) -> None:
    with served(regard.look(model_of("deberta"), tokenizer, inputs=[TEXT])) as place:
        page.goto(place)
        page.wait_for_selector("figure canvas")
        use_tool(page, "Value-weighted")
        expect(page.locator("#message")).to_contain_text("its values are not recorded")
        page.click("[data-name=analyse]")
        entry = page.locator(".drop [data-name='Value-weighted']")
        assert entry.get_attribute("aria-disabled") == "true" and entry.get_attribute("aria-checked") == "false"


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
