"""`regard check FOLDER --table`: the points of a class."""

import csv
import functools
import json
import os
import socket
from pathlib import Path
from xml.etree import ElementTree

import pytest

from regard.errors import InputError
from regard_course.check import check_file
from regard_course.handed_in import show_name
from regard_course.marks import FILES, mark_folder
from tests.course.checking import Command

RIGHT = "def score(q, k):\n    return q @ k.transpose(0, 2, 1) / q.shape[-1] ** 0.5\n"
WRONG = RIGHT.replace(" / q.shape[-1] ** 0.5", "")


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("import numpy as np\n" + text, encoding="utf-8")
    return folder


def rows(path: Path) -> dict[tuple[str, str], dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return {(row["person"], row["exercise"]): row for row in csv.DictReader(file)}


def test_files_and_folders_of_people_become_rows(tmp_path: Path, command: Command) -> None:
    greedy = "def greedy_search(step, start, end, longest):\n    raise NotImplementedError\n"
    folder = write(tmp_path / "class", anna=RIGHT, ben__one=WRONG, ben__helpers="A = 1\n", carl__greedy=greedy)
    write(folder, dora="from regard.attention.multihead import MultiHeadAttention as score\n", ben__venv__lib="1 / 0\n")
    (folder / "ben" / "venv" / "pyvenv.cfg").touch()
    write(folder, emil="raise ValueError('=1+1')\n")
    table = tmp_path / "marks.csv"
    status, out, err = command("check", folder, "--table", table)
    assert status == 0, err
    marks = rows(table)
    assert len(marks) == 11 and "Wrote 11 rows" in out
    right, wrong = marks["anna", "score"], marks["ben", "score"]
    values = [right[name] for name in ("points", "of", "note", "file")]
    assert values == ["9", "9", "", "anna.py"]  # NumPy has no gradients, and the rest is right
    assert right["cases"].startswith("1 Tq different from Tk; 1 as many keys as queries")
    assert (wrong["points"], wrong["of"]) == ("0", "9")
    assert wrong["note"] == "The scores are not divided by √d_k." and "0 by hand" in wrong["cases"]
    assert marks["carl", "greedy_search"]["note"] == "not begun" and marks["carl", "score"]["note"] == "no answer"
    assert "imported from regard.attention" in marks["dora", "score"]["note"]
    assert marks["emil", "score"]["note"] == "no answer" and marks["emil", FILES]["file"] == "emil.py"
    assert marks["emil", FILES]["note"] == "cannot be run: ValueError: =1+1"


def test_an_endless_loop_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard_course.marks.check_file", functools.partial(check_file, seconds=1.0))
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
    assert status == 0 and "Wrote 1 row " in out
    assert "rows 1 to 1 (anna) are old and were not checked again" in " ".join(err.split())
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
    assert set(rows(tmp_path / "marks.csv")) == {("'=1+1", "score"), ("'=1+1", FILES)}
    assert mark_folder(folder, tmp_path / "marks.csv").kept == len(rows(tmp_path / "marks.csv")) == 2


@pytest.mark.slow
def test_several_people_are_checked_in_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard_course.marks.available_cores", lambda: 2)
    people = {f"person{number}": RIGHT if number % 2 else WRONG for number in range(6)}
    marks = mark_folder(write(tmp_path / "class", **people), tmp_path / "marks.csv").rows
    assert [mark.person for mark in marks] == sorted(people)
    assert [mark.points == mark.of for mark in marks] == [False, True] * 3


def remarks(path: Path) -> dict[str, str]:
    """Return the words of the rows on files, by person and file."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        return {f"{row['person']}: {row['file']}": row["note"] for row in csv.DictReader(file) if row["of"] == "0"}


def test_a_broken_file_concerns_only_its_own_exercises(tmp_path: Path) -> None:
    greedy = "def greedy_search(step, start, end, longest):\n    raise NotImplementedError\n"
    broken = "def score(q, k:\n"
    folder = write(tmp_path / "class", anna__score=broken, anna__mine=greedy, ben__score=RIGHT, ben__utils="x = (\n")
    write(folder, carl__a=RIGHT, carl__old=broken, dora__b=broken.replace("score", "Scaled_Scores"))
    mark_folder(folder, tmp_path / "marks.csv")
    marks = rows(tmp_path / "marks.csv")
    assert marks["anna", "score"]["note"].startswith("no answer; score.py has a syntax error")
    assert marks["anna", "greedy_search"]["note"] == "not begun"
    assert marks["ben", "score"]["points"] == "9" and marks["carl", "score"]["file"] == "a.py"
    assert "b.py has a syntax error" in marks["dora", "score"]["note"]
    assert list(remarks(tmp_path / "marks.csv")) == ["ben: utils.py", "carl: old.py"]


@pytest.fixture
def hostile_class(tmp_path: Path) -> Path:
    """Return a class's folder with one right answer, and links, devices and odd names."""
    outside = write(tmp_path / "outside", score=RIGHT, progress="")
    folder = write(tmp_path / "class", anna__score=RIGHT)
    for name in ("link", "out", "file", "text", "pipe", "socket", "zero", "folder", "loop"):
        (folder / name).mkdir()
    for name, target in (
        ("whole", "anna"), ("whole_out", outside), ("one.py", "anna/score.py"), ("two.py", outside / "score.py"),
        ("link/score.py", "../anna/score.py"), ("out/more", outside), ("text/score.py", "/etc/hostname"),
        ("zero/score.py", "/dev/zero"), ("loop/score.py", "score.py"), ("loop/up", ".."),
        ("loop/gone.py", "none.py"),
    ):  # fmt: skip
        (folder / name).symlink_to(target)
    write(folder, notes__text=RIGHT, endings__score=RIGHT)
    (folder / "notes" / "text.py").rename(folder / "notes" / "text.txt")
    (folder / "notes" / "score.py").symlink_to("text.txt")
    (folder / "endings" / "score.py").rename(folder / "endings" / "score.PY")
    (folder / "sheet.ipynb").write_text("{}")
    os.mkfifo(folder / "pipe" / "score.py")
    os.mkfifo(folder / "top")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(folder / "socket" / "score.py"))  # the length of the path is limited
    write(folder, folder__score_py__score=RIGHT)
    (folder / "folder" / "score_py").rename(folder / "folder" / "score.py")
    for raw in (b"esc\x1b[2J", b"new\nline", "bidi\u202e".encode(), b"\xff\xfe", b"z" * 200, b"=cmd", b"@sum"):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + raw + b".py")).write_text("import numpy as np\n" + RIGHT)
    return folder


UNREAD = {
    "whole: whole": "is a link: not followed",
    "whole_out: whole_out": "is a link: not followed",
    "one: one.py": "is a link: not followed",
    "two: two.py": "is a link: not followed",
    "link: score.py": "is a link that leaves the person's folder: not followed",
    "out: more": "is a link that leaves the person's folder: not followed",
    "text: score.py": "is a link that leaves the person's folder: not followed",
    "zero: score.py": "is a link that leaves the person's folder: not followed",
    "loop: score.py": "is a link that leads nowhere",
    "loop: gone.py": "is a link that leads nowhere",
    "loop: up": "is a link that leaves the person's folder: not followed",
    "pipe: score.py": "is a pipe (FIFO): not read",
    "top: top": "is a pipe (FIFO): not read",
    "socket: score.py": "is a socket: not read",
    "folder: score.py": "is a folder in place of a file: not read",
    "file: file": "contains no Python file",
    "notes: score.py": "is a link to a file that does not end in .py: not read",
    "endings: score.PY": "does not end in .py: not read",
    "sheet.ipynb: sheet.ipynb": "does not end in .py: not read",
}
ODD = {"esc\\x1b[2J", "new\\nline", "bidi\\u202e", "\\udcff\\udcfe", "'=cmd", "'@sum", "z" * 49 + "…" + "z" * 10}


def test_links_devices_and_odd_names_have_rows(hostile_class: Path, command: Command) -> None:
    table, page = hostile_class.parent / "marks.csv", hostile_class.parent / "class.html"
    status, out, err = command("check", hostile_class, "--table", table, "--page", page)
    assert status == 0, err
    words, marks = remarks(table), rows(table)
    assert {key: note for key, note in words.items() if "name" not in note} == UNREAD
    assert {key.partition(": ")[0] for key, note in words.items() if "name" in note} == ODD
    with_points = {person for (person, _), row in marks.items() if row["points"] == "9"}
    assert with_points == {"anna", *ODD}
    html = page.read_text(encoding="utf-8")
    for text in (table.read_text(encoding="utf-8-sig"), html, out):
        assert all(char.isprintable() or char == "\n" for char in text)
        assert "is a pipe (FIFO): not read" in text and "esc\\x1b[2J.py" in text
    assert "does not end in .py: notes/text.txt (1)." in err and "notes/text.txt (1)" in html
    assert out.count("(files)") == len(words) == len(UNREAD) + len(ODD)


def test_reports_on_a_folder_name_what_is_not_read(hostile_class: Path, command: Command) -> None:
    report, junit = hostile_class.parent / "report.json", hostile_class.parent / "report.xml"
    status, out, err = command("check", hostile_class, "--json", report, "--junit", junit)
    assert status == 1 and "link/score.py: stopped, is a link that leaves" in " ".join(out.split()), err
    states = {item["name"]: item["exercises"][0]["state"] for item in json.loads(report.read_text("utf-8"))}
    assert states["pipe/score.py"] == states["whole"] == states["folder/score.py"] == "stopped"
    assert sum(state == "note" for state in states.values()) >= 1 and states["anna/score.py"] == "right"
    suites = {suite.get("name"): suite for suite in ElementTree.parse(junit).getroot()}
    assert suites["pipe/score.py"].get("failures") == "1" and suites["esc\\x1b[2J.py"].get("failures") == "0"
    assert all(char.isprintable() or char == "\n" for char in out)


def test_an_import_does_not_follow_a_link_out_of_the_folder(tmp_path: Path) -> None:
    folder = write(tmp_path / "class", anna__score=RIGHT, ben__a="from helper import score as s\n" + RIGHT)
    write(folder, carl__a="from helper import score as s\n" + RIGHT, carl__helper=RIGHT)
    (folder / "ben" / "helper.py").symlink_to("../anna/score.py")
    mark_folder(folder, tmp_path / "marks.csv")
    marks = rows(tmp_path / "marks.csv")
    assert "reads a link that leaves the person's folder (helper.py)" in marks["ben", "score"]["note"]
    assert marks["carl", "score"]["points"] == "9"


def test_a_link_within_the_folder_is_one_file(tmp_path: Path) -> None:
    folder = write(tmp_path / "class", anna__versions__final=RIGHT)
    (folder / "anna" / "score.py").symlink_to("versions/final.py")
    (mark,) = mark_folder(folder).rows
    assert mark.points == 9 and mark.file == "versions/final.py"


def test_a_folder_of_links_alone_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "class"
    folder.mkdir()
    (folder / "ben").symlink_to(write(tmp_path / "outside", score=RIGHT))
    with pytest.raises(InputError, match=r"contains no Python file.*; ben is a link: not followed"):
        mark_folder(folder)


def test_names_that_look_alike_remain_different_people(tmp_path: Path) -> None:
    folder = write(tmp_path / "class", **{"a\x1b": RIGHT, "a\\x1b": WRONG})
    points = {row.person: row.points for row in mark_folder(folder).rows if row.exercise == "score"}
    assert len(points) == 2 and sorted(points.values()) == [0, 9]
    assert show_name("x" * 61) == "x" * 49 + "…" + "x" * 10
