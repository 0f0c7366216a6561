"""A sample of the campaign against files."""

from tests.faults.files import WRONG, main


def test_a_sample_of_damaged_files() -> None:
    outcomes = main(100, seed=0)
    assert outcomes["status 0"] > 20 and outcomes["status 2"] > 20
    assert not {name: outcomes[name] for name in WRONG if outcomes[name]}
