"""Fixtures of the course."""

import contextlib
import importlib
from collections.abc import Iterator

import pytest

from regard_course.sandbox import ForkServer


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    """Processes that run files of learners."""
    with ForkServer() as running:
        yield running


@pytest.fixture
def one_server(server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check all files of a module with the same processes, because new ones take a second to start."""
    for name in ("regard_course.check", "regard_course.cli.check"):
        monkeypatch.setattr(importlib.import_module(name), "ForkServer", lambda: contextlib.nullcontext(server))
