"""Small models of Hugging Face's, as `make models` builds them; without transformers, tests skip."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = str(Path(__file__).parents[2] / "benchmarks")


@pytest.fixture(scope="session")
def small() -> Iterator[Any]:
    """The module of architectures, with all of them by name as `known`."""
    pytest.importorskip("transformers", reason="needs the extra peers")
    sys.path.insert(0, BENCHMARKS)
    try:
        import architectures
        from small_models import ARCHITECTURES

        architectures.known = {each.name: each for each in ARCHITECTURES}  # type: ignore[attr-defined]
        yield architectures
    finally:
        sys.path.remove(BENCHMARKS)
