"""Text that any picture can show: in a font of this machine that has its letters, or else as `�`."""

import unicodedata
from functools import lru_cache
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.font_manager import FontEntry, FontProperties, findfont, findSystemFonts, fontManager, get_font
from matplotlib.text import Text

UNSHOWN = "\ufffd"
"""Stands for a character that cannot be drawn."""
INVISIBLE = ("Cc", "Cs", "Cn", "Zl", "Zp")
"""Unicode's categories of what is no character to draw: control, half a pair, unassigned, and ends of lines."""
BLOCK = 256
"""Characters in a row that are of one script, more or less."""
UNLIKELY = ("bold", "italic", "oblique", "black", "light", "thin", "mono", "serif")
"""In the names of fonts that are only taken where there is no other."""

_found: dict[str, str] = {}
"""Fonts that had letters which the usual one has not: their files, and what matplotlib calls them."""
_unknown: set[int] = set()
"""Blocks of which no font had a letter that was asked for."""


def drawable(text: str) -> str:
    """Return a text as it can be drawn; dollar signs stay dollar signs, and begin no formula."""
    return "".join(map(_drawable, text))


def use_fonts(figure: Figure) -> None:
    """Let all texts of a figure take letters that the usual font has not from the fonts that have them."""
    if not _found:
        return
    families = [FontProperties().get_name(), *_found.values()]
    for text in figure.findobj(Text):
        text.set_fontfamily(families)


@lru_cache(4096)
def _drawable(character: str) -> str:
    if character == "$":
        return r"\$"
    if unicodedata.category(character) in INVISIBLE:
        return UNSHOWN
    usual = findfont(FontProperties())
    known = any(_has(file, character) for file in (usual, *_found))
    return character if known or _find_font(character) else UNSHOWN


def _find_font(character: str) -> bool:
    """Look for a font of this machine that has a character; whether there is one."""
    block = ord(character) // BLOCK
    if block in _unknown:
        return False
    for file in sorted(findSystemFonts(), key=lambda file: (_is_unlikely(file), file)):
        if _has(file, character):
            _found[file] = get_font(file).family_name
            # Whatever its weight: matplotlib would otherwise say that it has no normal one.
            fontManager.ttflist.append(FontEntry(fname=file, name=_found[file]))
            return True
    _unknown.add(block)
    return False


def _is_unlikely(file: str) -> bool:
    return any(word in Path(file).name.lower() for word in UNLIKELY)


def _has(file: str, character: str) -> bool:
    try:
        return bool(get_font(file).get_char_index(ord(character)))
    except (OSError, RuntimeError):  # one that FreeType cannot read, as some with coloured pictures
        return False
