"""Examples in docstrings give the results that they show."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

import regard

ROOT = Path(regard.__file__).parent
MODULES = [
    f"regard.{package}.{path.stem}"
    for package in ("training", "runs", "decoding", "viz", "interpret", "server", "cli")
    for path in sorted((ROOT / package).glob("*.py"))
    if re.search(r">>> (?!.*\+SKIP)", path.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("module", MODULES)
def test_examples_of_a_module(module: str) -> None:
    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted and not results.failed
