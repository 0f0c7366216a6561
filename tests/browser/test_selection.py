"""One selection: after any action, every part of the page shows the same layer, head, query, key and text."""

import random
from typing import Any

import pytest

from tests.browser.conftest import INPUT, open_view, selection

ACTIONS = 500
ANSWERED = "text => JSON.parse(document.querySelector('.regard-view').dataset.selection).input === text"
PARTS = """() => {
    const root = document.querySelector(".regard-view");
    const chosen = JSON.parse(root.dataset.selection);
    const grid = root.querySelector(".heads [role=grid]");
    const rows = [...root.querySelectorAll("figure [role=grid]")].map((panel) => [
        panel.querySelector("[role=row]").getAttribute("aria-rowindex"),
        panel.querySelector("[role=gridcell]").getAttribute("aria-colindex"),
        panel.querySelector("[role=rowheader]").textContent,
    ]);
    return {
        ...chosen,
        tag: grid.dataset.head,
        sentence: root.querySelector(".sentence").textContent,
        rows,
        output: root.querySelector("output").textContent,
        marked: [...root.querySelectorAll(".row li.on")].map((item) => Number(item.dataset.key)),
        title: root.querySelector(".row h2")?.textContent ?? "",
        touch: root.querySelector(".touch span")?.textContent ?? "",
        flow: root.querySelector("[data-name=Flow]")?.getAttribute("aria-checked") === "true",
        typed: document.getElementById("input").value,
        busy: document.querySelector(".refused") !== null,
    };
}"""
"""JavaScript that returns the selection, and what each part says of it."""


def check_parts(found: dict[str, Any], done: str) -> None:
    query, key, tag = found["query"], found["key"], found["tag"]
    label = found["rows"][0][2]
    for row, column, name in found["rows"]:
        assert (int(row), name) == (query + 1, label), done
        assert key is None or int(column) == key + 1, done
    assert found["output"].startswith("Point at a weight" if key is None else f"{label} →"), (done, found)
    assert label in found["sentence"] or "is switched off" in found["sentence"], (done, found)
    assert f"Largest weights of {label}," in found["title"], (done, found)
    if key is not None:
        assert f"(step {key})" in found["output"], (done, found)
    assert set(found["marked"]) <= {key}, (done, found)
    if not found["flow"]:
        words = tag.replace(" ", " layer ").replace(".", ", head ")
        assert tag.endswith(f".{found['head']}") and f", {words}" in found["title"], (done, found)
        assert found["sentence"].lower().startswith(words) and found["touch"] in ("", f"Head {tag}"), (done, found)
    assert found["typed"] == found["input"] or found["busy"], (done, found)


@pytest.mark.parametrize("subject", ["numbers", "text"])
def test_all_parts_follow_the_selection(page: Any, address: str, translating: str, subject: str) -> None:
    draw = random.Random(0)
    open_view(page, address if subject == "numbers" else translating)
    texts = (
        [INPUT, INPUT[::-1], "ABCAAAABBBCCC"] if subject == "numbers" else ["Heute läuft der Hund.", "Der alte Hund."]
    )
    settle = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"

    def place(selector: str) -> tuple[float, float] | None:
        boxes = [box for item in page.locator(selector).all() if (box := item.bounding_box())]
        if not boxes:
            return None
        box = draw.choice(boxes)
        return box["x"] + draw.random() * box["width"], box["y"] + draw.random() * box["height"]

    history = [selection(page)["input"]]
    at = 0

    def act() -> str:
        nonlocal at
        kind = draw.choices(
            [
                "hover",
                "click",
                "grid hover",
                "grid click",
                "keys",
                "grid keys",
                "bars",
                "mode",
                "drawer",
                "text",
                "back",
                "off",
            ],
            [6, 5, 3, 3, 5, 3, 2, 1, 0.5, 0.4, 0.3, 0.5],
        )[0]
        selectors = {"hover": "figure canvas", "click": "figure canvas", "bars": ".row li"}
        if kind in ("hover", "click", "grid hover", "grid click", "bars"):
            point = place(selectors.get(kind, ".heads canvas"))
            if point is None:
                return "nothing"
            page.mouse.move(*point)
            if "click" in kind or (kind == "bars" and draw.random() < 0.5):
                page.mouse.click(*point)
        elif "keys" in kind:
            page.locator(".heads [role=grid]" if "grid" in kind else "figure [role=grid]").first.focus()
            page.keyboard.press(draw.choice(["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home", "End", "]"]))
        elif kind == "mode":
            radios = page.locator("[role=radio]").all()
            draw.choice(radios).click()
        elif kind == "drawer":
            page.click("[data-name=Details]")
        elif kind == "text":
            page.fill("#input", text := draw.choice(texts))
            if text != history[at]:
                del history[at + 1 :]
                history.append(text)
                at += 1
            page.wait_for_function(ANSWERED, arg=text)
        elif kind == "back":
            by = draw.choice([-1, 1])
            if not 0 <= at + by < len(history):
                return "nothing"
            at += by
            page.evaluate(f"history.go({by})")
            page.wait_for_function(ANSWERED, arg=history[at])
        elif kind == "off" and page.locator(".touch [data-name=off]").is_visible():
            page.click(".touch [data-name=off]")
            page.wait_for_timeout(150)
        return kind

    done = []
    for number in range(ACTIONS if subject == "numbers" else ACTIONS // 5):
        done.append(act())
        page.evaluate(settle)
        check_parts(page.evaluate(PARTS), f"{number}: {done[-3:]}")
    assert len(set(done)) > 8
