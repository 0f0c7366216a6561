"""A small campaign of texts; see `python -m tests.faults texts`."""

import pytest

from tests.faults import texts


@pytest.mark.slow
def test_sample_of_texts() -> None:
    pytest.importorskip("ctranslate2")
    report = texts.main(60, seed=3)
    assert not report.faults, report.told()
    assert {trial.kind for trial in report.trials} == set(texts.KINDS)
