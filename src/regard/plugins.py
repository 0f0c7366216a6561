"""Code of a user's own, by the name `module:Class`.

It is found where Python finds modules, and then in the current directory, which is not on `sys.path`: while a
file of the user's own is imported, its own imports, and no other code's, also look in its folder. An import that
a function does later does not: write it at the top of the file.
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


def plugin_module(name: str) -> str | None:
    """Return the module that `module:Class` names; None for a name of another form, which is never imported."""
    found = _FORM.fullmatch(name)
    return None if found is None else found["module"]


class PluginError(InputError):
    """Code of a user's own that is not found, or fails; a run that names it need not be damaged."""


_sent: list[Path] = []
"""Folders of code that another machine has sent to this process."""


def add_plugin_folders(folders: Iterable[Path]) -> None:
    """Also find `module:Class` in `folders` in this process."""
    _sent.extend(folders)


class _Finder:
    """Finds modules in folders, for code that was found there and for this module alone."""

    def __init__(self, folders: Iterable[Path], names: Iterable[str]) -> None:
        self.folders = [str(folder) for folder in folders]
        self.names = {__name__, *names}
        """Top-level modules whose imports are answered."""

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a top-level module; None where other code asks for it."""
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in IMPORTING:
            frame = frame.f_back
        importer = frame.f_globals.get("__name__", "")
        if path is not None or not {importer, importer.partition(".")[0]} & self.names:
            return None
        found = _look(name, self.folders)
        if found is not None:
            self.names.add(name)
        return found


IMPORTING = {"importlib", "_frozen_importlib", "_frozen_importlib_external"}
"""Modules of Python's import system."""


def _look(name: str, folders: list[str]) -> ModuleSpec | None:
    """Find a top-level module in folders as they are now; Python keeps no listing of them afterwards."""
    try:
        for folder in folders:
            sys.path_importer_cache.pop(folder, None)
        return PathFinder.find_spec(name, folders)
    finally:
        for folder in folders:
            if folder not in sys.path:
                sys.path_importer_cache.pop(folder, None)


@contextmanager
def plugin_imports(folder: Path, *names: str) -> Iterator[None]:
    """In the block, let imports of the top-level modules `names`, and of those that they import from there, also
    look in `folder`, after all other places."""
    finder = _Finder([folder, *_sent], names)
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def find_plugin(name: str) -> ModuleSpec | None:
    """Return where `import_plugin` finds the top-level module `name`, which is not run; None where nowhere."""
    try:
        found = find_spec(name)
    except ValueError:  # a module that does not say where it is from
        return None
    return found or _look(name, [str(folder) for folder in (Path.cwd(), *_sent)])


def import_plugin(what: str, name: str) -> object:
    """Return what `module:Class` names, a `what` such as a score.

    Raises `PluginError` where the name has another form, or its module is not found, fails, or has no such
    class.
    """
    module = plugin_module(name)
    if module is None:
        raise PluginError(
            f"{what} {name!r} is not of the form module:Class, as in lookback:LookBack: name a class of a module"
        )
    found: ModuleType | None = None
    try:
        with plugin_imports(Path.cwd()):
            found = importlib.import_module(module)
        return getattr(found, name.rpartition(":")[2])
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _failed(what, name, error) from error
        raise PluginError(
            f"{what} {name!r} is not found: there is no module {module!r} in {str(Path.cwd())!r} nor on Python's "
            f"path; go to the folder it lies in, or put that into PYTHONPATH"
        ) from None
    except (Exception, SystemExit) as error:  # a user's module can fail in any way
        hidden = _hidden(module) if found is not None else None
        if hidden is not None:
            raise PluginError(
                f"{what} {name!r} is not found: an installed module of that name hides {hidden!r}; give your "
                f"file another name"
            ) from error
        raise _failed(what, name, error) from error


def _hidden(module: str) -> str | None:
    """Return the file in the current directory that an installed module stands for; None where there is none."""
    first = module.partition(".")[0]
    here = _look(first, [str(Path.cwd())])
    loaded = getattr(sys.modules[first], "__file__", None)
    return here.origin if here is not None and here.origin != loaded else None


def plugin_class(what: str, name: str, base: type[Base], choices: Iterable[str] = ()) -> type[Base]:
    """Return the class derived from `base` that `module:Class` names, a `what` such as a score.

    Raises `InputError` for a name without a colon, which is none of the `choices` there are, and `PluginError`
    for a class that cannot be imported or is another one.
    """
    if ":" not in name:
        raise unknown_choice(what, name, choices, other="module:Class")
    found = import_plugin(what, name)
    if not (isinstance(found, type) and issubclass(found, base)):
        where = ".".join(base.__module__.split(".")[:2])  # where it is exported
        raise PluginError(
            f"{what} {name!r} is not a class derived from {where}.{base.__name__}: derive it from that"
        )
    return found


def build_plugin(what: str, name: str, build: Callable[[], Built], sizes: str, takes: str) -> Built:
    """Return what `build` makes of a user's class; raises `PluginError`, with the sizes that it was given and
    what it is to take, where that fails in whatever way."""
    try:
        return build()
    except InputError:
        raise
    except Exception as error:
        raise PluginError(
            f"{what} {name!r} cannot be built for {sizes}: {describe_error(error)}; it takes {takes}"
        ) from error


def _failed(what: str, name: str, error: BaseException) -> PluginError:
    return PluginError(f"{what} {name!r} cannot be imported: {describe_error(error)}; mend its module")


def describe_error(error: BaseException, most: int = 300) -> str:
    """Say in one line what a user's code has raised."""
    return one_line(error, most)
