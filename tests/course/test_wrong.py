"""Every usual mistake is named when it is planted in a learner's file, and so are two of them together."""

import pytest

from regard.course.grading import plain_words
from regard.course.mistakes import MISTAKES
from tests.course.checking import LEARNERS, checked, named
from tests.course.planted import PAIRS, PLANTS, TRIPLES, Edit


def planted(file: str, edits: list[Edit]) -> str:
    """Return a learner's file with edits, each of which finds its place."""
    source = (LEARNERS / f"{file}.py").read_text(encoding="utf-8")
    for old, new in edits:
        assert old in source, f"{file} has no {old!r}"
        source = source.replace(old, new)
    return source


LONG = ("transformer", "train_copy")
"""Exercises of which `make test` tries every fifth mistake only."""
TRIED = {name: [each[2] for each in PLANTS if each[1] == name][::5] for name in LONG}


def _quick(exercise: str, mistake: str) -> bool:
    return mistake in TRIED.get(exercise, [mistake])


@pytest.mark.parametrize(
    ("file", "exercise", "mistake", "edits"),
    [pytest.param(*each, marks=[] if _quick(*each[1:3]) else [pytest.mark.slow]) for each in PLANTS],
    ids=[f"{each[1]}-{each[2]}-{each[0]}" for each in PLANTS],
)
def test_a_mistake_is_named(file: str, exercise: str, mistake: str, edits: list[Edit]) -> None:
    report = checked(planted(file, edits), exercise)
    assert report.state == "wrong"
    found = named(report)
    assert [mistake] in found, f"{found}; {report.cases}"
    assert len(found) <= 3  # of which none can be told apart
    assert all(each.example for diagnosis in report.diagnoses for each in diagnosis.findings)
    assert report.ending == ""  # no sentence says that no usual mistake answers so


@pytest.mark.parametrize(
    ("file", "exercise", "mistakes", "edits"),
    [pytest.param(*each, marks=[pytest.mark.slow] if each[1] in LONG else []) for each in PAIRS],
    ids=[" and ".join(each[2]) for each in PAIRS],
)
def test_two_mistakes_are_named(file: str, exercise: str, mistakes: list[str], edits: list[Edit]) -> None:
    report = checked(planted(file, edits), exercise)
    assert report.state == "wrong"
    assert sorted(mistakes) in [sorted(each) for each in named(report)]


@pytest.mark.parametrize(("exercise", "mistakes", "source"), TRIPLES, ids=[each[0] for each in TRIPLES])
def test_three_mistakes_are_named(exercise: str, mistakes: list[str], source: str) -> None:
    report = checked(source, exercise)
    assert sorted(mistakes) in [sorted(each) for each in named(report)], report
    assert report.ending == ""


def test_every_mistake_of_the_catalogue_is_planted_somewhere() -> None:
    every = {plain_words(each.__name__) for each in MISTAKES}
    assert len(every) == len(MISTAKES) > 100
    assert every == {mistake for _, _, mistake, _ in PLANTS}
