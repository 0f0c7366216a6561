"""A sample of the campaign of damaged files."""

from tests.faults.files import main


def test_a_sample_of_damaged_files() -> None:
    report = main(120, seed=0)
    assert not report.faults, report.told()
    assert report.counts["unharmed"] > 5 and report.counts["refused"] > 15
