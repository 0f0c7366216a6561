"""The choice of explanation methods: names of Regard's methods, and methods of a user."""

import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import InputError, unknown_choice
from regard.interpret.attribution.explainers import library_method
from regard.interpret.attribution.methods import METHODS
from regard.io import is_file
from regard.plugins import PluginError, check_loaded, code_digest, describe_error, import_plugin, plugin_imports
from regard.version import __version__

ORACLE, RANDOM = "oracle", "random"
"""Two rankings of the bench itself: the truth, and chance."""
ALL = "all"
Choice = str | Callable[[Any], Any]


class ChosenMethod(NamedTuple):
    """One method of a bench."""

    name: str
    text: str | None  # the choice as text, from which another process loads the method; None: a Python object
    method: Choice  # as `regard.attribute` takes it
    digest: str  # of the version of Regard and of the method's source code


def choose_methods(choices: Choice | Sequence[Choice] = ALL) -> list[ChosenMethod]:
    """Return the chosen methods, after the oracle and the random ranking, each once.

    A choice is "all", a name, several names separated by commas, a method of another library such as
    `captum:Occlusion`, a Python file, `module:function`, or a function. All public functions that a file defines
    are methods. A file or a module is imported only because the choice names it. Raises `InputError` for an
    unknown name and for code that fails.
    """
    texts: list[Choice] = [ORACLE, RANDOM]
    for choice in [choices] if isinstance(choices, str) or callable(choices) else choices:
        names = choice.split(",") if isinstance(choice, str) else [choice]
        texts += [name for part in names for name in (METHODS if part == ALL else [part])]
    chosen = [method for text in texts for method in _load(text)]
    names_seen: dict[str, ChosenMethod] = {}
    for method in chosen:
        if names_seen.setdefault(method.name, method).method is not method.method:
            raise InputError(f"two methods have the name {method.name!r}: rename one of the functions")
    return list(names_seen.values())


def reload_method(text: str, name: str) -> ChosenMethod:
    return next(method for method in _load(text) if method.name == name)


def _load(choice: Choice) -> list[ChosenMethod]:
    if not isinstance(choice, str):
        return [ChosenMethod(getattr(choice, "__name__", repr(choice)), None, choice, "")]
    if choice in (ORACLE, RANDOM):
        return [ChosenMethod(choice, choice, choice, __version__)]
    if choice in METHODS:
        return [ChosenMethod(choice, choice, choice, _source_digest(*METHODS[choice].functions.values()))]
    if choice.endswith(".py"):
        path = Path(choice).resolve()
        functions, digest = _load_file(path), f"{__version__} {code_digest(path)}"
        check_loaded(path)  # the process may have loaded the file long ago
    elif library_method(choice):
        return [ChosenMethod(choice, choice, choice, _source_digest(library_method))]
    elif ":" in choice:
        function = import_plugin("explanation method", choice)
        if not callable(function):
            raise PluginError(f"explanation method {choice!r} is not a function: name a function of the module")
        functions, digest = [function], _source_digest(function)
    else:
        known = (*METHODS, ORACLE, RANDOM)
        raise unknown_choice("explanation method", choice, known, other="a Python file or module:function")
    return [ChosenMethod(function.__name__, choice, function, digest) for function in functions]


@cache
def _load_file(path: Path) -> list[Callable[..., Any]]:
    """Execute a file, once in a process, and return its public functions."""
    if not is_file(path):
        raise PluginError(f"file {str(path)!r} of explanation methods does not exist: give the path of a Python file")
    spec = importlib.util.spec_from_file_location(f"regard_methods_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where `inspect.getsource` looks for the file
    try:
        with plugin_imports(path.parent, spec.name):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a user's file can fail in any way
        raise PluginError(f"file {str(path)!r} failed: {describe_error(error)}; fix the file") from error
    functions: list[Callable[..., Any]] = [
        value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    ]
    if not functions:
        raise PluginError(f"file {str(path)!r} defines no public function: define one that takes a trial")
    return functions


def _source_digest(*functions: Callable[..., Any]) -> str:
    files = sorted({inspect.getfile(inspect.unwrap(function)) for function in functions})
    return " ".join([__version__, *(code_digest(Path(file)) for file in files)])
