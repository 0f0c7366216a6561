"""The page of an external model first shows an example, and no entry of its menu fails."""

from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image

import regard
from tests.browser.conftest import ANSWERED, open_view, selection, served, settle, type_input, use_tool

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


def test_the_page_begins_with_an_example_and_every_tool_works(page: Any, language_model: str) -> None:
    open_view(page, language_model)
    assert page.input_value("#input") == "The dog did not cross the street because it was too"
    assert "Example texts by Regard" in page.inner_text("#about")
    use_tool(page, "Top inputs")
    page.wait_for_selector(".tool table")
    use_tool(page, "Head roles")
    page.wait_for_selector(".facts:has-text('role')")
    with page.expect_download() as download:
        use_tool(page, "Poster of all heads", "save")
    assert download.value.suggested_filename.endswith("-all-heads.png") and page.inner_text("#message") == ""
    with Image.open(download.value.path()) as picture:
        assert max(picture.size) >= 2 * 1000 and picture.info["layer"] == picture.info["heads"] == "all"


def test_texts_are_added_chosen_and_removed(page: Any, language_model: str) -> None:
    open_view(page, language_model)
    use_tool(page, "Inputs (4)")
    type_input(page, "w1 w2 w3")
    page.click("text=Add the typed input")
    page.click("[data-name=text-1]")
    page.wait_for_function("() => document.getElementById('input').value.startsWith('Anna gave')")
    for _ in range(4):
        page.click("[data-name=remove-0]")
    page.click("[data-name=analyse]")
    assert page.locator(".drop [data-name='Inputs (1)']").is_visible()
    roles = page.locator(".drop [data-name='Head roles']")
    assert roles.get_attribute("aria-disabled") == "true" and "needs 2 inputs or more" in roles.inner_text()


def test_the_grid_has_a_column_for_each_layer_where_that_makes_it_larger(page: Any, language_model: str) -> None:
    open_view(page, language_model, "layer=transformer.h.0.attn&head=0")
    grid = page.locator(".heads [role=grid]")
    assert [grid.get_attribute(f"aria-{side}count") for side in ("row", "col")] == ["12", "3"]
    use_tool(page, "Inputs (4)")  # the axes stay as they are
    grid.focus()
    for key, name in (("ArrowDown", "0.1"), ("ArrowRight", "1.1"), ("ArrowUp", "1.0"), ("ArrowLeft", "0.0")):
        page.keyboard.press(key)
        settle(page)
        assert grid.get_attribute("data-head") == name
        assert page.inner_text(".sentence").startswith(f"Layer {name[0]}, head {name[2]}: ")
    canvas = page.locator(".heads canvas").bounding_box()
    step = (canvas["height"] - 16) / 12
    place = canvas["x"] + canvas["width"] - 20, canvas["y"] + canvas["height"] - 1.5 * step
    page.mouse.move(*place)
    page.wait_for_function("() => document.querySelector('.heads [role=grid]').dataset.head === '2.10'")
    page.mouse.click(*place)
    assert (selection(page)["layer"], selection(page)["head"]) == ("transformer.h.2.attn", 10)
    assert page.locator("figure").count() == 1
    page.mouse.click(*place)  # a second click shows the whole layer
    page.wait_for_function("() => document.querySelectorAll('figure').length === 12")


def test_what_a_switched_off_head_changed_is_said(page: Any, language_model: str) -> None:
    open_view(page, language_model, "layer=transformer.h.0.attn&head=0")
    page.click(".touch [data-name=off]")
    page.wait_for_selector(".changes .ranking button")
    assert page.inner_text(".sentence").startswith("Layer 0, head 0 is switched off")
    most = page.locator(".changes .ranking button").first
    name = most.inner_text()
    most.click()
    page.wait_for_function("name => document.querySelector('.heads [role=grid]').dataset.head === name", arg=name)
    assert "change" in page.inner_text(".legend")
    page.click(".mark button")
    page.wait_for_selector(".mark b", state="detached")


def test_of_a_long_text_the_head_in_view_comes_whole(page: Any, language_model: str) -> None:
    open_view(page, language_model, "layer=transformer.h.0.attn&head=0")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/api/" in request.url else None)
    page.fill("#input", WORDS)
    page.wait_for_function(ANSWERED, arg=WORDS)
    page.wait_for_timeout(400)
    assert len([url for url in asked if url.endswith("/attend")]) == 1
    assert not [url for url in asked if url.endswith("/value_norms")]  # not before it is switched on
