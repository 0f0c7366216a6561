"""The API reference, written anew from the source before every build: a page for each room, and one for the names
that `import regard` gives.

The pages are Markdown in docs/reference/ (git-ignored). Docstrings are Markdown too, so they go in as they stand;
autodoc would read them as reStructuredText, in which a name between single backticks is no code and a block
indented by four no listing.
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from signatures import Annotations
from source import Function, Module, PublicNames, attribute_docs, doc_of, modules_of, public

LONGEST_VALUE = 100
"""Characters of a constant's value that is shown; a longer one is told by its docstring."""


def write_reference(package: Path, folder: Path) -> None:
    """Write all pages into a folder, those that changed only, and remove pages that are no more."""
    pages = reference(package)
    folder.mkdir(parents=True, exist_ok=True)
    for stale in set(folder.glob("*.md")) - {folder / f"{name}.md" for name in pages}:
        stale.unlink()
    for name, text in pages.items():
        page = folder / f"{name}.md"
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def reference(package: Path) -> dict[str, str]:
    """Return the text of each page by its name: `index`, the package's own, and one for each room."""
    modules = modules_of(package)
    names = PublicNames(modules)
    rooms: dict[str, list[Module]] = {}
    for name, module in modules.items():
        room = name.split(".")[1] if _in_room(module, package) else package.name
        rooms.setdefault(room, []).append(module)
    pages = {room: _page(found, names) for room, found in rooms.items()}
    return {"index": _index(package.name, rooms), **pages}


def _in_room(module: Module, package: Path) -> bool:
    return len(module.path.relative_to(package).parts) > 1


def _index(package: str, rooms: dict[str, list[Module]]) -> str:
    """List the rooms with the first lines of their docstrings."""
    rows = [
        f"| [{_dotted(package, room)}]({room}.md) | {_summary(found[0].doc)} |" for room, found in rooms.items()
    ]
    toctree = _directive("toctree", "", [":hidden:"], "\n".join(rooms))
    return "\n".join(
        [
            "# Reference\n",
            "Made from the docstrings. Letters in shapes: `B` batch, `T` time (`Tq` of queries, `Tk` of keys),",
            "`D` width, `H` heads, `S` seeds, `V` vocabulary. A mask is boolean: True means *may be attended*.\n",
            "| room | what it holds |\n| --- | --- |",
            *rows,
            "",
            toctree,
        ]
    )


def _dotted(package: str, room: str) -> str:
    return package if room == package else f"{package}.{room}"


def _summary(doc: str) -> str:
    """Return a docstring's first paragraph on one line, fit for a cell of a table."""
    return " ".join(doc.split("\n\n")[0].split()).replace("|", "\\|")


def _page(modules: list[Module], names: PublicNames) -> str:
    """Write a room: its docstring, the names it offers, and its modules."""
    room, *others = modules
    parts = [f"# {room.name}\n", _directive("py:module", room.name), room.doc, _offered(room, names)]
    parts += _members(room, names)
    for module in others:
        # A function that is imported under its module's name hides the module.
        hidden = [":no-index:"] if names.has(module.name) else []
        heading = [f"## {module.name}\n", _directive("py:module", module.name, hidden)]
        parts += [*heading, module.doc, *_members(module, names)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _offered(room: Module, names: PublicNames) -> str:
    """Link the names that a room, or the package, takes in from its modules to be imported from it."""
    links = [
        f"{{py:obj}}`{name} <{names.shown(f'{room.name}.{name}')}>`"
        for name in room.exported
        if not name.startswith("_") and names.home(f"{room.name}.{name}") != f"{room.name}.{name}"
    ]
    return f"To be imported from `{room.name}`: {', '.join(links)}." if links else ""


def _members(module: Module, names: PublicNames) -> Iterator[str]:
    """Write what a module defines for others."""
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
    starts = [each for each in node.body if isinstance(each, Function) and each.name == "__init__"]
    signature = write.signature(starts[-1], bound=True).partition(" -> ")[0] if starts else ""
    return _directive("py:class", name + signature, options, "\n\n".join(filter(None, content)))


def _bases(node: ast.ClassDef, write: Annotations) -> str:
    """Link what a class derives from, without parameters of types."""
    bases = [write.type(each.value if isinstance(each, ast.Subscript) else each) for each in node.bases]
    links = [f"{{py:obj}}`{base}`" for base in bases if base != "Generic"]
    return f"Bases: {', '.join(links)}" if links else ""


def _method(node: Function, write: Annotations) -> str:
    """Write a method or a property; of overloads nothing, as the function itself follows."""
    decorators = {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}
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
    """Write, as options, the type of a constant or a field and its value where that is short."""
    if isinstance(node, ast.AnnAssign):
        yield _option("type", write.type(node.annotation))
    several = isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name)
    value = "" if node.value is None or several else ast.unparse(node.value)
    if 0 < len(value) <= LONGEST_VALUE:
        yield _option("value", value)


def _option(name: str, value: str) -> str:
    """Write an option, in the quotes of YAML, as which options are read."""
    quoted = value.replace("'", "''")
    return f":{name}: '{quoted}'"


def _directive(kind: str, argument: str, options: Iterable[str] = (), content: str | None = None) -> str:
    """Write a directive, fenced by more backticks than anything within."""
    text = content or ""
    longest = max((len(run) for run in _backticks(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{{{kind}}} {argument}".rstrip(), *options, *(["", text] if text else []), fence])


def _backticks(text: str) -> Iterator[str]:
    """Yield the backticks with which lines begin."""
    for line in text.splitlines():
        stripped = line.lstrip()
        yield stripped[: len(stripped) - len(stripped.lstrip("`"))]
