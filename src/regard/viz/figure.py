"""Matplotlib figures: colors, fonts that cover the text, and reproducible files."""

import io
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontEntry, FontProperties, findfont, findSystemFonts, fontManager, get_font
from matplotlib.text import Text

BLUES = (
    *("#ffffff", "#e1ecf8", "#c5daf1", "#9dc3e9", "#72a8dd"),
    *("#4a8ccc", "#3172b8", "#22589d", "#1c437d"),
)
"""Colors from zero to the largest weight, as on a light page (`js/colours.js`)."""
NOT_FINITE = (194, 24, 91)
"""Magenta, the color of a weight that is not finite, as in `js/colours.js`."""
DPI = 160
REPLACEMENT = "\ufffd"  # drawn for a character without a glyph
INVISIBLE = ("Cc", "Cs", "Cn", "Zl", "Zp")
"""Unicode categories without glyphs: control, surrogate, unassigned, line and paragraph separators."""
BLOCK = 256  # consecutive characters that mostly belong to one script
LAST_CHOICE = ("bold", "italic", "oblique", "black", "light", "thin", "mono", "serif")
"""Words in the file names of fallback fonts, which are used only if all other fonts lack the character."""
# At matplotlib's default level, compression takes half of the time for a large picture; files with level 2 are
# only slightly larger.
SAVE_OPTIONS: dict[str, Any] = {"png": {"pil_kwargs": {"compress_level": 2}}}

_fallback_fonts: dict[str, str] = {}  # file and matplotlib's name of fonts that complement the default font
_missing_blocks: set[int] = set()  # blocks for which no font had the wanted character


def shades(count: int) -> list[tuple[float, float, float]]:
    """Return `count` evenly spaced colors (red, green, blue, 0 to 1) from zero to the largest weight.

    >>> shades(2)[0]
    (1.0, 1.0, 1.0)
    """
    stops = [tuple(int(stop[start : start + 2], 16) / 255 for start in (1, 3, 5)) for stop in BLUES]
    colours = []
    for index in range(count):
        position = index / max(count - 1, 1) * (len(stops) - 1)
        low = min(int(position), len(stops) - 2)
        channels = zip(stops[low], stops[low + 1], strict=True)
        red, green, blue = (start + (position - low) * (end - start) for start, end in channels)
        colours.append((red, green, blue))
    return colours


COLOURS = ListedColormap(shades(256), name="regard").with_extremes(bad="#{:02x}{:02x}{:02x}".format(*NOT_FINITE))
"""Color map of weights. The order of its colors is preserved in grayscale and for color-blind readers."""


def drawable(text: str) -> str:
    """Return text that matplotlib can draw: characters without a glyph become `�`, dollar signs are escaped."""
    return "".join(map(_drawable_character, text))


@lru_cache(4096)
def _drawable_character(character: str) -> str:
    if character == "$":
        return r"\$"
    if unicodedata.category(character) in INVISIBLE:
        return REPLACEMENT
    default = findfont(FontProperties())
    known = any(_has_glyph(file, character) for file in (default, *_fallback_fonts))
    return character if known or _find_font(character) else REPLACEMENT


def _find_font(character: str) -> bool:
    """Register a system font that contains `character`; return whether such a font exists."""
    block = ord(character) // BLOCK
    if block in _missing_blocks:
        return False
    for file in sorted(findSystemFonts(), key=lambda file: (_is_last_choice(file), file)):
        if _has_glyph(file, character):
            _fallback_fonts[file] = get_font(file).family_name
            # Set the default weight, because matplotlib would warn about a missing normal weight otherwise.
            fontManager.ttflist.append(FontEntry(fname=file, name=_fallback_fonts[file]))
            return True
    _missing_blocks.add(block)
    return False


def _is_last_choice(file: str) -> bool:
    return any(word in Path(file).name.lower() for word in LAST_CHOICE)


def _has_glyph(file: str, character: str) -> bool:
    try:
        return bool(get_font(file).get_char_index(ord(character)))
    except (OSError, RuntimeError):  # FreeType cannot read some fonts with colored glyphs
        return False


def figure_bytes(
    figure: Figure, format: str, metadata: Mapping[str, str] | None = None, *, dpi: int | None = DPI
) -> bytes:
    """Return a figure as the bytes of a file; `format`: png, svg or pdf.

    The file contains no date and no random identifiers, so equal figures result in equal files. The file has
    the size of the figure and contains its fonts: as TrueType in a PDF (journals refuse Type 3), as outlines in
    an SVG. `metadata` is written as the description of the file, or the subject of a PDF. `dpi`: pixels per
    inch of a PNG; None: the setting of the style.
    """
    file = io.BytesIO()
    if _fallback_fonts:
        families = [FontProperties().get_name(), *_fallback_fonts.values()]
        for text in figure.findobj(Text):
            text.set_fontfamily(families)
    fields: dict[str, Any] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[format]
    if metadata:
        name = "Subject" if format == "pdf" else "Description"
        lines = "\n".join(f"{key}: {' '.join(value.split())}" for key, value in metadata.items())
        fields[name] = "".join(character for character in lines if character == "\n" or character.isprintable())
    with rc_context({"svg.hashsalt": "regard", "pdf.fonttype": 42, "svg.fonttype": "path", "savefig.bbox": None}):
        figure.savefig(file, format=format, dpi=dpi, metadata=fields, **SAVE_OPTIONS.get(format, {}))
    return file.getvalue()
