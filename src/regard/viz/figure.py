"""Parts of all figures: colors, the style for papers, fonts for all text, labels that fit, and reproducible files."""

import io
import logging
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import rc_context, rc_params_from_file, rcParams
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontEntry, FontProperties, findfont, findSystemFonts, fontManager, get_font
from matplotlib.text import Text
from rich.cells import cell_len, set_cell_size

from regard.errors import InputError
from regard.progress import print_status
from regard.viz.maps import shown_label

SHADES = (*("#ffffff", "#eceefc", "#dadef9", "#bdc3f4", "#9ba0ec"), *("#7b7ae2", "#6056d2", "#4b39bc", "#38249b"))
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


BAD = "#{:02x}{:02x}{:02x}".format(*NOT_FINITE)
COLOURS = LinearSegmentedColormap.from_list("regard", SHADES).with_extremes(bad=BAD)
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
    last = {file: any(word in Path(file).name.lower() for word in LAST_CHOICE) for file in findSystemFonts()}
    for file in sorted(last, key=lambda file: (last[file], file)):
        if _has_glyph(file, character):
            _fallback_fonts[file] = get_font(file).family_name
            # Set the default weight, because matplotlib would warn about a missing normal weight otherwise.
            fontManager.ttflist.append(FontEntry(fname=file, name=_fallback_fonts[file]))
            return True
    _missing_blocks.add(block)
    print_status(f"no font here has {character!r}: figures show a box instead (.html pages do not)", show=True)
    return False


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


def label_interval(count: int, side: float, spacing: float) -> int:
    return max(int(np.ceil(count * spacing / side - 1e-6)), 1)


def short_label(label: str, length: int) -> str:
    label = shown_label(label)
    return drawable(label if cell_len(label) <= length else f"{set_cell_size(label, length - 1)}…")


def new_figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def letter_size() -> tuple[float, float]:
    points = FontProperties(size=rcParams["xtick.labelsize"]).get_size_in_points()
    return points * 0.6 / 72, points * 1.2 / 72


def weight_colours() -> Colormap:
    """Return the color map of the style, with magenta for weights that are not finite."""
    colours: Colormap = matplotlib.colormaps[rcParams["image.cmap"]]
    red, green, blue = NOT_FINITE
    return colours.with_extremes(bad=(red / 255, green / 255, blue / 255))


SHEET = Path(__file__).with_name("paper.mplstyle")
COLUMN, PAGE_WIDTH = 3.3, 6.9
"""Width of one column and of both columns of a two-column page, in inches."""
WIDTHS = (COLUMN, PAGE_WIDTH)
DISPLAY = ("backend", "interactive", "toolbar", "tk.", "webagg.", "savefig.", "figure.")
"""Prefixes of rcParams that describe the display, not the style. A notebook sets some of these rcParams."""


@contextmanager
def figure_style(style: str | Path | None = None) -> Iterator[None]:
    """Apply `paper.mplstyle`, the user's rcParams and a style sheet inside the block; the last has precedence.

    `style`: a file, or the name of a style of matplotlib. Raises `InputError` if it cannot be read.
    """
    if COLOURS.name not in matplotlib.colormaps:
        matplotlib.colormaps.register(COLOURS)
    defaults: Any = matplotlib.rcParamsDefault
    own: dict[str, Any] = {
        name: value
        for name, value in matplotlib.rcParams.items()
        if not name.startswith(DISPLAY) and value != defaults[name]
    }
    settings: Any = _read_sheet(SHEET) | own | ({} if style is None else _read_sheet(style))
    with rc_context(settings):
        yield


def _read_sheet(style: str | Path) -> dict[str, Any]:
    from matplotlib import style as styles

    library: Any = styles.library
    if str(style) in library:
        return dict(library[str(style)])
    log, messages = logging.getLogger("matplotlib"), BufferingHandler(100)
    log.addHandler(messages)
    propagates, log.propagate = log.propagate, False
    try:
        sheet: Any = rc_params_from_file(style, use_default_template=False)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise InputError(f"style {str(style)!r} cannot be read: {reason}; give a matplotlib style sheet") from error
    finally:
        log.removeHandler(messages)
        log.propagate = propagates
    if messages.buffer:
        reason = " ".join(messages.buffer[0].getMessage().split())
        raise InputError(f"style {str(style)!r} is not a matplotlib style sheet: {reason}")
    return {name: value for name, value in sheet.items() if not name.startswith(DISPLAY[:-2])}
