"""docs/how-to/check-your-code.md shows the real output."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from regard_course.exercises.course import EXERCISES
from regard_course.mistakes.known import MISTAKES

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "check-your-code.md").read_text(encoding="utf-8")


def test_the_page_shows_the_output_of_its_code(
    command: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"```python\n(import torch.*?)```", PAGE, re.DOTALL)
    (shown,) = re.findall(r"```text\n(.*?)\n```", PAGE, re.DOTALL)
    (tmp_path / "attention.py").write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    status, out, err = command("check", "attention.py")
    assert status == 1, err
    assert [line.rstrip() for line in out.splitlines()] == shown.splitlines()


def test_the_page_lists_every_exercise_and_the_number_of_mistakes() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == [exercise.name for exercise in EXERCISES]
    (count,) = re.findall(r"over (\d+) known mistakes", PAGE)
    assert int(count) < len(MISTAKES) < int(count) + 10
