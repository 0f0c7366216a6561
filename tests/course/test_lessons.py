"""The lessons: what they work by hand is right, their runs can be asked for, pages and notebooks hold them."""

import contextlib
import html
import io
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

import regard
from regard.course.exercises import EXERCISES
from regard.course.lessons import Lesson, Range, find_lesson, lessons
from regard.course.notebooks import notebook_of, write_notebooks
from regard.course.pages import index_page, lesson_page
from regard.course.trying import looked_at
from regard.training import make_config

EVERY = pytest.mark.parametrize("lesson", lessons(), ids=lambda each: each.name)


@EVERY
def test_what_is_worked_by_hand_comes_out_as_it_is_shown(lesson: Lesson) -> None:
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        exec(compile(lesson.code, lesson.name, "exec"), {})
    shown = lesson.parts["By hand"].split("```text\n")[1].split("```")[0]
    assert [line.rstrip() for line in told.getvalue().strip("\n").splitlines()] == shown.splitlines()


@EVERY
def test_every_run_can_be_asked_for_and_exercises_exist(lesson: Lesson) -> None:
    for run in lesson.runs:
        config = make_config(run.task, run.flags)
        assert {name: config.flags()[name] for name in run.flags} == run.flags
    assert lesson.parts["Exercises"].count("\n- ") in (1, 2)
    named = {each.name for each in EXERCISES}
    first = lesson.parts["Exercises"].split("`")[1]
    assert first in named or first.startswith("regard ")


@EVERY
def test_measured_figures_are_of_ten_seeds_and_place_a_value(lesson: Lesson) -> None:
    for figures in lesson.ranges.values():
        for found in figures.values():
            assert 0 <= found.low <= found.middle <= found.high <= 1
            assert found.verdict(found.middle).startswith("usual")
            assert found.verdict(found.high + 0.00004).startswith("usual")  # as a seed that was rounded off
            assert found.verdict(found.low - 0.1).startswith("below all ten")
            assert found.verdict(found.high + 0.1).startswith("above all ten")


def test_a_range_says_its_ends_and_what_is_in_the_middle() -> None:
    assert str(Range(0.5, 0.75, 1.0)) == "50.0% to 100.0%, the middle one 75.0%"
    assert str(Range(0.99951, 0.99996, 1.0)) == "99.95% to 100.0%, the middle one 99.99%"
    assert Range(0.5012, 0.6, 0.7004).verdict(0.5008).startswith("usual")  # both are 50.1%
    assert str(Range(0.3, 0.3, 0.3)) == "all 30.0%" and Range(0.3, 0.3, 0.3).verdict(0.2).endswith(
        "seeds: all 30.0%"
    )


@EVERY
def test_the_list_asks_what_a_lesson_asks(lesson: Lesson) -> None:
    assert lesson.question.endswith("?") and lesson.question in lesson.parts["Predict"]
    assert "`" not in index_page()


def test_what_a_lesson_asks_about_is_looked_at_first(trained: regard.AnswerRun) -> None:
    counting, scores = find_lesson("counting"), find_lesson("scores")
    assert looked_at(counting, trained, 3) == ["ABBA_CABBA", trained.draw(seed=0), trained.draw(seed=1)]
    assert looked_at(scores, trained, 2) == [trained.draw(seed=0), trained.draw(seed=1)]
    for lesson in lessons():
        assert (asked := lesson.runs[0].input) is None or asked.replace("_", " ") in lesson.parts["Predict"]


def test_there_are_twelve_lessons_or_more_and_every_run_of_theirs_was_measured() -> None:
    assert len(lessons()) >= 12
    for each in lessons():
        assert each.seconds > 0 and all(each.ranges[run.name] for run in each.runs), each.name


@EVERY
def test_a_page_holds_all_parts_and_asks_nothing_of_a_network(lesson: Lesson) -> None:
    page = lesson_page(lesson, see="<p>here</p>")
    for heading in ("Predict", "By hand", "Run it", "What to see", "Why", "Exercises"):
        assert f"<h2>{heading}</h2>" in page
    assert "http" not in page and "<details>" in page and f'{lesson.name}.html">' in index_page()


def test_the_numbers_of_the_scores_are_those_that_their_text_names() -> None:
    shown = find_lesson("scores").parts["By hand"]
    (spreads,) = re.findall(
        r"The first number is the spread of the scores: ([\d.]+), ([\d.]+) and ([\d.]+)", shown
    )
    printed = [line.split()[1] for line in shown.split("```text\n")[1].split("```")[0].splitlines()]
    assert list(spreads) == printed
    assert [round(float(each)) for each in spreads] == [2, 8, 32]


def commands_of(text: str) -> list[list[str]]:
    """Return the commands of a page or a notebook that have flags, as a shell takes them apart."""
    found = re.findall(r"<code>(regard [^<]*)</code>|`(regard [^`]*)`", text)
    return [shlex.split(html.unescape(page or note)) for page, note in found if "--" in page + note]


@EVERY
@pytest.mark.parametrize("folder", ["mine", "my runs & 'more'"])
def test_commands_name_the_folder_of_runs(lesson: Lesson, folder: str) -> None:
    home = Path(folder)
    page = lesson_page(lesson, see="", home=home)
    notebook = notebook_of(lesson, home)
    cells = "\n".join(cell["source"] for cell in notebook["cells"])
    assert "course/" not in re.sub(r"regard\.course|docs/", "", page + cells)
    assert commands_of(page)[0][-2:] == ["--savepath", f"{folder}/{lesson.name}"]
    for words in (*commands_of(page), *commands_of(cells)):
        places = [
            words[place + 1] for place, word in enumerate(words) if word in ("--savepath", "--compare-with")
        ]
        assert all(each.startswith(f"{folder}/") for each in places)
        assert places or words[1:] in (["positions", "--width", "8"], ["learn", "--stubs", "exercises"]), words
    assert f"savepath={str(home / lesson.name)!r}" in cells


def test_commands_of_a_page_work_as_they_are_copied(
    tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    page = lesson_page(find_lesson("counting"), see="", home=tmp_path / "my runs")
    training, testing = commands_of(page)
    assert command(*training[1:], "--steps", "2")[0] == 0
    status, out, err = command(*testing[1:], "--samples", "20")
    assert status == 0 and "counting" in out, err


@EVERY
def test_a_notebook_is_valid(lesson: Lesson) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbformat.validate(nbformat.from_dict(notebook_of(lesson)))
    for cell in notebook_of(lesson)["cells"]:
        if cell["cell_type"] == "code":
            compile(cell["source"], "cell", "exec")


def test_notebooks_and_stubs_are_written_and_never_over_ones_own(
    tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    folder = tmp_path / "notebooks"
    status, out, err = command("learn", "--notebooks", folder, "--stubs", tmp_path / "stubs")
    assert status == 0 and "Wrote 16 stubs" in out and f"Wrote {len(lessons())} notebooks" in out, err
    assert json.loads((folder / "01_lookups.ipynb").read_text(encoding="utf-8"))["nbformat"] == 4
    status, _, err = command("learn", "--notebooks", folder)
    assert status == 2 and "is there already" in err
    (tmp_path / "file").touch()
    for site in (tmp_path / "file", tmp_path / "file" / "inside"):  # all that is asked for, or nothing
        status, _, err = command("learn", "--stubs", tmp_path / "more", "--site", site)
        assert status == 2 and repr(str(site)) in err and not (tmp_path / "more").exists()
    status, _, err = command("learn", "--stubs", tmp_path / "file" / "inside")
    assert status == 2 and f"cannot write {str(tmp_path / 'file' / 'inside')!r}: Not a directory" in err
    assert len(list(folder.iterdir())) == len(lessons()) and write_notebooks(tmp_path / "other")
