"""What docs/check.md shows is what one sees."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from regard.course.exercises import EXERCISES
from regard.course.mistakes import MISTAKES

PAGE = (Path(__file__).parents[2] / "docs" / "check.md").read_text(encoding="utf-8")


def test_the_page_shows_what_its_code_gets(
    command: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"```python\n(import torch.*?)```", PAGE, re.DOTALL)
    (shown,) = re.findall(r"```text\n(.*?)\n```", PAGE, re.DOTALL)
    (tmp_path / "attention.py").write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    status, out, err = command("check", "attention.py")
    assert status == 1, err
    assert [line.rstrip() for line in out.splitlines()] == shown.splitlines()


def test_the_page_names_every_exercise_and_no_more_mistakes_than_there_are() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == [each.name for each in EXERCISES]
    (count,) = re.findall(r"Over (\d+) of them", PAGE)
    assert int(count) < len(MISTAKES) < int(count) + 10
