"""Calculations of lessons are correct, their runs exist, and pages and notebooks contain them."""

import contextlib
import html
import io
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.training.config import make_config
from regard_course.exercises.course import EXERCISES, TEXTS
from regard_course.lesson_runs import view_inputs
from regard_course.lessons.lesson import ROWS, Lesson, Range, find_lesson, lessons
from regard_course.mistakes.solution import Solution
from regard_course.pages import build_notebooks, exercise_names, index_page, lesson_notebook, lesson_page
from regard_course.pictures import picture, picture_texts
from tests.course.checking import Command

EVERY_LESSON = pytest.mark.parametrize("lesson", lessons(), ids=lambda lesson: lesson.name)


@EVERY_LESSON
def test_the_calculation_by_hand_prints_the_shown_output(lesson: Lesson) -> None:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(lesson.code, lesson.name, "exec"), {})
    shown = lesson.parts["By hand"].split("```text\n")[1].split("```")[0]
    assert [line.rstrip() for line in output.getvalue().strip("\n").splitlines()] == shown.splitlines()


@EVERY_LESSON
def test_every_run_has_a_config_and_exercises_exist(lesson: Lesson) -> None:
    for run in lesson.runs:
        config = make_config(run.task, run.flags)
        assert {name: config.flags()[name] for name in run.flags if name != "text"}.items() <= run.flags.items()
    assert lesson.parts["Exercises"].count("\n- ") in (1, 2)
    named = {exercise.name for exercise in EXERCISES}
    first = lesson.parts["Exercises"].split("`")[1]
    assert first in named or first.startswith("regard ")


@EVERY_LESSON
def test_measured_ranges_give_a_verdict(lesson: Lesson) -> None:
    for figures in lesson.ranges.values():
        for interval in figures.values():
            assert 0 <= interval.low <= interval.middle <= interval.high <= 1
            assert interval.verdict(interval.middle).startswith("usual")
            assert interval.verdict(interval.high + 0.00004).startswith("usual")  # a value that was rounded off
            assert interval.verdict(interval.low - 0.1).startswith("below all ")
            assert interval.verdict(interval.high + 0.1).startswith("above all ")


def test_a_range_shows_its_limits_and_median() -> None:
    assert str(Range(0.5, 0.75, 1.0)) == "50.0% to 100.0% (median 75.0%)"
    assert str(Range(0.99951, 0.99996, 1.0)) == "99.95% to 100.0% (median 99.99%)"
    assert Range(0.5012, 0.6, 0.7004).verdict(0.5008).startswith("usual")  # both are 50.1%
    assert str(Range(0.3, 0.3, 0.3)) == "30.0% (all seeds)" and Range(0.3, 0.3, 0.3).verdict(0.2).endswith(
        "seeds, which gave 30.0%"
    )


@EVERY_LESSON
def test_the_index_shows_the_question_of_a_lesson(lesson: Lesson) -> None:
    assert lesson.question.endswith("?") and lesson.question in lesson.parts["Predict"]
    assert "`" not in index_page()


def test_the_view_begins_with_the_input_of_the_question(trained: regard.AnswerRun) -> None:
    counting, scores = find_lesson("counting"), find_lesson("scores")
    assert view_inputs(counting, trained, 3) == ["ABBA_CABBA", trained.draw(seed=0), trained.draw(seed=1)]
    assert view_inputs(scores, trained, 2) == [trained.draw(seed=0), trained.draw(seed=1)]
    for lesson in lessons():
        questions = [run.input for run in lesson.runs[:1] if run.input is not None]
        assert all(question.replace("_", " ") in lesson.parts["Predict"] for question in questions)


def test_every_run_of_every_lesson_was_measured() -> None:
    assert len(lessons()) == 19
    for lesson in lessons():
        assert all(lesson.ranges[run.name] for run in lesson.runs), lesson.name
        assert (lesson.seconds > 0) == bool(lesson.runs), lesson.name


@EVERY_LESSON
def test_a_page_has_all_parts_and_needs_no_network(lesson: Lesson) -> None:
    page = lesson_page(lesson, see="<p>here</p>").replace("http://www.w3.org/2000/svg", "")
    for heading in ("Predict", "By hand", "What to see", "Why", "Exercises"):
        assert f"<h2>{heading}</h2>" in page
    assert ("<h2>Run it</h2>" in page) == bool(lesson.runs)
    assert "<svg" in page and 'aria-label="' in page and 'id="prediction"' in page
    assert "http" not in page and "<details>" in page and f'{lesson.name}.html">' in index_page()


def test_the_text_on_scores_names_the_printed_numbers() -> None:
    shown = find_lesson("scores").parts["By hand"]
    (spreads,) = re.findall(r"The first number is the spread of the scores: ([\d.]+), ([\d.]+) and ([\d.]+)", shown)
    printed = [line.split()[1] for line in shown.split("```text\n")[1].split("```")[0].splitlines()][:3]
    assert list(spreads) == printed
    assert [round(float(spread)) for spread in spreads] == [2, 8, 32]


def find_commands(text: str) -> list[list[str]]:
    """Return the commands with flags in a page or notebook, split as in a shell."""
    commands = re.findall(r"<code>(regard [^<]*)</code>|`(regard [^`]*)`", text)
    return [shlex.split(html.unescape(page or note)) for page, note in commands if "--" in page + note]


@EVERY_LESSON
@pytest.mark.parametrize("folder", ["mine", "my runs & 'more'"])
def test_commands_contain_the_folder_of_runs(lesson: Lesson, folder: str) -> None:
    home = Path(folder)
    page = lesson_page(lesson, see="", home=home)
    notebook = lesson_notebook(lesson, home)
    cells = "\n".join(cell["source"] for cell in notebook["cells"])
    assert "course/" not in page + cells.replace("regard_course", "") and "docs/" not in page
    assert ".html)" not in cells  # a notebook cannot open the pages
    if lesson.runs:
        assert find_commands(page)[0][-2:] == ["--savepath", f"{folder}/{lesson.name}"]
        assert f"savepath={str(home / lesson.name)!r}" in cells
    for words in (*find_commands(page), *find_commands(cells)):
        paths = [words[index + 1] for index, word in enumerate(words) if word in ("--savepath", "--compare_with")]
        assert all(path.startswith(f"{folder}/") for path in paths)
        assert paths or words[1:] in (
            ["plot", "positions", "--dimensions", "8"],
            ["learn", "--stubs", "exercises"],
            ["train", "translation", "--help"],
            ["train", "text", "--help"],
            ["look", "gpt2", "--download"],
        ), words


def test_commands_of_a_page_work_when_copied(tmp_path: Path, command: Command) -> None:
    page = lesson_page(find_lesson("counting"), see="", home=tmp_path / "my runs")
    training, testing, *_ = find_commands(page)
    assert command(*training[1:], "--steps", "2")[0] == 0
    status, out, err = command(*testing[1:], "--samples", "20")
    assert status == 0 and "counting" in out, err


@EVERY_LESSON
def test_a_notebook_is_valid(lesson: Lesson) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbformat.validate(nbformat.from_dict(lesson_notebook(lesson)))
    for cell in lesson_notebook(lesson)["cells"]:
        if cell["cell_type"] == "code":
            compile(cell["source"], "cell", "exec")


def test_notebooks_and_stubs_never_overwrite_files(tmp_path: Path, command: Command) -> None:
    folder = tmp_path / "notebooks"
    status, out, err = command("learn", "--notebooks", folder, "--stubs", tmp_path / "stubs")
    assert status == 0 and f"Wrote {len(EXERCISES)} stubs" in out and f"Wrote {len(lessons())} notebooks" in out, err
    assert json.loads((folder / "01_lookups.ipynb").read_text(encoding="utf-8"))["nbformat"] == 4
    status, _, err = command("learn", "--notebooks", folder)
    assert status == 2 and "exists already" in err
    (tmp_path / "file").touch()
    for site in (tmp_path / "file", tmp_path / "file" / "inside"):  # everything is written, or nothing
        status, _, err = command("learn", "--stubs", tmp_path / "more", "--site", site)
        assert status == 2 and repr(str(site)) in err and not (tmp_path / "more").exists()
    status, _, err = command("learn", "--stubs", tmp_path / "file" / "inside")
    assert status == 2 and f"cannot write {str(tmp_path / 'file' / 'inside')!r}: Not a directory" in err
    assert sorted(folder.iterdir()) == sorted(build_notebooks(folder))


def test_numbers_in_pictures_are_right() -> None:
    """The pictures are files: their numbers are calculated again here."""
    weights = np.exp([4.0, 4.0, 0.0, 0.0]) / np.exp([4.0, 4.0, 0.0, 0.0]).sum()
    assert f"= {weights @ [1, 3, 2, 6]:.2f}:" in " ".join(picture_texts("lookups"))
    states = np.array([[0.0, 2.0, 0.0, 0.0], [0.0, 0.0, 1.5, 0.0], [0.0, 0.0, 3.0, 0.0]]).cumsum(0)
    shares = Solution().logit_lens(states[:, None], np.ones(4), np.eye(4))[:, 0]
    reads = [f"reads {'ABCD'[share.argmax()]}" for share in shares]
    assert re.findall(r">(reads .)<", picture("lens")) == reads


def wrong_order(order: Sequence[str], rows: Mapping[str, Any]) -> list[str]:
    """Return what a lesson or its exercises need, but no lesson up to it introduces."""
    faults, known = list[str](), set[str]()
    for name in order:
        needed = {concept: name for concept in rows[name].get("needs", ()) if concept not in known}
        known |= set(rows[name]["introduces"])
        for exercise in exercise_names(find_lesson(name)):
            needed |= {concept: exercise for concept in TEXTS[exercise]["needs"] if concept not in known}
        faults += [f"{concept} in {user}" for concept, user in needed.items()]
    return faults


def test_every_lesson_needs_only_earlier_lessons() -> None:
    assert wrong_order(list(ROWS), ROWS) == []
    numbers = {concept: number for number, row in enumerate(ROWS.values(), 1) for concept in row["introduces"]}
    introduced = [concept for row in ROWS.values() for concept in row["introduces"]]
    assert len(introduced) == len(set(introduced)) and len(TEXTS) == len(EXERCISES)
    assert all(exercise["needs"] for exercise in TEXTS.values())
    order = [name for lesson in lessons() for name in exercise_names(lesson)]
    assert list(dict.fromkeys(order)) == [exercise.name for exercise in EXERCISES]
    titles = {lesson.name: lesson.number for lesson in lessons()}
    for lesson in lessons():
        text = " ".join([lesson.title, *lesson.parts.values()])
        words = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL).lower()
        for concept in introduced:
            found = re.search(rf"\b{re.escape(concept.lower())}s?\b", words)
            assert found or concept not in ROWS[lesson.name]["introduces"], (lesson.name, concept)
            assert not found or numbers[concept] <= lesson.number, (lesson.name, concept)
        assert all(titles[name] < lesson.number for name in re.findall(r"\]\((\w+)\.html\)", text))


def test_a_planted_wrong_order_is_found() -> None:
    """Each lesson that another one needs is moved to the end."""
    needed = {concept for row in ROWS.values() for concept in row.get("needs", ())}
    moved = [name for name, row in ROWS.items() if needed & set(row["introduces"])]
    assert len(moved) > 12
    for name in moved:
        assert wrong_order([*(other for other in ROWS if other != name), name], ROWS), name
    assert wrong_order(list(ROWS)[::-1], ROWS)


def test_numbers_of_lessons_agree_with_the_measurements() -> None:
    """The texts name medians of ten seeds, and each number has the setting that produced it beside it."""
    figures = {
        "signal2": ("one head without projections", "exact_match", "{:.1%}"),
        "waves": ("rotary", "exact_match", "{:.1%}"),
    }
    for name, (run, figure, form) in figures.items():
        lesson = find_lesson(name)
        number = form.format(lesson.ranges[run][figure].middle).rstrip("%")
        text = lesson.parts["Answer"]
        assert number in text and f"{lesson.runs[0].flags['steps']:,} steps" in text, (name, number)
