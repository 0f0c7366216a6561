"""Read modules, public names, signatures and docstrings from the package's source.

The modules are parsed with `ast`, not imported, so the site builds without PyTorch.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef
Named = Function | ast.ClassDef | ast.Assign | ast.AnnAssign


@dataclass(frozen=True)
class Module:
    """A module: its dotted name and its file."""

    name: str
    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        """Return the syntax tree."""
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @property
    def doc(self) -> str:
        """Return the docstring."""
        return doc_of(self.tree)

    @cached_property
    def imports(self) -> dict[str, str]:
        """Return the full names of imported names, including those under `if TYPE_CHECKING`."""
        imports = [node for node in self._imports if node.module]
        return {name.asname or name.name: f"{node.module}.{name.name}" for node in imports for name in node.names}

    @cached_property
    def exported(self) -> list[str]:
        """Return the names that the module imports as themselves, as in `from package import name as name`."""
        return sorted(name.name for node in self._imports for name in node.names if name.asname == name.name)

    @cached_property
    def _imports(self) -> list[ast.ImportFrom]:
        stub = self.path.with_suffix(".pyi")  # a package with names that are imported on first use has a stub
        tree = ast.parse(stub.read_text(encoding="utf-8")) if stub.exists() else self.tree
        return [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]

    @cached_property
    def members(self) -> dict[str, Named]:
        """Return the public members by name, in file order. An implementation replaces its overloads."""
        return dict(public(self.tree.body))


def modules_of(source: Path) -> dict[str, Module]:
    """Return the public modules of all packages in a folder by dotted name."""
    modules = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if not any(part.startswith("_") for part in parts):
            modules[".".join(parts)] = Module(".".join(parts), path)
    return modules


def public(body: list[ast.stmt]) -> Iterator[tuple[str, Named]]:
    """Yield public functions, classes and assignments with the names that they define, also those that only type
    checkers see."""
    for node in body:
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            yield from public([inner for inner in node.body if isinstance(inner, ast.ClassDef)])
        if isinstance(node, Named):
            yield from ((name, node) for name in names_of(node) if not name.startswith("_"))


def names_of(node: Named) -> list[str]:
    """Return the names that a node defines: two for `a, b = ...`, none for `a.b = ...`."""
    if isinstance(node, Function | ast.ClassDef):
        return [node.name]
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    return [part.id for part in parts if isinstance(part, ast.Name)]


def doc_of(node: ast.Module | ast.ClassDef | Function) -> str:
    """Return a docstring as Markdown, or an empty string."""
    return _with_tags_shown(ast.get_docstring(node) or "")


def _with_tags_shown(text: str) -> str:
    """Escape HTML tags outside code, such as `<unk>`, which a browser would hide."""
    parts = re.split(r"(`+[^`]*`+|^ {4}.*$)", text, flags=re.MULTILINE)
    return "".join(part if place % 2 else re.sub(r"<(?=[A-Za-z/!])", r"\\<", part) for place, part in enumerate(parts))


def attribute_docs(body: list[ast.stmt]) -> dict[str, str]:
    """Return the docstrings of attributes by name: the string directly below each attribute."""
    docs = {}
    for node, below in pairwise(body):
        text = below.value if isinstance(below, ast.Expr) else None
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(text, ast.Constant):
            docs |= dict.fromkeys(names_of(node), _with_tags_shown(inspect.cleandoc(str(text.value))))
    return docs


class PublicNames:
    """The names under which users import objects: `regard.train` instead of its module."""

    def __init__(self, modules: dict[str, Module]) -> None:
        self._modules = modules
        self._shown: dict[str, str] = {}
        exports = [(package, name) for package, module in modules.items() for name in module.exported]
        for package, name in sorted(exports, key=self._weight):
            self._shown[self.home(f"{package}.{name}")] = f"{package}.{name}"

    def _weight(self, export: tuple[str, str]) -> tuple[int, bool]:
        """Order exports by priority: the outermost package comes last, then the package that defines the name."""
        package, name = export
        return -package.count("."), self.home(f"{package}.{name}").startswith(f"{package}.")

    def home(self, name: str) -> str:
        """Follow a name through imports to the module that defines it."""
        module, _, last = name.rpartition(".")
        while module in self._modules and last not in self._modules[module].members:
            further = self._modules[module].imports.get(last)
            if further is None or further == f"{module}.{last}":
                break
            module, _, last = further.rpartition(".")
        return f"{module}.{last}"

    def shown(self, name: str) -> str:
        """Return the name under which an object is documented."""
        home = self.home(name)
        return self._shown.get(home, home)

    def has(self, name: str) -> bool:
        """Return whether an object or a module is documented under this name."""
        return name in self._shown.values()

    def seen_from(self, module: Module, name: str) -> str | None:
        """Return the full name of a bare name in a module, or None if it is not from this package."""
        if name in module.members and not isinstance(module.members[name], ast.Assign | ast.AnnAssign):
            return self.shown(f"{module.name}.{name}")
        full = module.imports.get(name)
        return self.shown(full) if full and full.partition(".")[0] in self._modules else None
