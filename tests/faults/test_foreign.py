"""A sample of the campaigns of damaged folders of other programs."""

import pytest

from tests.faults.foreign import KINDS, main


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_sample_of_damaged_folders(name: str) -> None:
    report = main(name, 15, seed=0)
    if not report.trials:
        pytest.skip(f"needs {', '.join(KINDS[name].needs)}")
    assert not report.faults, report.told()
