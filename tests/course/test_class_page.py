"""The page of a class: `regard check FOLDER --page`."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from regard_course.exercises.course import find_exercise
from regard_course.marks import OTHER, UNREADABLE, Mark, Marks, render_class
from regard_course.progress import PROGRESS
from tests.course.checking import Command
from tests.course.test_marks import RIGHT, WRONG, write
from tests.viz.test_report_page import begins_with_picture

UNDIVIDED = "The scores are not divided by √d_k."


def mark(person: str, exercise: str = "score", **changes: Any) -> Mark:
    return dataclasses.replace(Mark(person, exercise, 7, 7, "", "", "a.py", 0), **changes)


def test_the_command_writes_a_page_without_network(tmp_path: Path, command: Command) -> None:
    folder = write(tmp_path / "class", anna=RIGHT, ben__score=WRONG, carl__score=WRONG)
    progress = {
        "lessons": {"tokens": "wrong", "gone": "right"},
        "exercises": {"score": {"state": "tried", "points": 0, "of": 7, "checked": "2026-11-27 10:00"}},
    }
    (folder / "ben" / "course").mkdir()
    (folder / "ben" / "course" / PROGRESS).write_text(json.dumps(progress))
    (folder / "dora").mkdir()
    (folder / "dora" / PROGRESS).write_text(json.dumps({"lessons": {}, "exercises": {}}))
    page = tmp_path / "class.html"
    status, out, err = command("check", folder, "--page", page)
    assert status == 0 and "Wrote the page of the class" in out, err
    text = page.read_text(encoding="utf-8")
    assert (
        begins_with_picture(text)
        and not re.search(r"(?:src|href|srcset)=\"(?!data:)", text)
        and "sends nothing" in text
    )
    lines = {re.findall(r'data-key="([^"]*)"', line)[0]: line for line in text.splitlines() if 'row" data-key' in line}
    assert list(lines) == ["anna", "ben", "carl", "dora"]
    assert ">✓</td>" in lines["anna"] and "✗ 0/9</td>" in lines["ben"] and ">0/9</td>" in lines["dora"]
    assert "dora contains no Python file" in lines["dora"]
    assert ">1/" in lines["ben"] and ">2026-11-27</td>" in lines["ben"] and ">0/" in lines["anna"]
    ranked, _ = re.findall(r"<tr><td>(\d+)</td><td><details><summary>([^<]*)", text)
    assert ranked == ("2", UNDIVIDED) and "<p>ben, carl</p>" in text and not (tmp_path / "marks.csv").exists()
    (folder / "dora" / PROGRESS).write_text("{}}")
    status, _, err = command("check", folder, "--page", page)
    assert status == 2 and "progress.json' is damaged" in err


def test_mistakes_are_ranked_and_several_explanations_stay_together() -> None:
    both = f"{UNDIVIDED} or: The scores are divided by D."
    rows = [
        mark("a", points=0, note=f"{UNDIVIDED} {' '.join(find_exercise('score').mistakes[1].did.split())}"),
        mark("b", points=0, note=UNDIVIDED),
        mark("c", points=3, note=both),
        mark("d", points=0, note="<b>NameError</b>"),
        mark("e", points=0, note="not begun"),
        mark("f", points=0, note="no answer", file=""),
        mark("g", points=0, note="no answer; score.py has a syntax error", file=""),
        mark("i", points=0, note="no answer; i.py did not end within 20 seconds: an endless loop?", file=""),
        mark("h", points=0, note="stopped: did not end within 20 seconds: is there an endless loop?"),
    ]
    page = render_class(Marks(rows=rows, kept=2), Path(__file__).parent)
    assert "2 of the 9 results are from an earlier check" in page
    ranked = re.findall(r"<tr><td>(\d+)</td><td><details><summary>([^<]*)", page)
    assert ranked[0] == ("2", UNDIVIDED) and len(ranked) == 6 and ("1", UNREADABLE) in ranked
    assert ("2", "stopped: did not end within 20 seconds") in ranked
    assert ("1", both) in ranked and ("1", OTHER) in ranked
    assert page.count('class="none" data-key="-1"') == 2 and "◐ 3/7" in page and "<b>NameError" not in page
    right = render_class(Marks(rows=[mark("a")], kept=0), Path(__file__).parent)
    assert "No answer is wrong" in right and "lessons done" not in right


def test_the_page_is_one_file_for_a_folder(tmp_path: Path, command: Command) -> None:
    folder = write(tmp_path / "class", anna=RIGHT)
    status, _, err = command("check", folder / "anna.py", "--page", tmp_path / "class.html")
    assert status == 2 and "is not a folder" in err
    status, _, err = command("check", folder, folder, "--page", tmp_path / "class.html")
    assert status == 2 and "--page needs one folder" in err
    status, _, err = command("check", folder, "--page", tmp_path / "none" / "class.html")
    assert status == 2 and err.count("\n") == 1


@pytest.mark.parametrize("name", ["<i>anna</i>"])
def test_names_are_text(name: str) -> None:
    page = render_class(Marks(rows=[mark(name, points=0, note=UNDIVIDED)], kept=0), Path(__file__).parent)
    assert name not in page and page.count("&lt;i&gt;anna") == 4
