"""Generate the API reference from the source: a page per package and subpackage.

The pages are Markdown in docs/reference/api/ (git-ignored). Docstrings are also Markdown, so they are copied
unchanged. Autodoc would read them as reStructuredText, where single backticks and blocks indented by four are
not code.
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from signatures import Annotations
from source import Function, Module, PublicNames, attribute_docs, doc_of, modules_of, public

LONGEST_VALUE = 100
"""Maximum length of the displayed value of a constant."""


def write_reference(source: Path, folder: Path) -> None:
    """Write changed pages to a folder, and remove outdated pages."""
    pages = reference(source)
    folder.mkdir(parents=True, exist_ok=True)
    for stale in set(folder.glob("*.md")) - {folder / f"{name}.md" for name in pages}:
        stale.unlink()
    for name, text in pages.items():
        page = folder / f"{name}.md"
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def reference(source: Path) -> dict[str, str]:
    """Return the text of each page by name: `index`, the packages, and their subpackages."""
    modules = modules_of(source)
    names = PublicNames(modules)
    subpackages: dict[str, list[Module]] = {}
    for module in modules.values():
        parts = module.path.relative_to(source).parts
        subpackages.setdefault(".".join(parts[: min(len(parts) - 1, 2)]), []).append(module)
    pages = {subpackage: _page(members, names) for subpackage, members in subpackages.items()}
    return {"index": _index(subpackages), **pages}


def _index(subpackages: dict[str, list[Module]]) -> str:
    """List the subpackages with the first lines of their docstrings."""
    rows = [f"| [{name}]({name}.md) | {_summary(modules[0].doc)} |" for name, modules in subpackages.items()]
    toctree = _directive("toctree", "", [":hidden:"], "\n".join(subpackages))
    return "\n".join(
        [
            "# Python API\n",
            "Generated from the docstrings. Letters in shapes: `B` batch, `T` time (`Tq` of queries,",
            "`Tk` of keys), `D` width, `H` heads, `S` seeds, `V` vocabulary. A mask is boolean:",
            "True means *may attend*.\n",
            "| package | contents |\n| --- | --- |",
            *rows,
            "",
            toctree,
        ]
    )


def _summary(doc: str) -> str:
    """Return a docstring's first paragraph on one line, for a table cell."""
    return " ".join(doc.split("\n\n")[0].split()).replace("|", "\\|")


def _page(modules: list[Module], names: PublicNames) -> str:
    """Write a subpackage: its docstring, its exported names, and its modules."""
    subpackage, *others = modules
    hidden = [":no-index:"] if names.has(subpackage.name) else []
    parts = [f"# {subpackage.name}\n", _directive("py:module", subpackage.name, hidden), subpackage.doc]
    parts += [_exports(subpackage, names), *_members(subpackage, names)]
    for module in others:
        # A function that is imported under its module's name hides the module.
        hidden = [":no-index:"] if names.has(module.name) else []
        heading = [f"## {module.name}\n", _directive("py:module", module.name, hidden)]
        parts += [*heading, module.doc, *_members(module, names)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _exports(subpackage: Module, names: PublicNames) -> str:
    """Link the names that a package exports from its modules."""
    links = [
        f"{{py:obj}}`{name} <{names.shown(f'{subpackage.name}.{name}')}>`"
        for name in subpackage.exported
        if not name.startswith("_") and names.home(f"{subpackage.name}.{name}") != f"{subpackage.name}.{name}"
    ]
    return f"Import from `{subpackage.name}`: {', '.join(links)}." if links else ""


def _members(module: Module, names: PublicNames) -> Iterator[str]:
    """Write the public members of a module."""
    write = Annotations(module, names)
    docs = attribute_docs(module.tree.body)
    for name, node in module.members.items():
        shown = names.shown(f"{module.name}.{name}")
        place, _, as_named = shown.rpartition(".")
        options = [f":module: {place}"]
        if shown != f"{module.name}.{name}":
            options.append(f":canonical: {module.name}.{name}")
        if isinstance(node, ast.ClassDef):
            yield _class(node, as_named, options, write)
        elif isinstance(node, Function):
            yield _directive("py:function", as_named + write.signature(node), options, doc_of(node))
        elif name in docs or name in module.exported or shown != f"{module.name}.{name}":
            yield _directive("py:data", as_named, [*options, *_value(node, write)], docs.get(name))


def _class(node: ast.ClassDef, name: str, options: list[str], write: Annotations) -> str:
    """Write a class with its bases, fields, properties and methods."""
    content = [_bases(node, write), doc_of(node)]
    docs = attribute_docs(node.body)
    for member, inner in public(node.body):
        if isinstance(inner, Function):
            content.append(_method(inner, write))
        elif isinstance(inner, ast.AnnAssign) or (isinstance(inner, ast.Assign) and member in docs):
            content.append(_directive("py:attribute", member, _value(inner, write), docs.get(member)))
    constructors = [item for item in node.body if isinstance(item, Function) and item.name == "__init__"]
    signature = write.signature(constructors[-1], bound=True).partition(" -> ")[0] if constructors else ""
    return _directive("py:class", name + signature, options, "\n\n".join(filter(None, content)))


def _bases(node: ast.ClassDef, write: Annotations) -> str:
    """Link the base classes, without type parameters."""
    bases = [write.type(base.value if isinstance(base, ast.Subscript) else base) for base in node.bases]
    links = [f"{{py:obj}}`{base}`" for base in bases if base != "Generic"]
    return f"Bases: {', '.join(links)}" if links else ""


def _method(node: Function, write: Annotations) -> str:
    """Write a method or a property. Overloads are skipped, because the implementation follows them."""
    decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    if decorators & {"overload", "setter", "deleter"}:
        return ""
    doc = doc_of(node)
    if decorators & {"property", "cached_property"}:
        options = [] if node.returns is None else [_option("type", write.type(node.returns))]
        return _directive("py:property", node.name, options, doc)
    kinds = {"staticmethod", "classmethod", "abstractmethod"} & decorators
    signature = write.signature(node, bound="staticmethod" not in kinds)
    return _directive("py:method", node.name + signature, [f":{kind}:" for kind in sorted(kinds)], doc)


def _value(node: ast.Assign | ast.AnnAssign, write: Annotations) -> Iterator[str]:
    """Write the type of a constant or field as an option, and its value if it is short."""
    if isinstance(node, ast.AnnAssign):
        yield _option("type", write.type(node.annotation))
    several = isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name)
    value = "" if node.value is None or several else ast.unparse(node.value)
    if 0 < len(value) <= LONGEST_VALUE:
        yield _option("value", value)


def _option(name: str, value: str) -> str:
    """Write an option in YAML quotes."""
    quoted = value.replace("'", "''")
    return f":{name}: '{quoted}'"


def _directive(kind: str, argument: str, options: Iterable[str] = (), content: str | None = None) -> str:
    """Write a directive, with a longer fence than any in its content."""
    text = content or ""
    longest = max((len(run) for run in _backticks(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{{{kind}}} {argument}".rstrip(), *options, *(["", text] if text else []), fence])


def _backticks(text: str) -> Iterator[str]:
    """Yield the backticks at the beginning of lines."""
    for line in text.splitlines():
        stripped = line.lstrip()
        yield stripped[: len(stripped) - len(stripped.lstrip("`"))]
