"""The page of a puzzle."""

import os
from pathlib import Path

import pytest

from regard_course.puzzles.puzzle import PUZZLES
from regard_course.puzzles.writing_page import WritingPage
from regard_course.sandbox import ForkServer
from tests.course.puzzles.conftest import Write
from tests.course.puzzles.test_puzzle import solution


@pytest.fixture
def page(write: Write, fork_server: ForkServer) -> WritingPage:
    return WritingPage(write("previous", "before = select(tokens, tokens)"), PUZZLES["previous"], fork_server)


def save(path: Path, code: str) -> None:
    """Write a file with a new time of change."""
    changed = path.stat().st_mtime_ns
    path.write_text(code)
    os.utime(path, ns=(changed + 10**9, changed + 10**9))


def test_page_follows_the_file(page: WritingPage, write: Write) -> None:
    first = page.version("ab")
    assert "the name `answer` is missing" in page.live("ab")
    assert "<b>before</b>" in page.live("ab"), "heatmaps of an unfinished program"
    save(page.path, write("right", solution("previous")).read_text())
    assert page.version("ab") != first
    content = page.live("ab")
    assert "Right for all 363 inputs" in content and "right for 363 of 363 inputs" in content
    assert '<tr><th scope="row">answer</th><td>-</td><td>a</td></tr>' in content
    save(page.path, "answer = (")
    assert "has a syntax error" in page.live("ab") and "<b>before</b>" not in page.live("ab")
    page.path.unlink()
    assert "is not a Python file" in page.live("ab")


def test_heatmap_shows_the_selected_steps(page: WritingPage) -> None:
    content = page.live("aba")
    filled = [part for part in content.split("<rect ")[1:] if 'fill-opacity="0.62"' in part]
    assert len(filled) == 4  # causal: each a with itself, the second a also with the first, and b with itself


def test_text_that_does_not_fit(page: WritingPage) -> None:
    for text in ("", "abcabc", "x"):
        assert "The text does not fit" in page.live(text)


def test_text_of_the_learner_is_escaped(page: WritingPage) -> None:
    save(page.path, "answer = '<script>'.missing")
    assert "<script>" not in page.live("ab")
    assert "<script>" not in page.live("<script>")


def test_trained_model_stands_beside_the_program(page: WritingPage, write: Write) -> None:
    page.train()
    assert page.trained is None, "an unfinished program has no model"
    save(page.path, write("right", solution("previous")).read_text())
    page.live("ab")
    page.train()
    assert page.trained is not None and page.progress is None
    content = page.live("ab")
    assert "The trained model is right for 363 of 363 inputs" in content and "similarity 0." in content
