"""Rooms whose names are imported when they are first asked for."""

import importlib
import sys
from pathlib import Path

import pytest

import regard

ROOM = """
from typing import TYPE_CHECKING
from regard.late import late
if TYPE_CHECKING:
    from some_room.bake import bake
    from some_room.other import one as another
late(__name__)
"""


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "some_room").mkdir()
    (tmp_path / "some_room/__init__.py").write_text(ROOM)
    (tmp_path / "some_room/bake.py").write_text("def bake():\n    return 'bread'\n")
    (tmp_path / "some_room/other.py").write_text("one = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("some_room", "some_room.bake", "some_room.other"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "some_room"


def test_a_file_is_read_when_one_of_its_names_is_asked_for(room: str) -> None:
    found = importlib.import_module(room)
    assert "some_room.bake" not in sys.modules and "some_room.other" not in sys.modules
    assert found.another == 1
    assert "some_room.bake" not in sys.modules and "some_room.other" in sys.modules
    assert {"bake", "another"} <= set(dir(found))
    with pytest.raises(AttributeError, match="module 'some_room' has no attribute 'one'"):
        found.one  # noqa: B018


def test_a_function_is_found_where_its_file_has_its_name_and_was_imported_first(room: str) -> None:
    importlib.import_module("some_room.bake")
    assert importlib.import_module(room).bake() == "bread"


def test_names_of_a_room_can_be_replaced_as_those_of_others(room: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.import_module(room)
    with monkeypatch.context() as patch:
        patch.setattr(found, "bake", lambda: "cake")
        assert found.bake() == "cake"
    assert found.bake() == "bread"


ROOMS = sorted(f"regard.{path.parent.name}" for path in Path(regard.__file__).parent.glob("*/__init__.py"))


@pytest.mark.parametrize("name", ROOMS)
def test_every_name_that_a_room_offers_is_there(name: str) -> None:
    module = importlib.import_module(name)
    for each in getattr(module, "__all__", []):
        assert getattr(module, each) is not None
