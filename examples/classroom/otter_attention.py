"""Test of the exercise `attention` for Otter-Grader: copy to tests/attention.py. One point for each input."""

import functools

from otter.test_files import test_case

import regard

OK_FORMAT = False
RIGHT = ("right", "not compared")
name = "attention"
points = None
INPUTS = (
    *("Tq different from Tk", "as many keys as queries", "a mask", "a square mask", "one step", "a batch of one"),
    *("equal sizes", "equal scores", "one key", "large scores", "gradients", "a fully masked row", "by hand"),
    *("large hidden scores", "not contiguous"),
)


@functools.cache
def report_on(answer):
    """Check the answer once for all inputs."""
    return regard.check(answer, "attention").exercises[0]


def one_input(case):
    """Return the test of one input. The mistake is the message of a failed test."""

    @test_case(name=case, points=1)
    def test(attention):
        report = report_on(attention)
        assert any(part.name == case and part.verdict in RIGHT for part in report.cases), report.explanation

    return test


for number, case in enumerate(INPUTS):
    globals()[f"test_{number}"] = one_input(case)
