"""A sample of the campaign of damaged files."""

from tests.faults.files import main


def test_a_sample_of_damaged_files() -> None:
    report = main(60, seed=0)
    assert not report.faults, report.told()
    assert report.counts["unharmed"] > 3 and report.counts["refused"] > 8
