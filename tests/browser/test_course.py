"""A lesson is written to a folder and opened from the folder."""

from pathlib import Path
from typing import Any

import regard
from regard.course.lessons import find_lesson
from regard.course.pages import embed_view, exercise_page, index_page, lesson_page, read_asset
from regard.viz.page import write_page


def test_a_baked_view_has_the_room_it_needs(learned: regard.AnswerRun, page: Any, tmp_path: Path) -> None:
    write_page(tmp_path / "signal2-view.html", [learned.attend(seed=0)])
    for name in ("learn.css", "notes.js"):
        (tmp_path / name).write_text(read_asset(name), encoding="utf-8")
    see = embed_view("signal2-view.html", ["answers without an error: 12.0%"])
    (tmp_path / "signal2.html").write_text(lesson_page(find_lesson("signal2"), see=see), encoding="utf-8")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 700})
        page.goto((tmp_path / "signal2.html").as_uri())
        page.query_selector("iframe").scroll_into_view_if_needed()  # distant parts are not laid out
        page.wait_for_function("document.querySelector('iframe').style.height")
        frame = page.query_selector("iframe").content_frame()
        frame.wait_for_function("document.documentElement.scrollHeight <= innerHeight")
        assert frame.evaluate("innerHeight") > 400
        assert page.evaluate("document.documentElement.scrollWidth") == width


def test_notes_stay_in_the_browser_and_open_the_solution(page: Any, tmp_path: Path) -> None:
    pages = {"learn.css": read_asset("learn.css"), "notes.js": read_asset("notes.js"), "index.html": index_page()}
    pages |= {"tokens.html": lesson_page(find_lesson("tokens"), see="")}
    pages |= {"exercise-score.html": exercise_page("score")}
    for name, text in pages.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    page.goto((tmp_path / "tokens.html").as_uri())
    assert not page.is_visible("#comparison")
    page.fill("#prediction", "l and o")
    assert page.inner_text("#predicted") == "l and o"
    page.select_option("#verdict", "right")
    page.reload()
    assert page.input_value("#prediction") == "l and o" and page.input_value("#verdict") == "right"
    page.goto((tmp_path / "exercise-score.html").as_uri())
    assert not page.is_visible("#solution")
    page.click("#unlock")
    assert page.is_visible("#solution")
    page.select_option("#state", "right")
    page.goto((tmp_path / "index.html").as_uri())
    assert page.inner_text("#progress-of-all").startswith("1 of 20 lessons done, 1 of 27 exercises right")
    assert page.inner_text("li[data-lesson=tokens] .progress") == "✓ done, prediction right"
