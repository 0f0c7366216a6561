"""The page of a puzzle as a web application."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from regard_course.puzzles.puzzle import PUZZLES
from regard_course.puzzles.writing_page import WritingPage, make_write_app
from regard_course.sandbox import ForkServer


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    path = tmp_path / "first.py"
    path.write_text(PUZZLES["first"].stub)
    with ForkServer() as server:
        yield TestClient(make_write_app(WritingPage(path, PUZZLES["first"], server), hosts=None))


def test_page_and_its_files(client: TestClient) -> None:
    answer = client.get("/")
    assert answer.status_code == 200 and "script-src 'self'" in answer.headers["content-security-policy"]
    assert "Hint 1" in answer.text and "write.js" in answer.text
    for name in ("/write.js", "/learn.css", "/notes.js"):
        assert client.get(name).status_code == 200, name


def test_program_is_sent_once_for_each_version(client: TestClient) -> None:
    answer = client.get("/api/program", params={"text": "ab"}).json()
    assert "nothing is written yet" in answer["html"]
    again = client.get("/api/program", params={"text": "ab", "version": answer["version"]}).json()
    assert again == {"version": answer["version"], "html": None}
    other = client.get("/api/program", params={"text": "abc", "version": answer["version"]}).json()
    assert other["html"] is not None


def test_training_without_a_right_program_does_nothing(client: TestClient) -> None:
    assert client.post("/api/train").status_code == 204
    assert client.get("/api/train").status_code == 405
