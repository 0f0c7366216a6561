"""Examples in docstrings produce the documented results."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

import regard

ROOT = Path(regard.__file__).parent
MODULES = [
    ".".join(("regard", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in sorted(ROOT.rglob("*.py"))
    if re.search(r">>> (?!.*doctest: \+SKIP)", path.read_text(encoding="utf-8"))
]
"""Modules with executable examples."""


@pytest.mark.parametrize("module", MODULES)
def test_examples_of_a_module(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # an example may write files
    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted and not results.failed
