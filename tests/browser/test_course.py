"""A lesson is written to a folder and opened from the folder."""

from pathlib import Path
from typing import Any

import regard
from regard.course.lessons import find_lesson
from regard.course.pages import embed_view, lesson_page, style
from regard.viz.page import write_page


def test_a_baked_view_has_the_room_it_needs(learned: regard.AnswerRun, page: Any, tmp_path: Path) -> None:
    write_page(tmp_path / "signal2-view.html", [learned.attend(seed=0)])
    (tmp_path / "learn.css").write_text(style(), encoding="utf-8")
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
