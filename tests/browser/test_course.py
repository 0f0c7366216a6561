"""A lesson is written to a folder and opened from the folder."""

from pathlib import Path
from typing import Any

import regard
from regard.viz.page import write_page
from regard_course.course_app import make_course_app
from regard_course.lessons.lesson import find_lesson
from regard_course.marks import Mark, Marks, render_class
from regard_course.pages import embed_view, exercise_page, index_page, lesson_page, read_asset
from regard_course.progress import begin_progress, read_progress, record_checks
from regard_course.report import CheckReport, ExerciseReport
from tests.browser.conftest import served_app


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
    assert page.inner_text("#progress-of-all").startswith("1 of 19 lessons done (with a verdict")
    assert page.inner_text("li[data-lesson=tokens] .progress") == "✓ done, prediction right"


def test_code_is_not_cut_off(page: Any, tmp_path: Path) -> None:
    for name in ("learn.css", "notes.js"):
        (tmp_path / name).write_text(read_asset(name), encoding="utf-8")
    (tmp_path / "page.html").write_text(exercise_page("encoder_layer"), encoding="utf-8")
    page.goto((tmp_path / "page.html").as_uri())
    for width in (390, 1000):
        page.set_viewport_size({"width": width, "height": 700})
        hidden = page.evaluate(
            "Math.max(...[...document.querySelectorAll('pre')].map((x) => x.scrollWidth - x.clientWidth))"
        )
        assert hidden == 0 and page.evaluate("document.documentElement.scrollWidth") == width


def test_paper_has_no_closed_hints_and_nothing_to_click(page: Any, tmp_path: Path) -> None:
    for name in ("learn.css", "notes.js"):
        (tmp_path / name).write_text(read_asset(name), encoding="utf-8")
    (tmp_path / "page.html").write_text(exercise_page("encoder_layer"), encoding="utf-8")
    page.goto((tmp_path / "page.html").as_uri())
    page.click("details:first-of-type summary")
    page.emulate_media(media="print")
    shown = page.eval_on_selector_all("details, button, nav", "all => all.filter((x) => x.checkVisibility()).length")
    assert shown == 1 and page.locator("details:first-of-type p").first.is_visible()
    # A line of a stub is not wrapped on A4 with margins of 12 mm.
    page.set_viewport_size({"width": 702, "height": 1000})
    page.add_style_tag(content="pre { white-space: pre !important; overflow: hidden; }")
    assert page.eval_on_selector("pre", "(x) => x.scrollWidth - x.clientWidth") == 0


def test_a_page_is_in_the_language_of_its_words(page: Any, tmp_path: Path) -> None:
    pages = {"learn.css": read_asset("learn.css"), "notes.js": read_asset("notes.js")}
    pages |= {"index.html": index_page("de"), "tokens.html": lesson_page(find_lesson("tokens", "de"), see="")}
    for name, text in pages.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    page.goto((tmp_path / "tokens.html").as_uri())
    page.fill("#prediction", "l und o")
    page.select_option("#verdict", label="teilweise richtig")
    page.goto((tmp_path / "index.html").as_uri())
    assert page.inner_text("#progress-of-all").startswith("1 von ")
    assert page.inner_text("li[data-lesson=tokens] .progress") == "✓ fertig, Vorhersage teilweise richtig"


def test_checks_of_a_terminal_and_verdicts_of_a_page_are_shared(page: Any, tmp_path: Path) -> None:
    begin_progress(tmp_path)
    report = ExerciseReport(exercise="score", title="", object="score", state="right", inputs=7)
    record_checks(tmp_path, [CheckReport(name="a.py", exercises=[report])])
    with served_app(make_course_app(tmp_path)) as address:
        page.goto(address)
        page.wait_for_function("() => document.querySelector('li[data-exercise=score] .progress').textContent")
        assert page.inner_text("li[data-exercise=score] .progress") == "✓ right"
        page.goto(f"{address}tokens.html")
        page.fill("#prediction", "l and o")
        page.wait_for_load_state("networkidle")
        with page.expect_response("**/api/progress/tokens/wrong"):
            page.select_option("#verdict", "wrong")
        page.goto(f"{address}exercise-score.html")
        page.wait_for_function("() => document.getElementById('state').value === 'right'")
    assert read_progress(tmp_path).lessons == {"tokens": "wrong"}


def test_the_table_of_a_class_is_sorted_by_a_click(page: Any, tmp_path: Path) -> None:
    rows = [
        Mark(person=name, exercise="score", points=points, of=7, cases="", note="", file="a.py", seed=0)
        for name, points in (("ann", 3), ("ben", 7), ("cal", 0))
    ]
    (tmp_path / "class.html").write_text(render_class(Marks(rows=rows, kept=0), tmp_path), encoding="utf-8")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 700})
        page.goto((tmp_path / "class.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == width
    people = "[...document.querySelectorAll('#class tbody th')].map((cell) => cell.textContent).join(' ')"
    page.click("text=points")
    assert page.evaluate(people) == "cal ann ben"
    page.click("text=points")
    assert page.evaluate(people) == "ben ann cal"
    assert page.get_attribute("#class thead th:nth-child(2)", "aria-sort") == "descending"
    page.click("text=person")
    assert page.evaluate(people) == "ann ben cal"
