"""Packages whose exports are imported lazily.

    if TYPE_CHECKING:
        from regard.decoding.search import beam_search as beam_search

    late(__name__)

In this example, `from regard.decoding import beam_search` imports only the module `search` of the package.

Type checkers treat a name as exported if it is imported as itself (PEP 484). The library lazy-loader is not used,
because type checkers do not support its `attach`, and its `attach_stub` needs a second list of the names in a
`.pyi` file. With this module, the imports are the only list of names.
"""

import ast
import sys
from types import FunctionType, ModuleType
from typing import Any

from regard.arguments import guard, guard_class, type_imports

_EXPORTED: dict[str, set[str]] = {}
"""Names that packages export from each module."""


class _LazyPackage(ModuleType):
    """A package that imports each exported name on first use."""

    _exports: dict[str, tuple[str, str]]
    """The module of each exported name, and the name in this module."""

    def __getattr__(self, name: str) -> Any:
        if name not in self._exports:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        module, original = self._exports[name]
        # importlib.import_module is not used, because -X importtime reports only __import__.
        source = __import__(module, fromlist=[original])
        value = getattr(source, original)
        if isinstance(value, FunctionType) and not isinstance(source, _LazyPackage):
            value = guard(value)
            value.__module__ = self.__name__  # pickle finds the function that checks
        vars(self)[name] = value
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # Python sets an imported module as an attribute of its package. If an exported name is equal to the
        # name of its module, the exported object replaces the module.
        if isinstance(value, ModuleType):
            for export in _EXPORTED.get(value.__name__, ()):
                if isinstance(vars(value).get(export), type):
                    guard_class(vars(value)[export])
        if not (isinstance(value, ModuleType) and name in self._exports):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._exports})


def late(package: str) -> None:
    """Import the names in the `if TYPE_CHECKING` block of a package lazily, on first use. `__all__` lists all
    names that the package imports as themselves."""
    module = sys.modules[package]
    assert module.__spec__ is not None and module.__spec__.loader is not None
    source = module.__spec__.loader.get_source(package)  # type: ignore[attr-defined]
    body = ast.parse(source).body
    block = [statement for part in body if isinstance(part, ast.If) for statement in part.body]
    vars(module)["_exports"] = exports = type_imports(source)
    for file, name in exports.values():
        _EXPORTED.setdefault(file, set()).add(name)
    names = [name for part in (*body, *block) if isinstance(part, ast.ImportFrom) for name in part.names]
    vars(module)["__all__"] = sorted(name.name for name in names if name.asname == name.name)
    module.__class__ = _LazyPackage
