"""Answers in the styles of people: every mistake is named by its own name, and no correct answer is blamed.

The styles are those of Stack Overflow, of the ARENA course, of "Dive into Deep Learning", of nanoGPT, of einsum,
and of loops. A person assigned the names of the mistakes to the faults of each answer.
"""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.course.checking import check_source, mistake_names

TABLE = tomllib.loads(Path(__file__).with_name("people.toml").read_text(encoding="utf-8"))
ANSWERS: dict[str, dict[str, Any]] = {row["name"]: row for row in TABLE["answers"]}
LONG = ("transformer", "train_copy")


def source_of(name: str) -> str:
    """Return the source of an answer: a text with some parts replaced, each of which must occur."""
    source: str = TABLE["sources"][ANSWERS[name]["source"]]
    for old, new in ANSWERS[name].get("edits", []):
        assert old in source, old
        source = source.replace(old, new)
    return source


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if row["exercise"] in LONG else []) for name, row in ANSWERS.items()],
)
def test_the_mistakes_of_an_answer_are_named_and_a_right_answer_is_right(name: str) -> None:
    row = ANSWERS[name]
    report = check_source(source_of(name), row["exercise"])
    if "faults" in row:
        assert report.state == "wrong" and row["mistakes"] in mistake_names(report), report
    else:
        assert report.state == "right" and not report.notes, report


def test_every_wrong_answer_has_faults_and_names() -> None:
    wrong = [row for row in ANSWERS.values() if "faults" in row]
    assert len(wrong) == 57 and len(ANSWERS) == 85 and all(row["faults"] and row["mistakes"] for row in wrong)
