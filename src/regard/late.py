"""Packages whose exports are imported lazily.

    if TYPE_CHECKING:
        from regard.decoding.search import beam_search

    late(__name__)

In this example, `from regard.decoding import beam_search` imports only the module `search` of the package.

The library lazy-loader is not used, because type checkers do not support its `attach`, and its `attach_stub`
needs a second list of the names in a `.pyi` file. With this module, the block for type checkers is the only
list of names.
"""

import ast
import sys
from types import ModuleType
from typing import Any


class _LazyPackage(ModuleType):
    """A package that imports each exported name on first use."""

    _exports: dict[str, tuple[str, str]]
    """The module of each exported name, and the name in this module."""

    def __getattr__(self, name: str) -> Any:
        if name not in self._exports:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        module, original = self._exports[name]
        # importlib.import_module is not used, because -X importtime reports only __import__.
        value = getattr(__import__(module, fromlist=[original]), original)
        vars(self)[name] = value
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # Python sets an imported module as an attribute of its package. If an exported name is equal to the
        # name of its module, the exported object replaces the module.
        if not (isinstance(value, ModuleType) and name in self._exports):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._exports})


def late(package: str) -> None:
    """Import the names in the `if TYPE_CHECKING` block of a package lazily, on first use."""
    module = sys.modules[package]
    assert module.__spec__ is not None and module.__spec__.loader is not None
    source = module.__spec__.loader.get_source(package)  # type: ignore[attr-defined]
    vars(module)["_exports"] = {
        name.asname or name.name: (statement.module, name.name)
        for block in ast.parse(source).body
        if isinstance(block, ast.If)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom) and statement.module
        for name in statement.names
    }
    module.__class__ = _LazyPackage
