"""The course in the explorer's server."""

import time
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from regard.course.lessons import lessons
from regard.server.classroom import make_classroom


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    return TestClient(make_classroom(tmp_path, hosts=None))


def test_pages_are_there(client: TestClient) -> None:
    for each in ("index", *(lesson.name for lesson in lessons())):
        answer = client.get(f"/{each}.html")
        assert answer.status_code == 200 and "script-src 'self'" in answer.headers["content-security-policy"]
    assert client.get("/").text == client.get("/index.html").text
    assert client.get("/learn.css").status_code == client.get("/learn.js").status_code == 200


def test_the_explorer_opens_at_what_the_lesson_asks_about(client: TestClient) -> None:
    assert 'href="explore/counting/#input=ABBA_CABBA"' in client.get("/counting.html").text
    assert 'href="explore/phrases/' not in client.get("/translation.html").text
    assert "#input=she+says+that+the+birds" in client.get("/translation.html").text
    assert 'href="explore/scores/"' in client.get("/scores.html").text


def test_what_is_not_there_is_one_line(client: TestClient) -> None:
    for path, words in (
        ("/nothing.html", "lesson 'nothing' is unknown"),
        ("/api/lessons/nothing", "lesson 'nothing' is unknown"),
        ("/explore/counting/", "no run"),
    ):
        answer = client.get(path)
        assert answer.status_code == 404 and words in answer.json()["error"]


@pytest.mark.slow
def test_a_lesson_is_trained_and_explored(client: TestClient) -> None:
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
