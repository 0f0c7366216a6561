"""A sample of the campaign of learners' files; the campaign detects faults."""

import os

import pytest

from tests.faults.learners import faults_of, main

pytestmark = pytest.mark.skipif(os.name != "posix", reason="code is checked in a process of its own, with limits")


@pytest.mark.slow
def test_a_sample_of_learners_files() -> None:
    report = main(6, seed=0)
    assert not report.faults, report.told()


@pytest.mark.parametrize(
    ("status", "out", "err", "fault"),
    [
        (1, "mine.py: stopped, crashed\n", "", None),
        (0, "score: right\n", "", None),
        (1, "", "", "no line says what happened"),
        (1, "score: right\n", "", "status 1 after score: right"),
        (2, "score: right\n", "regard: internal error\n", "internal error"),
        (1, "score: wrong\n", "Traceback\n", "standard error: Traceback"),
    ],
)
def test_faults_are_recognized(status: int, out: str, err: str, fault: str | None) -> None:
    found = list(faults_of(status, out, err))
    assert found == [] if fault is None else any(fault in each for each in found)
