"""A page without a server, opened from a file in Chromium."""

import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from tests.browser.conftest import INPUT, choose, settle

AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
INPUTS = 200


@pytest.fixture(scope="module")
def live(learned: regard.AnswerRun, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of a page with a run of Signal 2."""
    return regard.write_live_page(learned, tmp_path_factory.mktemp("live") / "page.html").as_uri()


@pytest.fixture(scope="module")
def trainable(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of a page with a run of Counting, which can be trained."""
    folder = tmp_path_factory.mktemp("trainable")
    run = regard.train("counting", steps=5, savepath=folder, progress=False)
    return regard.write_live_page(run, folder / "page.html").as_uri()


def open_page(page: Any, address: str) -> list[str]:
    """Open a page; returns the list of requested addresses, which grows with each request."""
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(address)
    page.wait_for_selector("canvas", state="attached")
    return requests


def type_input(page: Any, text: str) -> None:
    page.fill("#input", text)
    page.wait_for_function("text => document.querySelector('.answer code')?.textContent === text", arg=text)


def prediction(page: Any) -> list[int]:
    return [int(number) for number in page.inner_text(".prediction").split()]


def test_typed_input_is_answered_without_a_request(page: Any, live: str, learned: regard.AnswerRun) -> None:
    requests = open_page(page, live)
    type_input(page, INPUT)
    attention = learned.attend(INPUT)
    assert prediction(page) == attention.prediction
    shown = [float(share) for share in re.findall(r"([\d.]+)%", page.inner_text(".answer"))]
    assert np.allclose(shown, 100 * np.array(attention.probabilities), atol=0.06)
    assert requests == [live]
    assert "This page needs no server" in page.inner_text("#limits")


def test_head_is_switched_off_and_a_weight_explained(page: Any, live: str, learned: regard.AnswerRun) -> None:
    open_page(page, live)
    type_input(page, INPUT)
    choose(page, head=1)
    page.click(".touch [data-name=off]")
    page.wait_for_selector(".mark b:text-matches('^1 [^,]*$')")
    with regard.intervene(learned.model, "cross", heads=[1]):
        assert prediction(page) == learned.attend(INPUT).prediction
    page.click(".mark button")
    page.wait_for_function("() => !document.querySelector('.mark b')")
    assert prediction(page) == learned.attend(INPUT).prediction
    page.locator("figure [role=grid]").first.focus()
    page.keyboard.press("ArrowDown")
    page.click("button[data-name='How it is computed']")
    page.wait_for_selector("text=q * k")


def test_refused_input(page: Any, live: str) -> None:
    open_page(page, live)
    page.fill("#input", "BCCX")
    page.wait_for_function("() => document.getElementById('message').textContent !== ''")
    assert "letter 'X' at step 3 is not in the vocabulary: use A, B, C" in page.inner_text("#message")


def test_logits_in_the_browser(page: Any, live: str, learned: regard.AnswerRun) -> None:
    """The model of the page computes answers from the parameters in the file."""
    texts = [learned.draw(seed=seed) for seed in range(INPUTS)]
    open_page(page, live)
    logits = page.evaluate(
        "texts => texts.map((text) => regardModel.run(text, []).logits.map((row) => [...row]))", texts
    )
    with torch.inference_mode():
        expected = learned.model(torch.cat([learned.task.parse(text) for text in texts])).numpy()
    assert np.abs(np.array(logits) - expected).max() <= 1e-4


def test_picture_follows_an_input_at_once(page: Any, live: str) -> None:
    """The limit is 50 ms without the pause for typing; five times as much is accepted on busy machines."""
    open_page(page, live)
    type_input(page, INPUT)
    times = []
    for text in ("ABCAAAABBBCCC", "CCCABABABABAB", "AABBBBBBBBBBB"):
        page.fill("#input", text)
        times.append(
            page.evaluate(
                """text => new Promise(done => {
                    const begin = performance.now();
                    new MutationObserver(() => {
                        if (document.querySelector('.answer code')?.textContent === text)
                            requestAnimationFrame(() => done(performance.now() - begin));
                    }).observe(document.getElementById('view'), { subtree: true, childList: true });
                    document.getElementById('ask').requestSubmit();
                })""",
                text,
            )
        )
    assert min(times) < 250


def test_training_in_the_page(page: Any, trainable: str) -> None:
    open_page(page, trainable)
    type_input(page, "ABBC AAB C")
    page.fill("#seed", "3")
    page.click("text=Train here")
    page.wait_for_selector("#training svg")
    begin = time.monotonic()
    page.wait_for_selector("text=/exact match [0-9.]+%/", timeout=120_000)
    share = float(re.findall(r"exact match ([\d.]+)%", page.inner_text("#training"))[0])
    assert share >= 99
    assert time.monotonic() - begin < 120
    assert prediction(page) == [3, 3, 2]
    page.click("text=Stored model")
    settle(page)
    assert "The stored model" in page.inner_text("#training")


def test_stop_keeps_the_model_so_far(page: Any, trainable: str) -> None:
    open_page(page, trainable)
    page.click("text=Train here")
    page.wait_for_selector("text=/step [0-9]+ of/")
    page.click("text=Stop")
    step = page.inner_text("#training")
    page.wait_for_timeout(600)
    assert page.inner_text("#training") == step


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core")
def test_no_accessibility_violation(page: Any, trainable: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    open_page(page, trainable)
    page.click("text=Train here")
    page.wait_for_selector("#training svg")
    page.click("text=Stop")
    page.evaluate(AXE.read_text(encoding="utf-8") + "\n0")
    found = page.evaluate("async () => (await axe.run()).violations.map(({ id, nodes }) => [id, nodes[0].html])")
    assert found == []


def test_narrow_screen(page: Any, trainable: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    open_page(page, trainable)
    settle(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
