"""Exercises from a file outside the package."""

from pathlib import Path

import pytest

import regard
from regard.errors import InputError
from tests.course.checking import Command

OWN = '''
import numpy as np
from regard_course.check import make_exercise

def moving_average(values, width):
    """Return the mean of each step and the width - 1 steps before it, or of all steps so far.

    values (B, T), width: a number; returns (B, T).
    """
    return np.stack([values[:, max(0, t - width + 1) : t + 1].mean(1) for t in range(values.shape[1])], 1)

def inputs(seed):
    generator = np.random.default_rng(seed)
    return {
        "prime sizes": {"values": generator.normal(size=(2, 7)), "width": 3},
        "gradients": {"values": generator.normal(size=(2, 5)), "width": 2},
        "by hand": {"values": np.array([[1.0, 3.0, 5.0]]), "width": 2},
    }

def looks_ahead(values, width):
    """The window contains later steps."""
    return np.stack([values[:, t : t + width].mean(1) for t in range(values.shape[1])], 1)

average = make_exercise(moving_average, inputs, [(looks_ahead, "Use earlier steps.")])
'''
MINE = """
import torch

def moving_average(values, width):
    return torch.stack([values[:, max(0, t - width + 1) : t + 1].mean(1) for t in range(values.shape[1])], 1)
"""
WINDOW = "max(0, t - width + 1) : t + 1"


def write(folder: Path, own: str = OWN, mine: str = MINE) -> tuple[Path, Path]:
    (folder / "check.py").write_text(own, encoding="utf-8")
    (folder / "mine.py").write_text(mine, encoding="utf-8")
    return folder / "mine.py", folder / "check.py"


def test_a_right_answer_and_a_named_mistake(tmp_path: Path, command: Command) -> None:
    mine, own = write(tmp_path)
    for seed in (0, 4):
        report = regard.check(mine, exercises=own, seed=seed)
        assert report.right and len(report.exercises[0].cases) == 3
    mine.write_text(MINE.replace(WINDOW, "t : t + width"), encoding="utf-8")
    status, out, _ = command("check", mine, "--exercises", own)
    assert status == 1 and "The window contains later steps." in out
    assert "Example: moving_average, values = [[1., 3., 5.]], width = 2" in out
    mine.write_text(MINE.replace("values[:", "values.detach()[:"), encoding="utf-8")
    assert "no gradient reaches values" in str(regard.check(mine, exercises=own))


def test_stubs_are_those_of_the_file(tmp_path: Path, command: Command) -> None:
    _, own = write(tmp_path)
    status, out, err = command("check", "--stubs", tmp_path / "stubs", "--exercises", own)
    assert status == 0 and "--exercises" in out, err
    (stub,) = (tmp_path / "stubs").iterdir()
    text = stub.read_text()
    assert "def moving_average(values, width):" in text and "--exercises check.py" in text and "mean(1)" not in text
    assert regard.check(stub, exercises=own).exercises[0].state == "not begun"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("def inputs", "1 / 0\ndef inputs", "check.py cannot be run: ZeroDivisionError"),
        ("average = make_exercise", "make_exercise", "check.py defines no exercise"),
        ("[:, t : t + width]", f"[:, {WINDOW}]", "no input shows the mistake looks_ahead"),
        ('    """The window contains later steps."""\n', "", "the mistake looks_ahead has no docstring"),
        ('"width": 3', '"size": 3', "must have the arguments values, width"),
        (
            '"width": 2},\n        "by',
            '"width": open},\n        "by',
            "may contain arrays, numbers, text and lists only",
        ),
        ('"width": 3', '"width": "3"', "exercise moving_average of check.py fails: TypeError"),
    ],
)
def test_an_invalid_file_is_refused_in_one_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in OWN
    mine, own = write(tmp_path, OWN.replace(old, new))
    with pytest.raises(InputError) as caught:
        regard.check(mine, exercises=own)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    mine, _ = write(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        regard.check(mine, exercises=tmp_path / "none.py")
