"""Self-contained HTML pages of attention maps, which open offline.

A page is a single file, so the JavaScript modules are bundled into one script. Each module follows the modules
that it imports, and its imports and exports are removed, except for the exports of the entry module. Bundling
requires that all top-level names are unique across modules, and that imports and exports have the simple form
that `IMPORT` and `EXPORT` describe.
"""

import base64
import hashlib
import html
import posixpath
import re
import unicodedata
from collections.abc import Callable, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from regard.io.writing import write_file
from regard.viz.maps import Map
from regard.viz.serialization import view_json

VIEW = files("regard.viz") / "js"
ENTRY = "entry.js"
TITLE_LENGTH = 60  # characters of the input in a title

IMPORT = re.compile(r'^import \{\s*\w+(?:,\s*\w+)*,?\s*\} from "(\.{1,2}/[\w./-]+\.js)";\n', re.MULTILINE)
"""`import { first, second } from "./file.js";`, on one line or several."""
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const)\b)", re.MULTILINE)
DEFAULT_EXPORT = re.compile(r"^export default ", re.MULTILINE)
DEFINITION = re.compile(r"^(?:export )?(?:async )?(?:function\*?|class|const|let|var) (\w+)", re.MULTILINE)
"""A definition at the beginning of a line, that is, at the top level of a module."""
COMMENT = re.compile(r"^[ \t]*(?://.*|/\*\*(?:[^*]|\*(?!/))*\*/)\n|^\n", re.MULTILINE)
"""Comments on separate lines, and empty lines: removing them makes stored pages smaller."""
UNSUPPORTED = re.compile(r"^(?:(?:import|export)\b|(?:const|let|var) \W).*", re.MULTILINE)
"""Unsupported forms of imports and exports, and definitions of several names at once."""


def page(maps: Sequence[Map], **options: Any) -> str:
    """Return a page that shows `maps`, with a choice of input, layer and head; `options` as in `view_json`."""
    template, code = (VIEW / "page.html").read_text(encoding="utf-8"), bundle()
    script = template.partition('<script type="module">')[2].partition("</script>")[0].replace("/*VIEW*/", code)
    name = html.escape(f"{maps[0].task}: {_title(maps[0].input)}" if maps else "nothing")
    # If "<" is escaped, the text of an input cannot end the script element.
    data = view_json(maps, packed=True, **options).replace("<", "\\u003c")
    # The content security policy allows only this script, by its hash, and no network access.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {"VIEW": code, "DIGEST": digest, "DATA": data, "TITLE": f"{name} · Regard", "NAME": name}
    return re.sub(r"/\*([A-Z]+)\*/", lambda match: parts[match[1]], template)


def _title(text: str) -> str:
    """Shorten a text, and show the code points of characters that are invisible or change direction."""
    hidden = ("Cc", "Cf", "Zl", "Zp")
    text = "".join(
        f"[U+{ord(character):04X}]" if unicodedata.category(character) in hidden else character
        for character in text[: TITLE_LENGTH + 1]
    )
    return text if len(text) <= TITLE_LENGTH else f"{text[: TITLE_LENGTH - 1]}…"


def write_page(path: str | Path, maps: Sequence[Map], **options: Any) -> Path:
    """Write the page of `maps` to a file; raises `MachineError` if it cannot be written."""
    write_file(Path(path), page(maps, **options).encode())
    return Path(path)


def modules() -> list[str]:
    return sorted(file.name for file in VIEW.iterdir() if file.name.endswith(".js"))


def bundle(folder: Traversable = VIEW, entry: str = ENTRY) -> str:
    return bundle_modules(folder.joinpath, entry)


def bundle_modules(find: Callable[[str], Traversable], entry: str) -> str:
    """Return the module `entry` and its imports as the text of one module with the exports of `entry`.

    `find` returns the file of a module, by its path relative to the common folder. Raises `ValueError` for
    circular imports, a name defined twice, and unsupported imports or exports.
    """
    ordered: dict[str, str] = {}
    _collect(find, entry, (), ordered)
    _check_names(ordered)
    return "\n".join(_strip(name, text, keep_exports=name == entry) for name, text in ordered.items())


def _collect(
    find: Callable[[str], Traversable], name: str, importers: tuple[str, ...], ordered: dict[str, str]
) -> None:
    """Add a module to `ordered` after its imports; `importers`: the chain of modules that import it."""
    if name in importers:
        raise ValueError(f"modules import each other: {' > '.join((*importers, name))}")
    if name in ordered:
        return
    text = find(name).read_text(encoding="utf-8")
    for imported in IMPORT.findall(text):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(name), imported))
        _collect(find, path, (*importers, name), ordered)
    ordered[name] = text


def _check_names(texts: dict[str, str]) -> None:
    """Raise `ValueError` if two modules define the same name."""
    defined: dict[str, str] = {}
    for module, text in texts.items():
        for name in DEFINITION.findall(text):
            if name in defined:
                raise ValueError(f"{defined[name]} and {module} both define {name}: rename one of them")
            defined[name] = module


def _strip(module: str, text: str, *, keep_exports: bool) -> str:
    """Return the text of a module without imports and, unless `keep_exports`, without exports."""
    text = COMMENT.sub("", IMPORT.sub("", text))
    bare = EXPORT.sub("", text)
    if match := UNSUPPORTED.search(DEFAULT_EXPORT.sub("", bare) if keep_exports else bare):
        raise ValueError(f"{module} cannot be bundled: {match[0]!r} has an unsupported form")
    return text if keep_exports else bare
