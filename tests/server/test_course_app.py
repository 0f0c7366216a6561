"""The course as a web application."""

import time
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from regard.course.lessons import lessons
from regard.server.course_app import make_course_app


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
    assert state["step"] == state["steps"] == 2000 and "usual: ten seeds gave" in state["words"][0], state
    assert client.get("/explore/counting/").status_code == 200
    about = client.get("/explore/counting/api/run").json()
    title, address = about["back"]
    assert about["task"] == "counting" and title.startswith("Lesson: ") and address == "../../counting.html"
