"""Structure of the package: imports, names, and the text form of results."""

import ast
import inspect
import pkgutil
import pydoc
import re
import typing
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.errors import PACKAGES
from regard.result import Result

ROOT = Path(regard.__file__).parents[1]
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
}


@cache
def trees() -> dict[str, ast.Module]:
    """Return the parsed files. Parsing takes seconds, which only the worker that runs this file needs."""
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in FILES.items()}


@cache
def _exports(package: str) -> dict[str, str]:
    """Return the source module of each exported name of a package, including lazy exports."""
    found: dict[str, str] = {}
    for node in ast.walk(trees()[f"{package}.__init__"]):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {each.asname or each.name: node.module for each in node.names}
    return found


def _home(module: str, name: str) -> str:
    """Return the file that `from module import name` loads."""
    while f"{module}.__init__" in FILES:
        if f"{module}.{name}" in FILES:
            return f"{module}.{name}"
        exports = _exports(module)
        if name not in exports or exports[name] == module:
            return f"{module}.__init__"
        module = exports[name]
    return module


def _imports(name: str) -> Iterator[str]:
    """Yield the files that a file imports. The result includes imports at the top, in functions, for types
    only, and of whole packages."""
    packages: dict[str, str] = {}
    for node in ast.walk(trees()[name]):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("regard"):
            yield from (_home(str(node.module), each.name) for each in node.names)
            whole = {each.name: f"{node.module}.{each.name}" for each in node.names}
            packages |= {name: package for name, package in whole.items() if f"{package}.__init__" in FILES}
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in FILES)
    for node in ast.walk(trees()[name]):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in packages:
            yield _home(packages[node.value.id], node.attr)


@cache
def graph() -> dict[str, set[str]]:
    """Return the files that each file imports."""
    return {name: set(_imports(name)) - {name} for name in FILES if not name.endswith("__init__")}


def test_no_files_import_each_other_in_a_circle() -> None:
    """Imports form no cycles, including lazy imports and imports for types. `__init__` files only re-export names."""
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name in done or name not in graph():
            return
        for each in graph()[name]:
            visit(each, (*path, name))
        done.add(name)

    for name in graph():
        visit(name, ())
    assert len(done) > 100 and sum(map(len, graph().values())) > 400  # the search must cover the package


def test_no_file_name_occurs_in_three_packages() -> None:
    packages = defaultdict(set)
    for name in graph():
        _, *package, file = name.split(".")
        packages[file].add(".".join(package))
    assert {file: where for file, where in packages.items() if len(where) > 2} == {}


def test_no_name_has_two_meanings() -> None:
    """No two classes or types have the same name."""
    homes = defaultdict(set)
    for name, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].add(name)
    assert {each: where for each, where in homes.items() if len(where) > 1} == {}


@pytest.mark.parametrize("package", ["training", "server", "sweep", "cli"])
def test_no_isinstance_checks_of_settings_tasks_or_runs(package: str) -> None:
    checks = []
    assert f"regard.{package}.__init__" in trees()
    for name, tree in trees().items():
        if not name.startswith(f"regard.{package}."):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
                types = {each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name)}
                checks += [f"{name}: {each}" for each in types if each.endswith(("Training", "Task", "Run", "Config"))]
    own = {"regard.training.config: ModelConfig"}  # a user class, which is not a setting
    assert set(checks) - own == set()


def _lines(folder: str, pattern: str) -> int:
    files = [path for path in (ROOT.parent / folder).rglob(pattern) if path.is_file()]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


@pytest.mark.parametrize(
    ("folder", "pattern", "most"),
    [("src", "*.py", 71_736), ("src/regard", "*.py", 56_463), ("src", "*.js", 9_482), ("tests", "*.py", 52_321)],
)
def test_the_source_does_not_grow(folder: str, pattern: str, most: int) -> None:
    """A change that adds lines removes at least as many. Lower a number when the source is shorter."""
    assert _lines(folder, pattern) <= most


def _is_known(name: str) -> bool:
    """Whether a dotted name is a module, or a name or an annotated field in a module."""
    *home, last = name.split(".")
    try:
        pkgutil.resolve_name(name)
    except AttributeError:  # a field without a default
        return len(home) > 1 and last in getattr(pkgutil.resolve_name(".".join(home)), "__annotations__", {})
    except ImportError:
        return False
    return True


def test_names_and_files_in_texts_exist() -> None:
    """Renamed modules stay in docstrings and pages otherwise, where no checker reads them."""
    base = ROOT.parent
    pages = [base / "README.md", base / "CONTRIBUTING.md", *(base / "docs").rglob("*.md")]
    texts = [path for path in pages if "api" not in path.parts] + list(FILES.values()) + list(ROOT.rglob("*.js"))
    folders = (
        base,
        ROOT,
        *(ROOT / package for package in PACKAGES),
        ROOT / "regard/viz",
        ROOT / "regard/viz/js",
        base / "docs",
        base / "docs/dev",
    )
    wrong = set()
    for path in texts:
        text = path.read_text(encoding="utf-8")
        names = set(re.findall(r"`((?:regard|regard_lab|regard_course)(?:\.[A-Za-z_]\w*)+)(?:\(\))?`", text))
        files = set(re.findall(r"`((?:[a-z_]+/)+[a-z_0-9.-]+\.(?:py|js|md|toml))`", text))
        wrong |= {(path.name, name) for name in names if not _is_known(name)}
        wrong |= {(path.name, file) for file in files if not any((folder / file).is_file() for folder in folders)}
    assert wrong - {("language-tasks.md", "pydoc_data/topics.py"), ("teach.md", "tests/attention.py")} == set()


def _returned(hint: Any) -> Iterator[type]:
    """Yield Regard's classes in a type hint."""
    if isinstance(hint, type) and hint.__module__.startswith("regard"):
        yield hint
    for each in (typing.get_origin(hint), *typing.get_args(hint)):
        if each is not None:
            yield from _returned(each)


def _public() -> dict[str, Any]:
    found = {name: getattr(regard, name) for name in vars(regard)["NAMES"]}
    for name, value in list(found.items()):
        if inspect.isclass(value) and value.__module__.startswith("regard"):
            for method, function in inspect.getmembers(value, inspect.isfunction):
                if not method.startswith("_"):
                    found[f"{name}.{method}"] = function
    return found


def test_help_of_the_package_is_short() -> None:
    text = pydoc.plain(pydoc.render_doc(regard))
    assert text.count("\n") < 100 and {"train", "plot", "Run", "CountingConfig"} <= {*re.findall(r"\w+", text)}


def test_types_returned_by_public_functions_are_exported() -> None:
    exported = {getattr(regard, name) for name in vars(regard)["NAMES"]}
    # Many modules import these names only for type checkers.
    names = {name: getattr(regard, name) for name in vars(regard)["NAMES"]}
    missing = set()
    for name, value in _public().items():
        if not inspect.isfunction(value) or value.__module__.startswith("regard.models"):
            continue  # task configs inherit from model configs
        try:
            hint = typing.get_type_hints(value, localns=names).get("return")
        except NameError:  # a type that only type checkers import, such as a widget or a table
            continue
        missing |= {f"{name} returns {each.__name__}" for each in _returned(hint) if each not in exported}
    assert missing == set()


def test_results_print_themselves_in_the_same_way(trained: regard.AnswerRun, translator: regard.PairRun) -> None:
    results: list[Any] = [
        trained.test(samples=50),
        trained.attend("BCCCBAABACCCA"),
        trained.importance(samples=20),
        trained.examine(samples=4),
        translator.test(samples=5),
    ]
    with regard.record(trained.model) as records:
        trained.model(trained.task.parse("BCCCBAABACCCA"))
    results.append(regard.make_maps(records))
    import json

    from rich.console import Console

    console = Console(width=100, record=True, quiet=True)
    for each in results:
        assert isinstance(each, Result)
        assert str(each).strip() and "\n" not in repr(each) and len(repr(each)) < 200
        assert repr(each).startswith(f"<{type(each).__name__}: ")
        json.dumps(each.json(), allow_nan=False)
        console.print(each.table())
    assert all("\n" not in repr(each) for each in (trained, translator, records, records["cross"]))
    assert "QueryModel(" not in repr(trained)
