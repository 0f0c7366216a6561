"""Packages whose exports are imported lazily."""

import importlib
import sys
from pathlib import Path

import pytest

import regard

PACKAGE = """
from typing import TYPE_CHECKING
from regard.late import late
if TYPE_CHECKING:
    from some_package.bake import bake
    from some_package.other import one as another
    from some_package.bake import bread as bread
late(__name__)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "some_package").mkdir()
    (tmp_path / "some_package/__init__.py").write_text(PACKAGE)
    (tmp_path / "some_package/bake.py").write_text("def bake():\n    return bread\nbread = 'bread'\n")
    (tmp_path / "some_package/other.py").write_text("one = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("some_package", "some_package.bake", "some_package.other"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "some_package"


def test_a_module_is_imported_when_an_export_is_used(package: str) -> None:
    found = importlib.import_module(package)
    assert "some_package.bake" not in sys.modules and "some_package.other" not in sys.modules
    assert found.another == 1
    assert "some_package.bake" not in sys.modules and "some_package.other" in sys.modules
    assert {"bake", "another"} <= set(dir(found))
    assert found.__all__ == ["bread"]
    with pytest.raises(AttributeError, match="module 'some_package' has no attribute 'one'"):
        found.one  # noqa: B018


def test_an_export_wins_over_its_module_of_the_same_name(package: str) -> None:
    importlib.import_module("some_package.bake")
    assert importlib.import_module(package).bake() == "bread"


def test_exports_can_be_monkeypatched(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.import_module(package)
    with monkeypatch.context() as patch:
        patch.setattr(found, "bake", lambda: "cake")
        assert found.bake() == "cake"
    assert found.bake() == "bread"


PACKAGES = sorted(f"regard.{path.parent.name}" for path in Path(regard.__file__).parent.glob("*/__init__.py"))


@pytest.mark.parametrize("name", PACKAGES)
def test_every_export_exists(name: str) -> None:
    module = importlib.import_module(name)
    for each in getattr(module, "__all__", []):
        assert getattr(module, each) is not None
