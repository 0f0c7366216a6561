"""What a learner has done counts for the index, whether checked on a page or in a terminal."""

import json
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from regard.errors import InputError
from regard_course.course_app import make_course_app
from regard_course.progress import PROGRESS, begin_progress, read_progress, record_verdict
from tests.course.checking import Command
from tests.course.test_marks import RIGHT, WRONG


def write(path: Path, text: str) -> Path:
    path.write_text("import numpy as np\n" + text, encoding="utf-8")
    return path


def test_a_check_is_recorded_only_in_a_course(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path / "mine.py", WRONG)
    (tmp_path / "course").mkdir()  # a folder of another origin
    assert "recorded" not in command("check", file)[2] and not (tmp_path / "course" / PROGRESS).exists()
    begin_progress(tmp_path / "course")
    status, _, err = command("check", file)
    assert status == 1 and f"recorded in course/{PROGRESS}" in err
    tried = read_progress(tmp_path / "course").exercises["score"]
    assert (tried.state, tried.points, tried.of) == ("tried", 0, 9)
    assert command("check", write(file, RIGHT))[0] == 0
    command("check", write(file, WRONG))  # right once remains right
    right = read_progress(tmp_path / "course").exercises["score"]
    assert right.state == "right" and right.points >= 6
    assert right.checked >= tried.checked
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "counting").mkdir()  # a course with a run
    assert f"recorded in mine/{PROGRESS}" in command("check", file, "--savepath", "mine")[2]
    (tmp_path / "course" / PROGRESS).write_text('{"exercises": 3}')
    status, _, err = command("check", file)
    assert status == 2 and "is damaged" in err and "delete it" in err


def test_files_that_are_no_answer_are_not_recorded(tmp_path: Path, command: Command) -> None:
    begin_progress(tmp_path)
    file = write(tmp_path / "mine.py", "def score(q, k):\n    raise NotImplementedError\n")
    command("check", file, "--savepath", tmp_path)
    command("check", write(file, "raise ValueError\n"), "--savepath", tmp_path)
    assert read_progress(tmp_path).exercises == {}


def test_the_server_records_verdicts(tmp_path: Path) -> None:
    client = TestClient(make_course_app(tmp_path / "course", hosts=None))
    assert client.get("/api/progress").json() == {"lessons": {}, "exercises": {}}
    assert client.put("/api/progress/tokens/partly%20right").json()["lessons"] == {"tokens": "partly right"}
    assert "verdict 'good' is unknown" in client.put("/api/progress/tokens/good").json()["error"]
    assert "lesson 'gone' is unknown" in client.put("/api/progress/gone/right").json()["error"]
    assert json.loads((tmp_path / "course" / PROGRESS).read_text())["lessons"] == {"tokens": "partly right"}
    with pytest.raises(InputError, match="choose right, partly right, wrong"):
        record_verdict(tmp_path / "course", "tokens", "")
