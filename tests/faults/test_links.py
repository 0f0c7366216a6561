"""A sample of planted links; the campaign detects a write through a link."""

import os
from pathlib import Path
from unittest import mock

import pytest

from regard.io import writing
from tests.faults import links
from tests.faults.scenes import scenes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="commands are tried in forked children"),
]


def test_a_sample_of_links() -> None:
    report = links.main(30, seed=0)
    assert not report.faults, report.told()
    assert sum(report.counts.values()) == 30


def test_writing_through_a_link_is_detected() -> None:
    real = writing._replace

    def through(path: Path, content: bytes) -> None:
        real(Path(os.path.realpath(path)), content)

    one = [scene for scene in scenes() if scene.name == "examine"]
    few = mock.patch.multiple(links, scenes=lambda: one, WAYS=("link",))
    with mock.patch.object(writing, "_replace", through), few:
        report = links.main(None, seed=0)
    assert any("changes what a link led to" in fault for fault in report.faults), report.told()
