"""Rooms whose names are imported when they are first asked for, so that a command loads only what it uses.

    if TYPE_CHECKING:
        from regard.decoding.beam import beam_search

    late(__name__)

makes `from regard.decoding import beam_search` read that file, and no other one of the room.
"""

import ast
import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """A package that knows in which file each of its names stands, and how it is called there."""

    _homes: dict[str, tuple[str, str]]

    def __getattr__(self, name: str) -> Any:
        if name not in self._homes:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        home, called = self._homes[name]
        value = getattr(__import__(home, fromlist=[called]), called)  # which -X importtime sees
        vars(self)[name] = value
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # Importing a file sets it in its package, where the name may be that of a function in it.
        if not (isinstance(value, ModuleType) and name in self._homes):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._homes})


def late(package: str) -> None:
    """Have the names that a package imports for type checkers imported for everyone, when they are asked for."""
    room = sys.modules[package]
    assert room.__spec__ is not None and room.__spec__.loader is not None
    source = room.__spec__.loader.get_source(package)  # type: ignore[attr-defined]
    vars(room)["_homes"] = {
        each.asname or each.name: (node.module, each.name)
        for block in ast.parse(source).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
        for each in node.names
    }
    room.__class__ = _Room
