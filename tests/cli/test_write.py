"""`regard write`."""

from pathlib import Path

import pytest

from tests.conftest import Command
from tests.course.puzzles.planted_programs import IMPORTS
from tests.course.puzzles.test_puzzle import solution

Run = Command


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_list_stub_and_check(command: Run, folder: Path) -> None:
    status, out, _ = command("write")
    assert status == 0 and " 1  first" in out and " 9  induction" in out
    status, out, _ = command("write", "first")
    assert status == 0 and "then: regard write first.py --page" in out
    assert command("write", "first")[::2] == (
        2,
        "regard: file 'first.py' exists already: rename it, or work in another folder\n",
    )
    status, _, error = command("write", "first.py")
    assert status == 2 and error.startswith("regard: first.py, line ") and "nothing is written yet" in error
    (folder / "first.py").write_text(IMPORTS + "answer = aggregate(select(indices, indices), tokens)")
    status, out, _ = command("write", "first.py")
    assert status == 1 and "→ The answer is the own letter of each step" in out and "your answer" in out
    (folder / "first.py").write_text(IMPORTS + solution("first"))
    status, out, _ = command("write", "first.py", "--train")
    assert status == 0 and "right for 363 of 363 inputs\n  start: layer 0 head 0" in out
    assert "trained model: right for 363 of 363 inputs" in out and "similarity" in out


def test_hide_and_score(command: Run, folder: Path) -> None:
    (folder / "mine.py").write_text(IMPORTS + "answer = aggregate(select(indices, constant(0)), tokens)")
    arguments = ("write", "mine.py", "--hide", "found", "--alphabet", "xyz", "--longest", "3", "--causal")
    status, out, _ = command(*arguments)
    assert status == 0 and "the key found-key.json, which you keep" in out
    assert command(*arguments)[0] == 2
    status, out, _ = command("write", "found/claims.py", "--score", "found-key.json")
    assert status == 0 and "right: 0 of 1 heads that answers need, and 0 of 3" in out
