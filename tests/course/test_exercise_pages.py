"""Hints and worked solutions of all exercises, and the pages that show them."""

import re

import pytest

from regard_course.exercises.course import EXERCISES
from regard_course.lessons.lesson import lessons
from regard_course.pages import exercise_names, exercise_page, index_page, lesson_page, read_exercise
from tests.course.checking import check_source

EVERY_EXERCISE = pytest.mark.parametrize("name", [exercise.name for exercise in EXERCISES])


@pytest.mark.parametrize(
    "name",
    [pytest.param(item.name, marks=[pytest.mark.slow] if item.name == "train_copy" else []) for item in EXERCISES],
)
def test_the_worked_solution_is_right(name: str) -> None:
    [code] = re.findall(r"```python\n(.*?)```", read_exercise(name).hints["Solution"], re.DOTALL)
    report = check_source(code, name)
    assert report.state == "right", report


@EVERY_EXERCISE
def test_a_page_has_stub_hints_and_solution_and_links_to_its_lessons(name: str) -> None:
    page, hints = exercise_page(name), read_exercise(name).hints
    assert all(hints.values()) and page.count("<details") == 4 and "http" not in page
    assert f"def {name}(" in page and f"_{name}.py</code>" in page
    uses = [lesson.name for lesson in lessons() if name in exercise_names(lesson)]
    assert uses, "no lesson has this exercise"
    assert all(f'href="{lesson}.html"' in page for lesson in uses)


def test_lessons_and_index_link_to_exercises() -> None:
    index = index_page()
    for lesson in lessons():
        page = lesson_page(lesson, see="")
        for name in exercise_names(lesson):
            assert f'<a href="exercise-{name}.html"' in page and f'href="exercise-{name}.html"' in index


@pytest.mark.parametrize("language", ["en", "de"])
def test_texts_name_the_exercises_that_an_exercise_needs(language: str) -> None:
    names = [exercise.name for exercise in EXERCISES]
    needs = {}
    for number, name in enumerate(names, 1):
        text = read_exercise(name, language).exercise.stub.split('"""', 3)[3]
        needs[name] = re.findall(r"(?:exercise|Übung)\s+(\d+)\s+\((\w+)", text)
        for earlier, needed in needs[name]:
            assert names[int(earlier) - 1] == needed and int(earlier) < number, name
    assert [needed for _, needed in needs["encoder_layer"]] == ["multi_head_attention", "feed_forward"]
    assert sum(map(bool, needs.values())) == 10
    for lesson in lessons(language):
        for name in exercise_names(lesson):
            for _, needed in needs[name]:
                assert needed in lesson.parts["Exercises"], (lesson.name, name, needed)


@pytest.mark.parametrize("language", ["en", "de"])
def test_links_of_lessons_name_their_pages(language: str) -> None:
    titles = {f"{lesson.name}.html": lesson.title for lesson in lessons(language)}
    numbers = {f"exercise-{item.name}.html": (number, item.name) for number, item in enumerate(EXERCISES, 1)}
    for lesson in lessons(language):
        for before, label, page in re.findall(r"(.{0,12})\[([^][]+)\]\(([^)]*)\)", "\n".join(lesson.parts.values())):
            if page in titles:
                assert label == titles[page]
            else:
                assert label == numbers[page][1] and before.endswith(f" {numbers[page][0]}, "), (before, label)
