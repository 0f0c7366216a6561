"""The view's modules as one script, for a notebook and for a page of its own, which have no place for files.

Each module follows those that it imports, and loses its imports and exports; only the last one, which is the
entry, keeps its exports. That is right as long as no two modules define the same name, and imports and exports
have the plain form that `IMPORT` and `EXPORT` describe: `bundle` raises `ValueError` where they do not.
"""

import re
from importlib.resources import files
from importlib.resources.abc import Traversable

VIEW = files("regard.viz") / "js"
ENTRY = "entry.js"

IMPORT = re.compile(r'^import \{\s*\w+(?:,\s*\w+)*,?\s*\} from "\./([\w-]+\.js)";\n', re.MULTILINE)
"""`import { name, other } from "./file.js";`, on one line or several."""
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const)\b)", re.MULTILINE)
"""`export` before what is defined."""
DEFAULT = re.compile(r"^export default ", re.MULTILINE)
"""Only of the entry."""
DEFINITION = re.compile(r"^(?:export )?(?:async )?(?:function\*?|class|const|let|var) (\w+)", re.MULTILINE)
"""At the beginning of a line, where only a module's own definitions are."""
OTHER = re.compile(r"^(?:(?:import|export)\b|(?:const|let|var) \W).*", re.MULTILINE)
"""Imports and exports of other forms, and several names in one definition."""


def modules() -> list[str]:
    """Return the names of the view's modules."""
    return sorted(each.name for each in VIEW.iterdir() if each.name.endswith(".js"))


def bundle(folder: Traversable = VIEW, entry: str = ENTRY) -> str:
    """Return the module `entry` and all that it needs as the text of one module, with the exports of `entry`."""
    ordered: dict[str, str] = {}
    _gather(folder, entry, (), ordered)
    _check_names(ordered)
    return "\n".join(_joined(name, text, keep=name == entry) for name, text in ordered.items())


def _gather(folder: Traversable, name: str, above: tuple[str, ...], ordered: dict[str, str]) -> None:
    """Add a module to `ordered`, after those that it imports; `above`: those that are importing it."""
    if name in above:
        raise ValueError(f"modules import each other: {' > '.join((*above, name))}")
    if name in ordered:
        return
    text = (folder / name).read_text(encoding="utf-8")
    for other in IMPORT.findall(text):
        _gather(folder, other, (*above, name), ordered)
    ordered[name] = text


def _check_names(texts: dict[str, str]) -> None:
    """Raise `ValueError` where two modules define the same name."""
    defined: dict[str, str] = {}
    for module, text in texts.items():
        for name in DEFINITION.findall(text):
            if name in defined:
                raise ValueError(f"{defined[name]} and {module} both define {name}: give one another name")
            defined[name] = module


def _joined(module: str, text: str, *, keep: bool) -> str:
    """Return a module's text without imports and, unless they are to be kept, exports.

    Raises `ValueError` for forms that cannot be joined.
    """
    text = IMPORT.sub("", text)
    bare = EXPORT.sub("", text)
    if found := OTHER.search(DEFAULT.sub("", bare) if keep else bare):
        raise ValueError(f"{module} cannot be joined with others: {found[0]!r} has another form")
    return text if keep else bare
