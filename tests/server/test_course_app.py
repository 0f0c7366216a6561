"""The course as a web application."""

import time
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import regard
from regard_course.course_app import make_course_app
from regard_course.lesson_runs import RESULT
from regard_course.lessons.lesson import lessons


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    return TestClient(make_course_app(tmp_path, hosts=None))


def test_pages_exist(client: TestClient) -> None:
    for name in ("index", *(lesson.name for lesson in lessons())):
        answer = client.get(f"/{name}.html")
        assert answer.status_code == 200 and "script-src 'self'" in answer.headers["content-security-policy"]
    assert client.get("/").text == client.get("/index.html").text
    assert client.get("/learn.css").status_code == client.get("/learn.js").status_code == 200


def test_explorer_link_contains_the_lessons_input(client: TestClient) -> None:
    assert 'href="explore/counting/#input=ABBA_CABBA"' in client.get("/counting.html").text
    assert 'href="explore/phrases/' not in client.get("/translation.html").text
    assert "#input=she+says+that+the+birds" in client.get("/translation.html").text
    assert 'href="explore/scores/"' in client.get("/scores.html").text


def test_unknown_names_are_one_line_errors(client: TestClient) -> None:
    for path, words in (
        ("/nothing.html", "lesson 'nothing' is unknown"),
        ("/api/lessons/nothing", "lesson 'nothing' is unknown"),
        ("/explore/counting/", "no run"),
    ):
        answer = client.get(path)
        assert answer.status_code == 404 and words in answer.json()["error"]


@pytest.mark.slow
def test_training_and_exploring_a_lesson(client: TestClient) -> None:
    assert client.get("/api/lessons/counting").json()["words"] is None
    state: Any = client.post("/api/lessons/counting").json()
    assert state["busy"]
    for _ in range(300):
        state = client.get("/api/lessons/counting").json()
        if not state["busy"]:
            break
        time.sleep(0.2)
    assert state["step"] == state["steps"] == 2000 and "usual: 10 seeds gave" in state["words"][0], state
    assert client.get("/explore/counting/").status_code == 200
    about = client.get("/explore/counting/api/run").json()
    title, address = about["back"]
    assert about["task"] == "counting" and title.startswith("Lesson: ") and address == "../../counting.html"


def test_a_run_that_a_terminal_trained_is_noticed(client: TestClient, tmp_path: Path) -> None:
    address, home = "/api/lessons/counting", tmp_path / "counting"
    assert not client.get(address).json()["busy"]
    run: Any = regard.train("counting", savepath=home, steps=2, progress=False)
    run.files.model_file.rename(tmp_path / "hidden")
    state = client.get(address).json()
    assert not state["busy"] and state["words"] is None  # not finished
    (tmp_path / "hidden").rename(run.files.model_file)
    assert client.get(address).json()["busy"]  # measures the run
    state = wait(client, address)
    assert state["words"] and state["step"] == 2 and not state["failed"]
    first = (home / RESULT).read_text()
    regard.train("counting", savepath=home, steps=3, progress=False, overwrite=True)
    assert client.get(address).json()["words"] is None
    state = wait(client, address)
    assert state["words"] and state["step"] == 3 and (home / RESULT).read_text() != first
    (home / RESULT).unlink()
    run.files.metrics_file.write_text("")
    assert not client.get(address).json()["busy"]


def wait(client: TestClient, address: str) -> Any:
    """Return the state of a process after it has ended."""
    for _ in range(300):
        if not (state := client.get(address).json())["busy"]:
            return state
        time.sleep(0.1)
    raise AssertionError(f"{address} has not ended")


def test_code_and_commands_of_a_lesson_run_by_number_only(client: TestClient) -> None:
    address = "/api/lessons/counting/commands"
    command, _ = client.get(address).json()
    assert command.startswith("regard test counting --savepath ")
    assert client.post(f"{address}/0").json()["busy"]
    assert wait(client, f"{address}/0")["output"].startswith("0 0.0\n1 0.451\n")
    answer = client.post(f"{address}/3")
    assert answer.status_code == 404 and "lesson counting has 2 commands" in answer.json()["error"]
    assert "trains no model" in client.post("/api/lessons/tokens").json()["error"]


def test_an_exercise_is_written_then_checked(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    address = "/api/exercises/score"
    state = client.post(address).json()
    assert not state["exists"] and not state["busy"]  # nothing to check yet
    assert client.put(address).json()["exists"] and "def score(" in Path(state["file"]).read_text(encoding="utf-8")
    assert client.post(address).json()["busy"]
    client.delete(address)
    assert wait(client, address)["status"] != 0


def test_a_lesson_is_offered_as_a_notebook(client: TestClient) -> None:
    assert client.get("/03_counting.ipynb").json()["nbformat"] == 4
    assert "notebook 'gone' is unknown" in client.get("/gone.ipynb").json()["error"]
