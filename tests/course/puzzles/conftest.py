"""A function that writes a program to a file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.course.puzzles.planted_programs import IMPORTS

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes the code of a program, after the imports, to NAME.py."""

    def write_program(name: str, code: str) -> Path:
        path = tmp_path / f"{name}.py"
        path.write_text(IMPORTS + code)
        return path

    return write_program
