"""Fixtures of the course."""

import contextlib
import importlib
from collections.abc import Iterator

import pytest

from regard_course.sandbox import ForkServer


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """Processes that run files of learners."""
    with ForkServer() as server:
        yield server


@pytest.fixture(autouse=True)
def _one_server(fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check all files of learners in forks of the same processes, as `regard check FOLDER` does: new processes take
    seconds to start. The people of a class are checked one after the other."""
    for name in ("regard_course.check", "regard_course.cli.check"):
        monkeypatch.setattr(importlib.import_module(name), "ForkServer", lambda: contextlib.nullcontext(fork_server))
    marks = importlib.import_module("regard_course.marks")
    monkeypatch.setattr(marks, "_server", lambda: fork_server)
    monkeypatch.setattr(marks, "available_cores", lambda: 1)
