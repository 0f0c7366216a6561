"""The computation of a weight on the page shows the numbers of the model."""

import re
from pathlib import Path
from typing import Any

import regard
from regard.cli import main
from tests.browser.conftest import choose

INPUT = "BCCCBAABACCCA"


def _open(page: Any, address: str) -> None:
    page.goto(f"{address}#input={INPUT}&head=1&query=1&key=2&sum=true")
    page.wait_for_selector(".sum h2")


def test_sum_has_the_models_numbers(page: Any, address: str, learned: regard.AnswerRun) -> None:
    _open(page, address)
    found = learned.explain(INPUT, head=1, output=1, key=2)
    said = page.inner_text(".sum")
    assert f"the weight {found.weight:.4f} on “C” (step 2)" in said
    assert f"= {found.score:.4f}: the score." in said
    rows = page.locator(".sum table").first.locator("tbody tr").all_inner_texts()
    assert [float(row.split()[3]) for row in rows] == [round(each, 4) for each in found.weights]
    assert found.answered is not None
    assert f"4. Answer at this step: {found.answered.answer}, probability {found.answered.probability:.4f}" in said
    logits = page.locator(".sum table").nth(1).locator("tbody tr").all_inner_texts()
    assert [float(row.split()[1]) for row in logits] == [round(each, 4) for each in found.answered.logits[:8]]
    page.click("[data-name=sum-key-4]")
    page.wait_for_selector("text=on “B” (step 4)")
    assert "key=4" in page.url


def test_the_temperature_is_dragged(page: Any, address: str, learned: regard.AnswerRun) -> None:
    _open(page, address)
    slider = page.locator("input[data-name=temperature]")
    slider.focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    page.wait_for_selector("th:text-is('÷ 1.26')")
    warm = learned.explain(INPUT, head=1, output=1, key=2, temperature=1.26)
    assert f"the weight {warm.weight:.4f} on" in page.inner_text(".sum")
    assert page.evaluate("document.activeElement.dataset.name") == "temperature"
    page.reload()
    page.wait_for_selector("th:text-is('÷ 1.26')")
    assert abs(10 ** float(page.input_value("input[data-name=temperature]")) - 1.26) < 0.01
    page.click("button:text-is('temperature 1')")
    page.wait_for_function("() => !document.querySelector('.sum').textContent.includes('÷')")
    assert re.search(r"weight 0\.\d{4}", page.inner_text(".sum h2"))


def test_a_sum_of_a_translation(page: Any, translating: str, german: regard.TranslationRun) -> None:
    page.goto(translating)
    page.wait_for_selector("figure canvas")
    page.click("[data-name='How it is computed']")
    page.wait_for_selector(".sum h3")
    assert page.locator(".sum h3").count() == 4
    choose(page, layer="encoder.0.self_attention")
    page.wait_for_function("() => document.querySelectorAll('.sum h3').length === 3")  # its queries are no outputs


def test_page_contains_the_sums(page: Any, learned: regard.AnswerRun, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    main(["test", str(learned.folder), "--input", INPUT, "--plot", str(file), "--samples", "5"])
    page.goto(f"{file.as_uri()}#layer=encoder.0.self_attention&head=1&query=1&key=2")
    page.click("[data-name='How it is computed']")
    found = learned.explain(INPUT, layer="encoder.0.self_attention", head=1, output=1, key=2)
    page.wait_for_selector(f"text=the weight {found.weight:.4f} on “C” (step 2)")
    assert f"= {found.score:.4f}: the score." in page.inner_text(".sum")
    assert page.locator(".sum h3").count() == 3
    page.locator("input[data-name=temperature]").focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    warm = learned.explain(INPUT, layer="encoder.0.self_attention", head=1, output=1, key=2, temperature=1.26)
    page.wait_for_selector(f"text=the weight {warm.weight:.4f} on “C” (step 2)")
    said = page.inner_text(".sum")
    assert "requires the model" in said and "normalized" not in said
    context = page.locator(".sum dt:text-is('context: Σ of all keys') + dd").inner_text()
    assert f"{warm.context[0]:.3f}" in context
    page.click("button:text-is('temperature 1')")
    page.wait_for_selector(f"text=the weight {found.weight:.4f} on “C” (step 2)")
    choose(page, layer="cross", query=0)
    found = learned.explain(INPUT, head=1, output=0, key=2)
    page.wait_for_selector(f"text=the weight {found.weight:.4f} on")
    assert found.answered is not None
    said = page.inner_text(".sum")
    assert f"4. Answer at this step: {found.answered.answer}, probability" in said
    assert f"{found.answered.logits[0]:.4f}" in said
    names = page.locator(".sum .strips dt").all_inner_texts()
    assert [*found.steps] == names[: len(found.steps)] and "normalized" in names


def test_page_without_sums_names_the_explorer(page: Any, learned: regard.AnswerRun, tmp_path: Path) -> None:
    file = learned.attend(INPUT).to_html(tmp_path / "page.html")
    page.goto(f"{file.as_uri()}#head=1&query=1&key=2&sum=true")
    command = f"regard explain signal2 --input '{INPUT}' --layer cross --head 1 --output 1 --key 2"
    page.wait_for_selector(f"code:text-is({command!r})")
    assert page.locator("[data-name='How it is computed']").count() == 0
