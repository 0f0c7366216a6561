"""Pictures of attention maps (matplotlib): heatmaps, or images whose patches are colored.

Also for other figures: colors, fonts that cover the text, labels that fit, and reproducible files.
"""

import io
import textwrap
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.font_manager import FontEntry, FontProperties, findfont, findSystemFonts, fontManager, get_font
from matplotlib.text import Text
from rich.cells import cell_len, set_cell_size

from regard.viz.maps import (
    UNFINITE,
    LayerMap,
    Map,
    answer_text,
    figure_metadata,
    finite,
    intervention_lines,
    patch_weights,
    query_description,
    shown_label,
)

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


BAD = "#{:02x}{:02x}{:02x}".format(*NOT_FINITE)
COLOURS = LinearSegmentedColormap.from_list("regard", BLUES).with_extremes(bad=BAD)
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


# All lengths are in inches.
CELL = 0.24  # side of one weight if there is room
MAX_SIDE = 27.0  # width and height of all panels together; larger maps get smaller cells
MIN_PANEL = 0.9  # width and height of a panel
LETTER = 0.065  # width of a character of a label
UPRIGHT = 4  # labels with more characters are rotated; wide characters count twice
LABEL_LENGTH = 18  # characters of a label that are drawn
LABEL_SPACING = 0.1  # distance between two labels at least
# Up to these numbers of tokens and heads, every token is labeled, even if the figure becomes larger.
ALL_LABELS_TOKENS, ALL_LABELS_HEADS = 64, 8
FEW_PANELS = 16  # up to this number, each panel has its own query labels
MARGIN, GAP, TITLE, COLOUR_BAR, ANSWER, CAPTION_LINE = 0.2, 0.2, 0.4, 0.8, 0.45, 0.16


def draw_map(attention: Map, format: str) -> bytes:
    """Draw an attention map; return the bytes of a file. `format`: png, svg or pdf.

    All panels share one color scale, from 0 to the largest weight. A first step that can only attend to itself
    is excluded from the scale, because its weight of 1 would make all other weights pale. A weight that is not
    finite is magenta. A white dot marks an input on which the output step depends. If there are more weights
    than pixels, the maximum of each square is drawn. Weights on an image are drawn on its patches.
    """
    if attention.pixels is not None and any(layer.patches for layer in attention.plotted_layers):
        scale = "from 0 to the largest weight on a patch, separate for each layer"
        metadata = figure_metadata(attention, attention.plotted_layers, scale)
        return figure_bytes(draw_overlay(attention), format, metadata)
    layers = attention.plotted_layers
    largest = max(_scale_maximum(layer.weights) for layer in layers) or 1.0
    exceeded = any(finite(layer.weights).max(initial=0.0) > largest for layer in layers)
    scale = f"weight 0 to {largest:.3f}{' and more' if exceeded else ''}, the same for all panels"
    grid = _Grid(layers, with_answer=attention.prediction is not None)
    caption = _caption(attention, f"{scale}{grid.omitted_labels}", int((grid.width - 2 * MARGIN) / LETTER))
    grid.height += CAPTION_LINE * len(caption)
    figure = Figure(figsize=(grid.width, grid.height))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1), frameon=False)
    axes.set(xlim=(0, grid.width), ylim=(grid.height, 0), xticks=[], yticks=[])
    colours = ScalarMappable(Normalize(0.0, largest), COLOURS)
    for panel in grid.panels():
        _draw_panel(axes, panel, colours)
    bar = figure.add_axes((1 - COLOUR_BAR / grid.width, 0.2, 0.15 / grid.width, 0.6))
    figure.colorbar(colours, cax=bar, label="weight", extend="max" if exceeded else "neither")
    bar.tick_params(labelsize=7)
    if attention.prediction is not None:
        answer = f"prediction {answer_text(attention.prediction)}, truth {answer_text(attention.truth)}"
        text = drawable(f"{attention.task}: {attention.input!r}    {answer}")
        lines = "\n".join(textwrap.wrap(text, max(int(grid.width / LETTER * 0.8), 40))[:2])
        axes.text(MARGIN, MARGIN, lines, fontsize=10, va="top")
    axes.text(MARGIN, grid.tops[-1], "\n".join(caption), fontsize=8, va="top")
    return figure_bytes(figure, format, figure_metadata(attention, layers, scale))


def _caption(attention: Map, scale: str, characters: int) -> list[str]:
    colour = " (magenta)" if UNFINITE in attention.note else ""
    paragraphs = [f"Note: {attention.note}{colour}"] if attention.note else []
    paragraphs += [*intervention_lines(attention), f"Colors: {scale}"]
    return [line for paragraph in paragraphs for line in textwrap.wrap(drawable(paragraph), characters)]


def _scale_maximum(weights: np.ndarray) -> float:
    _, queries, keys = weights.shape
    weights = finite(weights)
    causal = queries == keys > 1 and not weights[:, 0, 1:].any() and not weights[:, 1, 2:].any()
    return float(weights[:, 1:].max(initial=0.0) if causal else weights.max(initial=0.0))


class _Panel(NamedTuple):
    """One head and its rectangle, measured from the upper left corner."""

    layer: LayerMap
    head: int
    left: float
    top: float
    width: float
    height: float
    query_labels: bool
    key_labels: bool


class _Grid:
    """Positions of all panels."""

    def __init__(self, layers: Sequence[LayerMap], *, with_answer: bool) -> None:
        self.layers = layers
        columns = max(len(layer.weights) for layer in layers)
        self.few = columns * len(layers) <= FEW_PANELS
        queries, keys = [len(layer.query_labels) for layer in layers], [len(layer.key_labels) for layer in layers]
        cell = min(CELL, MAX_SIDE / columns / max(keys), MAX_SIDE / sum(queries))
        if max(*keys, *queries) <= ALL_LABELS_TOKENS and columns <= ALL_LABELS_HEADS:
            cell = max(cell, LABEL_SPACING)
        self.widths = [max(count * cell, MIN_PANEL) for count in keys]
        self.heights = [max(count * cell, MIN_PANEL) for count in queries]
        self.left = max(_label_room(layer.query_labels) for layer in layers)
        # Label keys below a row of panels unless the next row has the same keys.
        self.key_labels = [
            self.few or following is None or layer.key_labels != following.key_labels
            for layer, following in zip(layers, [*layers[1:], None], strict=True)
        ]
        self.spacing = (self.left if self.few else 0) + GAP
        rows = [
            TITLE + height + (GAP + _key_label_height(layer.key_labels) * labelled)
            for layer, height, labelled in zip(layers, self.heights, self.key_labels, strict=True)
        ]
        first = MARGIN + ANSWER * with_answer
        self.tops = [first, *(first + offset for offset in accumulate(rows))]
        width = MARGIN * 2 + self.left + columns * (max(self.widths) + self.spacing) + COLOUR_BAR
        self.width, self.height = max(width, 5.0), self.tops[-1] + MARGIN
        sides = [*zip(keys, self.widths, strict=True), *zip(queries, self.heights, strict=True)]
        interval = max(label_interval(count, side) for count, side in sides)
        self.omitted_labels = f"; 1 in {interval} steps is labeled for lack of space" if interval > 1 else ""

    def panels(self) -> Iterator[_Panel]:
        """Yield each head with its rectangle."""
        step = max(self.widths) + self.spacing
        for row, layer in enumerate(self.layers):
            for head in range(len(layer.weights)):
                left, top = MARGIN + self.left + head * step, self.tops[row] + TITLE
                size = (self.widths[row], self.heights[row])
                yield _Panel(layer, head, left, top, *size, self.few or not head, self.key_labels[row])


def _label_room(labels: Sequence[str]) -> float:
    return 0.1 + LETTER * min(max(map(cell_len, labels)), LABEL_LENGTH)


def _key_label_height(labels: Sequence[str]) -> float:
    return _label_room(labels) if max(map(cell_len, labels)) > UPRIGHT else 0.2


def _draw_panel(axes: Axes, panel: _Panel, colours: ScalarMappable) -> None:
    layer, left, top = panel.layer, panel.left, panel.top
    right, bottom = left + panel.width, top + panel.height
    weights = layer.weights[panel.head]
    image = downsample(np.where(np.isfinite(weights), weights, np.nan), int(max(panel.width, panel.height) * DPI))
    axes.imshow(
        colours.to_rgba(image, bytes=True), extent=(left, right, bottom, top), interpolation="none", aspect="auto"
    )
    title = f"{drawable(layer.title)}\n" if panel.query_labels else ""
    room = int((panel.width + GAP) / LETTER)
    title = title if len(title) <= room or not panel.head else ""
    axes.text(left, top - 0.05, f"{title}{layer.head_name(panel.head)}", fontsize=7, va="bottom")
    queries, keys = layer.weights.shape[1:]
    upright = max(map(cell_len, layer.key_labels)) > UPRIGHT
    for key, label in _visible_labels(layer.key_labels, panel.width) if panel.key_labels else ():
        x = left + (key + 0.5) * panel.width / keys
        axes.text(x, bottom + 0.04, label, fontsize=7, rotation=90 * upright, ha="center", va="top")
    if panel.query_labels:
        for query, label in _visible_labels(layer.query_labels, panel.height):
            y = top + (query + 0.5) * panel.height / queries
            axes.text(left - 0.04, y, label, fontsize=7, ha="right", va="center")
    if layer.relevant is not None:
        rows, columns = np.nonzero(layer.relevant)
        xs, ys = left + (columns + 0.5) * panel.width / keys, top + (rows + 0.5) * panel.height / queries
        axes.scatter(xs, ys, s=6, c="white", edgecolors="black", linewidths=0.4, zorder=3)
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())


def label_interval(count: int, side: float, spacing: float = LABEL_SPACING) -> int:
    return max(int(np.ceil(count * spacing / side - 1e-6)), 1)


def _visible_labels(labels: Sequence[str], side: float) -> Iterator[tuple[int, str]]:
    for step in range(0, len(labels), label_interval(len(labels), side)):
        yield step, short_label(labels[step])


def short_label(label: str, length: int = LABEL_LENGTH) -> str:
    label = shown_label(label)
    return drawable(label if cell_len(label) <= length else f"{set_cell_size(label, length - 1)}…")


def downsample(weights: np.ndarray, pixels: int) -> np.ndarray:
    """Return weights (Tq, Tk), or the maxima of squares if a side has more weights than `pixels`."""
    side = -(-max(weights.shape) // max(pixels, 1))
    if side <= 1:
        return weights
    height, width = (-(-count // side) * side for count in weights.shape)
    padded = np.zeros((height, width), weights.dtype)
    padded[: weights.shape[0], : weights.shape[1]] = weights
    maxima: np.ndarray = padded.reshape(height // side, side, width // side, side).max((1, 3))
    return maxima


LARGEST = (255, 106, 0)
"""Color of the largest weight, as in `js/overlay.js`: an orange that differs from light and dark grays."""
OPACITY = 0.85  # of the largest weight, so that the image remains visible
# All lengths are in inches.
SIDE = 1.5  # width of an image if there is room
MAX_WIDTH = 30.0  # of all images of a row
HEADER, IMAGE_GAP, IMAGE_TITLE = 0.65, 0.12, 0.36


def blend(pixels: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return an image (height, width, 3) in gray, colored by `shares` (rows, columns) from 0 to 1."""
    height, width = pixels.shape[:2]
    rows = np.arange(height) * shares.shape[0] // height
    columns = np.arange(width) * shares.shape[1] // width
    shares = shares[rows][:, columns, None]
    opacity = OPACITY * np.where(np.isfinite(shares), shares, 1)
    colour = np.where(np.isfinite(shares), LARGEST, NOT_FINITE)
    grey = pixels @ np.array([0.299, 0.587, 0.114])  # luma of ITU-R BT.601
    image: np.ndarray = (grey[..., None] * (1 - opacity) + colour * opacity).astype(np.uint8)
    return image


def draw_overlay(attention: Map) -> Figure:
    """Return the figure of a map: a row for each layer with its own color scale, an image for each head."""
    pixels = attention.pixels
    assert pixels is not None
    layers = [layer for layer in attention.plotted_layers if layer.patches is not None]
    columns = max(len(layer.weights) for layer in layers) + 1
    side = min(SIDE, MAX_WIDTH / columns)
    high = side * pixels.shape[0] / pixels.shape[1]
    width = max(2 * MARGIN + columns * (side + IMAGE_GAP), 5.0)
    caption = intervention_lines(attention)
    height = HEADER + len(layers) * (high + IMAGE_TITLE) + MARGIN + CAPTION_LINE * len(caption)
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1), frameon=False)
    axes.set(xticks=[], yticks=[])
    answer = "" if attention.prediction is None else f", prediction {attention.prediction!r}"
    header = (f"{attention.task}: {attention.input}{answer}", f"Color: {query_description(layers[0])}")
    axes.text(MARGIN, MARGIN, "\n".join(map(drawable, header)), fontsize=9, va="top")
    axes.text(MARGIN, height - MARGIN / 2, "\n".join(map(drawable, caption)), fontsize=8, va="bottom")
    _draw_image(axes, pixels, (MARGIN, HEADER + IMAGE_TITLE, side, high), "the image")
    for row, layer in enumerate(layers):
        weights = patch_weights(layer)
        largest = max(float(finite(weights).max(initial=0.0)), 1e-9)
        for head, head_weights in enumerate(weights):
            left = MARGIN + (head + 1) * (side + IMAGE_GAP)
            top = HEADER + IMAGE_TITLE + row * (high + IMAGE_TITLE)
            layer_title = "" if head else f"{drawable(layer.title)}, 0 to {largest:.3f}\n"
            title = f"{layer_title}head {layer.head_number(head)}"
            _draw_image(axes, blend(pixels, head_weights / largest), (left, top, side, high), title)
    axes.set(xlim=(0, width), ylim=(height, 0))
    return figure


def _draw_image(axes: Axes, image: np.ndarray, box: tuple[float, float, float, float], title: str) -> None:
    left, top, width, height = box
    axes.imshow(image, extent=(left, left + width, top + height, top), interpolation="none", aspect="auto")
    axes.text(left, top - 0.03, title, fontsize=7, va="bottom")
