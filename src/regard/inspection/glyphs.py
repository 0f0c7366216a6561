"""Text that any picture can show: what has no glyph is shown as `�`."""

import unicodedata
from functools import lru_cache

from matplotlib.font_manager import FontProperties, findfont, get_font

UNSHOWN = "\ufffd"
"""Stands for a character that cannot be drawn."""
INVISIBLE = ("Cc", "Cs", "Cn", "Zl", "Zp")
"""Unicode's categories of what is no character to draw: control, half a pair, unassigned, and ends of lines."""


def drawable(text: str) -> str:
    """Return a text as it can be drawn; dollar signs stay dollar signs, and begin no formula."""
    return "".join(map(_drawable, text))


@lru_cache(4096)
def _drawable(character: str) -> str:
    if character == "$":
        return r"\$"
    if unicodedata.category(character) in INVISIBLE:
        return UNSHOWN
    font = get_font(findfont(FontProperties()))
    return character if font.get_char_index(ord(character)) else UNSHOWN
