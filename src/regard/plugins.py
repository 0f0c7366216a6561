"""Classes of user code, referred to as `module:Class`.

A module is searched on Python's path first, then in the current directory, which is not on `sys.path`. While a
user module is imported, imports in this module also search its folder. An import inside a function runs later
and does not search this folder. Imports must therefore be at the top of the file.
"""

import ast
import hashlib
import importlib
import os
import re
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder, all_suffixes
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from regard.errors import PACKAGES, InputError, is_own, one_line, unknown_choice

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


_loaded: dict[Path, str] = {}  # Digests of the files of user code at the time when this process imported them
_loaded_files: dict[Path, list[Path]] = {}
"""The files that a file could import at that time. They change only if one of them changes."""


def code_files(file: Path) -> list[Path]:
    """Return a file of user code and the files that it can import, without running any of them.

    These are the modules of its folder and of other folders on Python's path that it names in an import or in a
    string, and the modules that those name. A package counts with all its modules. The standard library and
    installed packages do not count, and of a file in an installed package only this file. A name that the code
    puts together while it runs is not found.
    """
    file = file.resolve()
    if _is_installed(file):
        return [file]
    folder = file.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    paths = [Path(entry).resolve() for entry in sys.path if entry and not _is_installed(Path(entry))]
    found, pending = set[Path](), [file, *_package_files(folder, file)]
    entries: dict[Path, set[str]] = {}  # the names of modules and folders that a folder has
    packages: set[Path] = set()
    while pending:
        path = pending.pop()
        if path in found or _is_installed(path) or not os.path.isfile(path):  # noqa: PTH113 (raises no errors)
            continue
        found.add(path)
        status = path.stat()
        for name in _names(path, status.st_mtime_ns, status.st_size):
            top = name.partition(".")[0]
            for place in dict.fromkeys((path.parent, folder, *paths)):
                if place not in entries:
                    entries[place] = set()
                    with suppress(OSError):
                        entries[place] = {entry.name.partition(".")[0] for entry in os.scandir(place)}
                if name.endswith(".py"):
                    pending.append(place / name)
                elif place / top in packages:
                    break
                elif top in entries[place] and (modules := _module_files(place, name)):
                    if os.path.isfile(place / top / "__init__.py"):  # noqa: PTH113
                        packages.add(place / top)
                    pending += modules
                    break
    return sorted(found)


@cache
def _is_installed(path: Path) -> bool:
    """Return whether a path belongs to Regard, the standard library or an installed package."""
    own = [Path(__file__).parents[1] / package for package in PACKAGES]
    places = [*own, *map(Path, map(sysconfig.get_path, ("stdlib", "platstdlib")))]
    return bool({"site-packages", "dist-packages"} & {*path.parts}) or any(
        path.is_relative_to(place) for place in places
    )


def _package_files(folder: Path, file: Path) -> list[Path]:
    top = folder / file.relative_to(folder).parts[0]
    return [path for path in top.rglob("*") if path.suffix in (".py", ".so", ".pyd")] if top.is_dir() else []


def _module_files(folder: Path, name: str) -> list[Path]:
    """Return the files in `folder` that the import of a module can run: those of its package, or its own."""
    *parents, last = name.split(".")
    if os.path.isfile(package := folder / name.partition(".")[0] / "__init__.py"):  # noqa: PTH113
        return [] if _is_installed(package) else _package_files(folder, package)
    place = folder.joinpath(*parents, last)
    candidates = [place.with_name(place.name + suffix) for suffix in all_suffixes()] + [place / "__init__.py"]
    files = [path for path in candidates if os.path.isfile(path)]  # noqa: PTH113
    return files or (_module_files(folder, ".".join(parents)) if parents else [])


@cache
def _names(path: Path, changed: int, size: int) -> set[str]:
    """Return the names in a Python file that may be modules: those of imports, and strings with the form of a
    module's or a Python file's name. Its time of change (ns) and size are part of the key of the cache."""
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = [node.module] if node.module else []
            names |= {".".join([*base, alias.name]) for alias in node.names} | set(base)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            if re.fullmatch(r"\.*[^\W\d]\w*(\.[^\W\d]\w*)*", text) or (text.endswith(".py") and len(text) < 200):
                names.add(text if text.endswith(".py") else text.lstrip("."))
    return names


def _file_digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def code_digest(file: Path) -> str:
    file = file.resolve()
    digests = [f"{os.path.relpath(path, file.parent)}\0{_file_digest(path)}" for path in code_files(file)]
    return hashlib.sha256("\0".join(digests).encode(errors="surrogateescape")).hexdigest()


def check_loaded(file: Path, *, again: bool = False) -> None:
    """Raise `PluginError` if user code has changed since its import. `again`: the file itself is executed anew."""
    if again or file not in _loaded_files:
        _loaded_files[file] = code_files(file)
    for path in _loaded_files[file]:
        digest = _file_digest(path)
        if again and path == file:
            _loaded[path] = digest
        if _loaded.setdefault(path, digest) != digest:
            raise PluginError(f"{str(path)!r} has changed since this process imported it: start Python again")


class _Finder:
    """Import finder for modules in a folder. Handles only imports by user code and by this module."""

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        self.folder = str(folder)
        self.names = {__name__, *names}  # The top-level modules whose imports this finder handles

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
    locations. Modules that are imported from `folder` also search this folder."""
    finder = _Finder(folder, names)
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def find_plugin(name: str) -> ModuleSpec | None:
    """Return the location of a module that `import_plugin` would import, or None, without executing it."""
    try:
        spec = find_spec(name)
    except ValueError:  # a module without a __spec__
        return None
    return spec or _find_in_folder(name, str(Path.cwd()))


def import_plugin(what: str, name: str) -> object:
    """Import `module:Class`. `what`: kind of class for messages, such as "score". Raises `PluginError` if the name is
    not of the form `module:Class`, or if the module is missing, fails, or does not contain the class."""
    module_name = plugin_module(name)
    if module_name is None:
        raise PluginError(
            f"{what} {name!r} is not of the form module:Class, as in lookback:LookBack: name a class of a module"
        )
    module: ModuleType | None = None
    failure = f"{what} {name!r} cannot be imported"
    try:
        with plugin_imports(Path.cwd()):
            module = importlib.import_module(module_name)
        imported = getattr(module, name.rpartition(":")[2])
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise PluginError(f"{failure}: {describe_error(error)}; fix the module") from error
        raise PluginError(
            f"{what} {name!r} is not found: there is no module {module_name!r} in {str(Path.cwd())!r} nor on "
            f"Python's path; change to the module's folder, or add that folder to PYTHONPATH"
        ) from None
    except (Exception, SystemExit) as error:  # a user module can fail in any way
        if module is not None:
            top = module_name.partition(".")[0]
            spec = _find_in_folder(top, str(Path.cwd()))
            if spec is not None and spec.origin != getattr(sys.modules[top], "__file__", None):
                raise PluginError(
                    f"{what} {name!r} is not found: an installed module with that name hides {spec.origin!r}; "
                    f"rename your file"
                ) from error
        raise PluginError(f"{failure}: {describe_error(error)}; fix the module") from error
    if isinstance(file := getattr(module, "__file__", None), str):
        check_loaded(Path(file).resolve())
    return imported


def plugin_class(what: str, name: str, base: type[Base], choices: Iterable[str] = ()) -> type[Base]:
    """Import the class `module:Class`, a subclass of `base`. `what`: kind of class for messages. For a name
    without a colon, raises `InputError` with the built-in `choices`. Raises `PluginError` if the class cannot
    be imported or is not a subclass of `base`."""
    if ":" not in name:
        raise unknown_choice(what, name, choices, other="module:Class")
    imported = import_plugin(what, name)
    if not (isinstance(imported, type) and issubclass(imported, base)):
        parts = base.__module__.split(".")  # PyTorch documents torch.nn.Module without its module
        needed = ".".join([*(parts if is_own(base.__module__) else parts[:2]), base.__name__])
        raise PluginError(f"{what} {name!r} is not a class derived from {needed}: derive it from this class")
    return imported


def build_plugin(what: str, name: str, build: Callable[[], Built], sizes: str, takes: str) -> Built:
    """Return the result of `build`, which constructs a user's class. If `build` fails, raises `PluginError`
    with the sizes and the expected arguments."""
    try:
        return build()
    except InputError:
        raise
    except Exception as error:
        raise PluginError(
            f"{what} {name!r} cannot be built for {sizes}: {describe_error(error)}; its constructor must accept {takes}"
        ) from error


def describe_error(error: BaseException, most: int = 300) -> str:
    return one_line(error, most)
