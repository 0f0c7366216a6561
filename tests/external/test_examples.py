"""Examples in the docstrings of external models give the results that they show."""

import doctest
import importlib
from pathlib import Path

import pytest

import regard.external

MODULES = [
    path.stem
    for path in sorted(Path(regard.external.__file__).parent.glob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("module", MODULES)
def test_docstring_examples(module: str) -> None:
    results = doctest.testmod(importlib.import_module(f"regard.external.{module}"))
    assert results.attempted and not results.failed
