"""Classes of user code, referred to as `module:Class`.

A module is searched on Python's path first, then in the current directory, which is not on `sys.path`. While a
user module is imported, imports in this module also search its folder. An import inside a function runs later
and does not search this folder. Imports must therefore be at the top of the file.
"""

import importlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from regard.errors import InputError, one_line, unknown_choice

Base = TypeVar("Base")
Built = TypeVar("Built")

_FORM = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*):[^\W\d]\w*")
IMPORT_SYSTEM = {"importlib", "_frozen_importlib", "_frozen_importlib_external"}
"""The modules of Python's import system."""


class PluginError(InputError):
    """Raised if user code is missing or fails. A run that refers to this code may be intact."""


def plugin_module(name: str) -> str | None:
    """Return the module of `module:Class`, or None for names of a different form, which are never imported.

    >>> plugin_module("lookback:LookBack")
    'lookback'
    """
    match = _FORM.fullmatch(name)
    return None if match is None else match["module"]


class _Finder:
    """Import finder for modules in a folder. Handles only imports by user code and by this module."""

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        self.folder = str(folder)
        self.names = {__name__, *names}
        """The top-level modules whose imports this finder handles."""

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a top-level module, or return None if other code imports it."""
        # The first frame outside of the import system belongs to the importing module.
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in IMPORT_SYSTEM:
            frame = frame.f_back
        importer = frame.f_globals.get("__name__", "")
        if path is not None or not {importer, importer.partition(".")[0]} & self.names:
            return None
        spec = _find_in_folder(name, self.folder)
        if spec is not None:
            self.names.add(name)
        return spec


def _find_in_folder(name: str, folder: str) -> ModuleSpec | None:
    """Find a top-level module in a folder. Python's cached listing of the folder is cleared before and after."""
    try:
        sys.path_importer_cache.pop(folder, None)
        return PathFinder.find_spec(name, [folder])
    finally:
        if folder not in sys.path:
            sys.path_importer_cache.pop(folder, None)


@contextmanager
def plugin_imports(folder: Path, *names: str) -> Iterator[None]:
    """In the block, let imports by the top-level modules `names` also search `folder`, after all other
    locations.

    Modules that are imported from `folder` also search this folder.
    """
    finder = _Finder(folder, names)
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def find_plugin(name: str) -> ModuleSpec | None:
    """Return the location of a top-level module that `import_plugin` would import, or None. The module is not
    executed."""
    try:
        spec = find_spec(name)
    except ValueError:  # a module without a __spec__
        return None
    return spec or _find_in_folder(name, str(Path.cwd()))


def import_plugin(what: str, name: str) -> object:
    """Import `module:Class`. `what`: kind of class for messages, such as "score".

    Raises `PluginError` if the name is not of the form `module:Class`, or if the module is missing, fails, or
    does not contain the class.
    """
    module_name = plugin_module(name)
    if module_name is None:
        raise PluginError(
            f"{what} {name!r} is not of the form module:Class, as in lookback:LookBack: name a class of a module"
        )
    module: ModuleType | None = None
    try:
        with plugin_imports(Path.cwd()):
            module = importlib.import_module(module_name)
        return getattr(module, name.rpartition(":")[2])
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise _import_error(what, name, error) from error
        raise PluginError(
            f"{what} {name!r} is not found: there is no module {module_name!r} in {str(Path.cwd())!r} nor on "
            f"Python's path; change to the module's folder, or add that folder to PYTHONPATH"
        ) from None
    except (Exception, SystemExit) as error:  # a user module can fail in any way
        hidden = _find_hidden(module_name) if module is not None else None
        if hidden is not None:
            raise PluginError(
                f"{what} {name!r} is not found: an installed module with that name hides {hidden!r}; "
                f"rename your file"
            ) from error
        raise _import_error(what, name, error) from error


def _find_hidden(module_name: str) -> str | None:
    """Return the file in the current directory that is hidden by an installed module with the same name, or
    None."""
    top = module_name.partition(".")[0]
    spec = _find_in_folder(top, str(Path.cwd()))
    loaded = getattr(sys.modules[top], "__file__", None)
    return spec.origin if spec is not None and spec.origin != loaded else None


def plugin_class(what: str, name: str, base: type[Base], choices: Iterable[str] = ()) -> type[Base]:
    """Import the class `module:Class`, a subclass of `base`. `what`: kind of class for messages.

    For a name without a colon, raises `InputError` with the built-in `choices`. Raises `PluginError` if the
    class cannot be imported or is not a subclass of `base`.
    """
    if ":" not in name:
        raise unknown_choice(what, name, choices, other="module:Class")
    imported = import_plugin(what, name)
    if not (isinstance(imported, type) and issubclass(imported, base)):
        package = ".".join(base.__module__.split(".")[:2])  # the package that exports the base class
        raise PluginError(
            f"{what} {name!r} is not a class derived from {package}.{base.__name__}: derive it from this class"
        )
    return imported


def build_plugin(what: str, name: str, build: Callable[[], Built], sizes: str, takes: str) -> Built:
    """Return the result of `build`, which constructs a user's class.

    If `build` fails, raises `PluginError` with the sizes and the expected arguments.
    """
    try:
        return build()
    except InputError:
        raise
    except Exception as error:
        raise PluginError(
            f"{what} {name!r} cannot be built for {sizes}: {describe_error(error)}; its constructor must "
            f"accept {takes}"
        ) from error


def _import_error(what: str, name: str, error: BaseException) -> PluginError:
    return PluginError(f"{what} {name!r} cannot be imported: {describe_error(error)}; fix the module")


def describe_error(error: BaseException, most: int = 300) -> str:
    """Return a description of an error of user code in one line."""
    return one_line(error, most)
