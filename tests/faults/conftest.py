"""Restore the state of the process that a campaign changes."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    folder = Path.cwd()
    with mock.patch.dict(os.environ), mock.patch.object(tempfile, "tempdir", tempfile.tempdir):
        yield
    os.chdir(folder)
