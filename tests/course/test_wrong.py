"""Every known mistake is named if it is inserted into a correct file, and so are two mistakes together."""

import pytest

from regard_course.grading import spaced_name
from regard_course.mistakes.known import MISTAKES
from tests.course.checking import LEARNERS, check_source, mistake_names
from tests.course.planted import PAIRS, PLANTS, READERS, SEARCHES, Edit


def plant(file: str, edits: list[Edit]) -> str:
    """Return a learner's file with the edits applied."""
    source = (LEARNERS / f"{file}.py").read_text(encoding="utf-8")
    for old, new in edits:
        assert old in source, f"{file} has no {old!r}"
        source = source.replace(old, new)
    return source


LONG = ("transformer", "train_copy")
"""Exercises for which `make test` tests only every fifth mistake."""
TRIED = {name: [mistake for _, exercise, mistake, _ in PLANTS if exercise == name][::5] for name in LONG}


@pytest.mark.parametrize(
    ("file", "exercise", "mistake", "edits"),
    [
        pytest.param(*case, marks=[] if case[2] in TRIED.get(case[1], [case[2]]) else [pytest.mark.slow])
        for case in PLANTS
    ],
    ids=[f"{case[1]}-{case[2]}-{case[0]}" for case in PLANTS],
)
def test_a_mistake_is_named(file: str, exercise: str, mistake: str, edits: list[Edit]) -> None:
    report = check_source(plant(file, edits), exercise)
    assert report.state == "wrong"
    names = mistake_names(report)
    assert [mistake] in names, f"{names}; {report.cases}"
    assert len(names) <= 3  # which no input can separate
    assert all(finding.example for diagnosis in report.diagnoses for finding in diagnosis.findings)
    assert report.ending == ""  # the sentence on unknown mistakes does not appear


@pytest.mark.parametrize(
    ("file", "exercise", "mistakes", "edits"),
    [pytest.param(*case, marks=[pytest.mark.slow] if case[1] in LONG else []) for case in PAIRS],
    ids=[" and ".join(case[2]) for case in PAIRS],
)
def test_two_mistakes_are_named(file: str, exercise: str, mistakes: list[str], edits: list[Edit]) -> None:
    report = check_source(plant(file, edits), exercise)
    assert report.state == "wrong"
    assert sorted(mistakes) in [sorted(names) for names in mistake_names(report)]


@pytest.mark.parametrize(("file", "exercise", "quantity", "edits"), SEARCHES)
def test_the_first_quantity_of_a_search_is_named(file: str, exercise: str, quantity: str, edits: list[Edit]) -> None:
    report = check_source(plant(file, edits), exercise)
    assert not report.diagnoses and report.first_step and report.first_step.name == quantity, report
    assert report.first_step.example and report.first_step.example.right != report.first_step.example.wrong


@pytest.mark.parametrize(("exercise", "mistakes", "source"), READERS)
def test_mistakes_of_readers_are_named(exercise: str, mistakes: list[str], source: str) -> None:
    report = check_source(source, exercise)
    assert mistake_names(report) == [mistakes], report
    assert report.ending == ""


def test_every_known_mistake_is_planted_somewhere() -> None:
    every = {spaced_name(mistake.__name__) for mistake in MISTAKES}
    assert len(every) == len(MISTAKES) > 100
    assert every == {mistake for _, _, mistake, _ in PLANTS}
