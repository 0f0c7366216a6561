"""The page of an external model first shows an example, and no button fails."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image

import regard
from tests.browser.conftest import served

transformers = pytest.importorskip("transformers")
WORDS = " ".join(f"w{number % 50}" for number in range(150))


@pytest.fixture(scope="module")
def language_model() -> Iterator[str]:
    """Serve the page of a GPT-2 with random weights; yields the address."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({f"w{number}": number for number in range(50)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=50, n_embd=48, n_layer=3, n_head=12, n_positions=256, bos_token_id=1, eos_token_id=1
    )
    with served(regard.look(transformers.GPT2LMHeadModel(config).eval(), tokenizer)) as address:
        yield address


def test_the_page_begins_with_an_example_and_every_button_works(page: Any, language_model: str) -> None:
    page.goto(language_model)
    page.wait_for_selector("figure canvas")
    assert page.input_value("#input") == "The dog did not cross the street because it was too"
    assert "Example of Regard's own." in page.inner_text("#accepts")
    page.click("#search")
    page.wait_for_selector("#samples table")
    page.click("#roles")
    page.wait_for_selector(".thumb .role, .quiet >> text=role")
    assert page.inner_text("#message") == ""


def test_texts_are_added_chosen_and_removed(page: Any, language_model: str) -> None:
    page.goto(language_model)
    page.wait_for_selector("figure canvas")
    page.click("#texts")
    page.fill("#input", "w1 w2 w3")
    page.wait_for_function("() => document.querySelector('.answer code')?.textContent === 'w1 w2 w3'")
    assert "Example" not in page.inner_text("#accepts")
    page.click("text=Add the typed input")
    assert page.inner_text("#texts") == "Texts (5)"
    page.click("[data-name=text-1]")
    page.wait_for_function("() => document.getElementById('input').value.startsWith('Anna gave')")
    for left in (4, 3, 2, 1):
        page.click("[data-name=remove-0]")
        assert page.inner_text("#texts") == f"Texts ({left})"
    reason = "Head roles needs 2 texts or more, and the list has 1: add one in Texts."
    assert page.get_attribute("#roles", "title") == reason
    assert page.get_attribute("#roles", "aria-disabled") == "true"
    page.locator("#roles").dispatch_event("click")
    assert page.inner_text("#message") == reason


def test_of_a_long_text_the_layer_in_view_comes_whole(page: Any, language_model: str) -> None:
    answers: list[Any] = []
    page.on("response", lambda response: answers.append(response) if "/api/" in response.url else None)
    page.goto(f"{language_model}#layer=transformer.h.0.attn")
    page.wait_for_selector("figure canvas")
    del answers[:]
    page.fill("#input", WORDS)
    page.click("text=Show")  # typing has asked already, or this asks at once
    page.wait_for_function("text => document.querySelector('.answer code')?.textContent === text", arg=WORDS)
    page.wait_for_timeout(400)
    asked = [answer for answer in answers if answer.url.endswith("/attend")]
    assert len(asked) == 1
    layers = asked[0].json()["map"]["layers"]
    assert [layer["weights"]["side"] for layer in layers] == [1, 3, 3]
    tile = page.locator(".tile[data-name='tile-transformer.h.1.attn-2']")
    before = tile.get_attribute("title")
    with page.expect_response("**/api/layers") as response:
        tile.click()
    assert response.value.request.post_data_json["layers"] == ["transformer.h.1.attn"]
    page.wait_for_timeout(300)
    assert tile.get_attribute("title") == before  # measures of the whole weights


def test_layers_are_columns_of_the_navigator_if_there_are_more_heads(page: Any, language_model: str) -> None:
    page.goto(language_model)
    page.wait_for_selector(".tile canvas")
    assert page.locator(".poster .axes").first.inner_text() == "layers →, heads ↓"
    names = [f"tile-transformer.h.{layer}.attn-{head}" for head in range(2) for layer in range(3)]
    tiles = page.locator(".tile")
    assert [tiles.nth(index).get_attribute("data-name") for index in range(6)] == names
    left = [tiles.nth(index).bounding_box()["x"] for index in range(4)]
    assert left[0] == left[3] < left[1] < left[2]
    tiles.nth(0).focus()
    for key, name in (("ArrowRight", names[1]), ("ArrowDown", names[4])):
        page.keyboard.press(key)
        assert page.evaluate("document.activeElement.dataset.name") == name


def test_a_head_that_is_off_shows_what_it_changed(page: Any, language_model: str) -> None:
    page.goto(f"{language_model}#layer=transformer.h.0.attn&head=0")
    page.wait_for_selector("figure canvas")
    page.click("text=head 0 off")
    page.wait_for_selector(".before-after canvas")
    changed = page.inner_text(".sentence")
    assert changed.startswith("Head 0 is off. The picture shows head ")
    most = page.locator(".changes .ranking button").first.inner_text()
    head, layer = re.findall(r"\d+", changed)[1:3]
    assert most == f"{layer}.{head}"
    assert page.locator(".before-after canvas").count() == 2 and "change" in page.inner_text(".legend")
    page.click("[data-name=query-3]")  # a choice in the picture opens the changed head
    page.wait_for_function("() => location.hash.includes('query=3')")
    assert f"layer=transformer.h.{layer}.attn&head={head}" in page.url and "change=true" in page.url
    page.click(".mark button")
    page.wait_for_selector(".mark", state="detached")


def test_the_poster_is_one_click_away(page: Any, language_model: str) -> None:
    page.goto(language_model)
    page.wait_for_selector("figure canvas")
    with page.expect_download() as download:
        page.click("text=Poster of all heads")
    assert download.value.suggested_filename.endswith("-all-heads.png")
    with Image.open(download.value.path()) as picture:
        assert picture.width >= 2 * 1100 and picture.info["layer"] == picture.info["heads"] == "all"
