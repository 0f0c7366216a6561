"""What the package's source says of itself: modules, their public names, signatures and docstrings.

Read with `ast`, without importing anything: the site is built without PyTorch, and a new room or module needs no
line here.
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
        """Its syntax tree."""
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @property
    def doc(self) -> str:
        """Its docstring."""
        return doc_of(self.tree)

    @cached_property
    def imports(self) -> dict[str, str]:
        """The names it takes from others, with their full names; those of `if TYPE_CHECKING` too."""
        found = [each for each in ast.walk(self.tree) if isinstance(each, ast.ImportFrom) and each.module]
        return {name.asname or name.name: f"{each.module}.{name.name}" for each in found for name in each.names}

    @cached_property
    def exported(self) -> list[str]:
        """The names in `__all__`."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and names_of(node) == ["__all__"]:
                return list(ast.literal_eval(node.value))
        return []

    @cached_property
    def members(self) -> dict[str, Named]:
        """What it defines for others, by name, in the order of the file; of overloads the function itself."""
        return dict(public(self.tree.body))


def modules_of(package: Path) -> dict[str, Module]:
    """Return all modules of a package by dotted name, without private ones."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if not any(part.startswith("_") for part in parts):
            found[".".join(parts)] = Module(".".join(parts), path)
    return found


def public(body: list[ast.stmt]) -> Iterator[tuple[str, Named]]:
    """Yield functions, classes and assignments with the names that they define, without private names."""
    for node in body:
        if isinstance(node, Named):
            yield from ((name, node) for name in names_of(node) if not name.startswith("_"))


def names_of(node: Named) -> list[str]:
    """Return the names that a node defines; several for `a, b = ...`, none for `a.b = ...`."""
    if isinstance(node, Function | ast.ClassDef):
        return [node.name]
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    return [part.id for part in parts if isinstance(part, ast.Name)]


def doc_of(node: ast.Module | ast.ClassDef | Function) -> str:
    """Return a docstring as Markdown, an empty one where there is none."""
    return _with_tags_shown(ast.get_docstring(node) or "")


def _with_tags_shown(text: str) -> str:
    """Escape what is written as HTML outside of code, such as `<unk>`, which would not be seen."""
    parts = re.split(r"(`+[^`]*`+|^ {4}.*$)", text, flags=re.MULTILINE)
    return "".join(
        part if place % 2 else re.sub(r"<(?=[A-Za-z/!])", r"\\<", part) for place, part in enumerate(parts)
    )


def attribute_docs(body: list[ast.stmt]) -> dict[str, str]:
    """Return the docstrings of attributes by name: the string right below each."""
    found = {}
    for node, below in pairwise(body):
        text = below.value if isinstance(below, ast.Expr) else None
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(text, ast.Constant):
            found |= dict.fromkeys(names_of(node), _with_tags_shown(inspect.cleandoc(str(text.value))))
    return found


class PublicNames:
    """Under which names users find things: `regard.train` rather than the module that happens to define it."""

    def __init__(self, modules: dict[str, Module]) -> None:
        self._modules = modules
        self._shown: dict[str, str] = {}
        offers = [(package, name) for package, module in modules.items() for name in module.exported]
        for package, name in sorted(offers, key=self._weight):
            self._shown[self.home(f"{package}.{name}")] = f"{package}.{name}"

    def _weight(self, offer: tuple[str, str]) -> tuple[int, bool]:
        """Order what packages offer: the outermost has the last word, and among rooms the one that it is from."""
        package, name = offer
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
        """Return the name under which a thing is documented."""
        home = self.home(name)
        return self._shown.get(home, home)

    def has(self, name: str) -> bool:
        """Return whether something is documented under a name that is a module's too."""
        return name in self._shown.values()

    def seen_from(self, module: Module, name: str) -> str | None:
        """Return what a bare name in a module stands for, or None where it is not this package's."""
        if name in module.members and not isinstance(module.members[name], ast.Assign | ast.AnnAssign):
            return self.shown(f"{module.name}.{name}")
        full = module.imports.get(name)
        return self.shown(full) if full and full.split(".")[0] == module.name.split(".")[0] else None
