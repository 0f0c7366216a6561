"""`regard check FOLDER --table`: the points of a class."""

import csv
import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from regard.course import mark_folder
from regard.course.check import check_file
from regard.errors import InputError

RIGHT = "def score(q, k):\n    return q @ k.transpose(0, 2, 1) / q.shape[-1] ** 0.5\n"
WRONG = RIGHT.replace(" / q.shape[-1] ** 0.5", "")
Command = Callable[..., tuple[int, str, str]]


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("import numpy as np\n" + text, encoding="utf-8")
    return folder


def rows(path: Path) -> dict[tuple[str, str], dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return {(row["person"], row["exercise"]): row for row in csv.DictReader(file)}


def test_files_and_folders_of_people_become_rows(tmp_path: Path, command: Command) -> None:
    greedy = "def greedy_search(step, start, end, longest):\n    raise NotImplementedError\n"
    folder = write(tmp_path / "class", anna=RIGHT, ben__one=WRONG, ben__helpers="A = 1\n", carl__greedy=greedy)
    write(folder, dora="from regard.attention import MultiHeadAttention as score\n", ben__venv__lib="1 / 0\n")
    (folder / "ben" / "venv" / "pyvenv.cfg").touch()
    write(folder, emil="raise ValueError('=1+1')\n")
    table = tmp_path / "marks.csv"
    status, out, err = command("check", folder, "--table", table)
    assert status == 0, err
    marks = rows(table)
    assert len(marks) == 10 and "Wrote 10 rows" in out
    right, wrong = marks["anna", "score"], marks["ben", "score"]
    assert (right["points"], right["of"], right["note"], right["file"]) == (
        "8",
        "8",
        "",
        "anna.py",
    )  # NumPy has no gradients, and the rest is right
    assert right["cases"].startswith("1 Tq different from Tk; 1 as many keys as queries")
    assert (wrong["points"], wrong["of"]) == ("0", "8")
    assert wrong["note"] == "The scores are not divided by √d_k." and "0 by hand" in wrong["cases"]
    assert marks["carl", "greedy_search"]["note"] == "not begun" and marks["carl", "score"]["note"] == "no answer"
    assert "imported from regard.attention" in marks["dora", "score"]["note"]
    assert marks["emil", "score"]["note"] == "no answer; emil.py cannot be run: ValueError: =1+1"


def test_an_endless_loop_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.course.marks.check_file", functools.partial(check_file, seconds=1.0))
    folder = write(tmp_path / "class", anna="def score(query, key):\n    while True:\n        pass\n")
    [mark] = mark_folder(folder).rows
    assert mark.note.startswith("stopped: did not end within 1 second")


def test_a_table_is_continued(tmp_path: Path, command: Command) -> None:
    folder, table = write(tmp_path / "class", anna=RIGHT), tmp_path / "marks.csv"
    assert mark_folder(folder, table).kept == 0
    edited = table.read_text().replace("anna.py", "checked by hand")
    table.write_text(edited)
    write(folder, ben=WRONG)
    status, out, err = command("check", folder, "--table", table)
    assert (
        status == 0
        and "Wrote 1 row " in out
        and "rows 1 to 1 (anna) are old and were not checked again" in " ".join(err.split())
    )
    assert table.read_text().startswith(edited) and set(rows(table)) == {("anna", "score"), ("ben", "score")}
    with pytest.raises(InputError, match="with the seed 0, not 3"):
        mark_folder(folder, table, seed=3)
    table.write_text("person,points\n")
    with pytest.raises(InputError, match="with other columns"):
        mark_folder(folder, table)
    assert table.read_text() == "person,points\n"


def test_the_best_of_two_files_counts(tmp_path: Path) -> None:
    folder = write(tmp_path / "class", ben__a=WRONG, ben__b=RIGHT, ben__c=WRONG)
    (mark,) = mark_folder(folder, tmp_path / "marks.csv").rows
    assert mark.points == mark.of and mark.file == "b.py"


def test_a_chosen_exercise_needs_no_name(tmp_path: Path) -> None:
    folder = write(tmp_path / "class", anna=RIGHT.replace("score", "mine"))
    with pytest.raises(InputError, match="defines a name of an exercise"):
        mark_folder(folder, tmp_path / "marks.csv")
    (mark,) = mark_folder(folder, tmp_path / "marks.csv", "score").rows
    assert mark.points == mark.of


def test_a_cell_is_not_a_formula(tmp_path: Path) -> None:
    folder = tmp_path / "class"
    folder.mkdir()
    (folder / "=1+1.py").write_text("import numpy as np\n" + RIGHT)
    mark_folder(folder, tmp_path / "marks.csv")
    assert set(rows(tmp_path / "marks.csv")) == {("'=1+1", "score")}


@pytest.mark.slow
def test_several_people_are_checked_in_processes(tmp_path: Path) -> None:
    people = {f"person{number}": RIGHT if number % 2 else WRONG for number in range(6)}
    marks = mark_folder(write(tmp_path / "class", **people), tmp_path / "marks.csv").rows
    assert [mark.person for mark in marks] == sorted(people)
    assert [mark.points == mark.of for mark in marks] == [False, True] * 3
