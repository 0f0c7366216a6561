"""Pictures of attention: the weights of one head, of the heads of a few layers, of all heads, or on an image.

Colors show the square root of a weight, from 0 to the largest of the picture. All lengths are in inches."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure, FigureBase
from matplotlib.patches import Rectangle
from rich.cells import cell_len

from regard.viz.figure import (
    DPI,
    NOT_FINITE,
    PAGE_WIDTH,
    drawable,
    figure_bytes,
    figure_style,
    label_interval,
    letter_size,
    new_figure,
    short_label,
    weight_colours,
)
from regard.viz.maps import (
    UNFINITE,
    WORD_START,
    LayerKind,
    LayerMap,
    Map,
    answer_text,
    figure_metadata,
    finite,
    intervention_lines,
    patch_weights,
    query_description,
)

CELL, TALLEST = 0.3, 7.0  # largest side of a weight, and height of a picture
LABEL_LENGTH = 14  # characters of a label that are drawn
CONTINUED = "·"  # begins the label of a piece that continues a word
SIDES, BAR = 0.3, 0.55  # room for an axis label with ticks, and for a color bar
PANEL, GRID_TALLEST = 1.6, 8.4  # largest width of a head in a grid, and height of a grid
PIXELS = 300  # of an image, per inch at least: viewers blur an image with one pixel for each weight
FRAME = (170, 170, 170, 255)
LABELED_HEADS = 16  # of more heads, a map shows a grid without labels of tokens
COLUMNS = 4  # heads with labels of tokens beside each other
PANEL_GAP = 0.12  # between heads with labels
ROOT = "The color is the square root of the weight"
FRAMES = "Frames mark the inputs on which the answer depends."


def draw_map(attention: Map, format: str) -> bytes:
    """Draw an attention map; return the bytes of a file. `format`: png, svg or pdf.

    Up to 16 heads have labels of their tokens; of more heads, there is a grid with a row for each layer. A weight
    that is not finite is magenta. A frame marks an input on which the output step depends. If there are more weights
    than pixels, the maximum of each square is drawn. Weights on an image are drawn on its patches.
    """
    layers = attention.plotted_layers
    with figure_style():
        if attention.pixels is not None and any(layer.patches for layer in layers):
            scale = "from 0 to the largest weight on a patch, separate for each layer"
            return figure_bytes(draw_overlay(attention), format, figure_metadata(attention, layers, scale), dpi=DPI)
        picture: HeadGrid | HeadPanels
        if sum(len(layer.weights) for layer in layers) > LABELED_HEADS:
            names = layer_labels({layer.name: layer.kind for layer in layers})
            picture = HeadGrid(rows=[layer.weights for layer in layers], labels=list(names.values()), width=PAGE_WIDTH)
        else:
            picture = HeadPanels(layers)
        figure, scale = picture.draw(), picture.notes
        colour = " (magenta)" if UNFINITE in attention.note else ""
        remark = [f"Note: {attention.note}{colour}"] if attention.note else []
        notes = [*remark, *intervention_lines(attention), scale]
        title = f"{attention.task}: {attention.input!r}" if attention.task else attention.input
        if attention.prediction is not None:
            title += f"    prediction {answer_text(attention.prediction)}, truth {answer_text(attention.truth)}"
        for write, texts, most in ((figure.suptitle, [title], 2), (figure.supxlabel, notes, None)):
            wrap = partial(textwrap.wrap, max_lines=most, placeholder=" …")  # 90 capitals are as wide as a page
            widths = {text: 90 * len(text) // max(cell_len(text), 1) or 90 for text in map(drawable, texts)}
            lines = [line for text, width in widths.items() for line in wrap(text, width)]
            write("\n".join(lines), x=0.01, ha="left", fontsize=7)
            figure.set_figheight(figure.get_figheight() + 0.14 * len(lines))
        return figure_bytes(figure, format, figure_metadata(attention, layers, scale), dpi=DPI)


def _pixels(weights: np.ndarray, colours: ScalarMappable, width: float, height: float) -> np.ndarray:
    """Return the colors of weights (Tq, Tk) as an image of a size in inches; see `_block`."""
    image = np.where(np.isfinite(weights), weights, np.nan)
    for axis, side in enumerate(_block(weights, width, height)):
        image = np.maximum.reduceat(image, range(0, image.shape[axis], side), axis=axis)
    rows, columns = (np.arange(max(int(side * PIXELS), 1)) for side in (height, width))
    rows, columns = rows * len(image) // len(rows), columns * image.shape[1] // len(columns)
    return colours.to_rgba(image, bytes=True)[rows][:, columns]


def _block(weights: np.ndarray, width: float, height: float) -> tuple[int, int]:
    """Return how many queries and keys of weights (..., Tq, Tk) one pixel shows, by their largest weight."""
    queries, keys = weights.shape[-2:]
    return -(-queries // max(int(height * PIXELS), 1)), -(-keys // max(int(width * PIXELS), 1))


def _thinned(weights: np.ndarray, width: float, height: float) -> str:
    """Return a sentence for weights that outnumber the pixels; empty if each weight has a pixel."""
    queries, keys = _block(weights, width, height)
    return f"Each pixel is the largest weight of {queries} x {keys} steps." if max(queries, keys) > 1 else ""


def token_labels(labels: Sequence[str]) -> list[str]:
    """Return the labels for a figure, with a mark before each piece that continues a word.

    >>> token_labels(["▁un", "seen", "▁word", "."])
    ['un', '·seen', 'word', '.']
    """
    if any(label.startswith(WORD_START) for label in labels):
        labels = [
            label.removeprefix(WORD_START) or WORD_START if not label[:1].isalnum() else f"{CONTINUED}{label}"
            for label in labels
        ]
    return [short_label(label, LABEL_LENGTH) for label in labels]


class _TokenAxis:
    """The labels of the queries or keys, in cells of `side` inches: all labels, or every nth if there is no room.

    Labels of keys are horizontal where they fit. If many do not fit, all of them are rotated.
    """

    def __init__(self, labels: Sequence[str], side: float, *, keys: bool = False) -> None:
        letter, line = letter_size()
        sizes = [letter * cell_len(label) for label in labels]
        long = [keys and size + 0.3 * letter > side for size in sizes]
        many = sum(long) > len(labels) / 5
        self.labels = labels
        self.rotated = [many or is_long for is_long in long] if keys else long
        self.interval = label_interval(1, side, line) if many or not keys else 1
        self.length = max(sizes, default=0) if any(self.rotated) or not keys else line

    def draw(self, axis: Axis) -> None:
        shown = range(0, len(self.labels), self.interval)
        axis.set_ticks([place + 0.5 for place in shown], [self.labels[place] for place in shown])
        for place, text in zip(shown, axis.get_ticklabels(), strict=True):
            text.set_rotation(90 * self.rotated[place])


def _notes(scale: str, axes: Sequence[_TokenAxis], thinned: str) -> str:
    """Return sentences on the colors, and on labels and weights that do not fit."""
    interval = max(axis.interval for axis in axes)
    pieces = any(label.startswith(CONTINUED) for axis in axes for label in axis.labels)
    sentences = (
        scale,
        f"“{CONTINUED}” marks a piece that continues a word." if pieces else "",
        f"1 in {interval} steps has a label." if interval > 1 else "",
        thinned,
    )
    return " ".join(filter(None, sentences))


def _draw_weights(
    axes: Axes,
    weights: np.ndarray,
    colours: ScalarMappable,
    cell: tuple[float, float],
    labels: tuple[_TokenAxis | None, _TokenAxis],
    marks: np.ndarray | None,
) -> None:
    """Draw weights (Tq, Tk) with cells of a width and height, and labels of queries and keys."""
    (queries, keys), (width, height) = weights.shape, cell
    pixels = _pixels(weights, colours, width * keys, height * queries)
    axes.imshow(pixels, extent=(0, keys, queries, 0), interpolation="none", aspect=height / width)
    for query, key in () if marks is None else np.argwhere(marks):
        axes.add_patch(Rectangle((key, query), 1, 1, fill=False, ec="C1", lw=0.6))
    labels[1].draw(axes.xaxis)
    if labels[0] is None:
        axes.set_yticks([])
    else:
        labels[0].draw(axes.yaxis)
    axes.spines[:].set_visible(True)


@dataclass(frozen=True, kw_only=True)
class MatrixPlot:
    """The weights (Tq, Tk) of one head with token labels, in a figure of a given `width`."""

    weights: np.ndarray
    queries: Sequence[str]
    keys: Sequence[str]
    width: float
    axis_names: tuple[str, str]
    marks: np.ndarray | None = None
    """(Tq, Tk) bool: cells that get a frame."""
    root: bool = False
    """Whether the color is the square root of the weight."""

    @property
    def cell(self) -> tuple[float, float]:
        """Width and height of a weight; rows are high enough for their labels if the figure is not too high."""
        (queries, keys), (letter, line) = self.weights.shape, letter_size()
        left = SIDES + letter * max(map(cell_len, self.queries))
        width = float(min((self.width - left - BAR) / keys, CELL))
        return width, max(width, line) if line * queries <= TALLEST else min(width, TALLEST / queries)

    @property
    def labels(self) -> tuple[_TokenAxis, _TokenAxis]:
        width, height = self.cell
        return _TokenAxis(self.queries, height), _TokenAxis(self.keys, width, keys=True)

    @property
    def height(self) -> float:
        return max(self.cell[1] * len(self.weights), 0.5) + SIDES + self.labels[1].length

    @property
    def notes(self) -> str:
        (queries, keys), (width, height) = self.weights.shape, self.cell
        thinned = _thinned(self.weights, width * keys, height * queries)
        return _notes(f"{ROOT}." if self.root else "", self.labels, thinned)

    def draw(self, figure: FigureBase) -> None:
        """Draw into a figure, with a color bar from 0 to the largest weight."""
        axes = figure.subplots()
        largest = _largest([self.weights])
        colours = ScalarMappable(_scale(largest, self.root), weight_colours())
        _draw_weights(axes, self.weights, colours, self.cell, self.labels, self.marks)
        axes.set(ylabel=self.axis_names[0], xlabel=self.axis_names[1])
        _colour_bar(figure, colours, axes, largest, self.root, min(1.0, 1.2 / (self.cell[1] * len(self.weights))))


@dataclass(frozen=True)
class HeadPanels:
    """The heads of a few layers with labels of their tokens, on one scale, as wide as a page."""

    layers: Sequence[LayerMap]

    @property
    def largest(self) -> float:
        return _largest([layer.weights for layer in self.layers])

    @property
    def columns(self) -> int:
        return min(max(len(layer.weights) for layer in self.layers), COLUMNS)

    @cached_property
    def cells(self) -> list[tuple[float, float]]:
        """Width and height of a weight of each layer."""
        letter, line = letter_size()
        labels = [label for layer in self.layers for label in token_labels(layer.query_labels)]
        across = (PAGE_WIDTH - SIDES - letter * max(map(cell_len, labels)) - BAR) / self.columns - PANEL_GAP
        widths = [across / len(layer.key_labels) for layer in self.layers]
        heights = [min(max(width, line), CELL) for width in widths]
        rows = [-(-len(layer.weights) // self.columns) * len(layer.query_labels) for layer in self.layers]
        total = sum(height * count for height, count in zip(heights, rows, strict=True))
        return [(width, height * min(1.0, TALLEST / total)) for width, height in zip(widths, heights, strict=True)]

    @cached_property
    def labels(self) -> list[tuple[_TokenAxis, _TokenAxis]]:
        return [
            (
                _TokenAxis(token_labels(layer.query_labels), height),
                _TokenAxis(token_labels(layer.key_labels), width, keys=True),
            )
            for layer, (width, height) in zip(self.layers, self.cells, strict=True)
        ]

    @property
    def notes(self) -> str:
        marked = any(layer.relevant is not None and layer.relevant.any() for layer in self.layers)
        scale = f"{ROOT}, from 0 to {self.largest:.3f} for all heads.{f' {FRAMES}' if marked else ''}"
        thinned = (
            _thinned(layer.weights, width * len(layer.key_labels), height * len(layer.query_labels))
            for layer, (width, height) in zip(self.layers, self.cells, strict=True)
        )
        return _notes(scale, [axis for pair in self.labels for axis in pair], next(filter(None, thinned), ""))

    def draw(self) -> Figure:
        line, largest = letter_size()[1], self.largest
        colours = ScalarMappable(_scale(largest, True), weight_colours())
        rows = [
            (layer, first, cell, labels)
            for layer, cell, labels in zip(self.layers, self.cells, self.labels, strict=True)
            for first in range(0, len(layer.weights), self.columns)
        ]
        heights = [height * len(layer.query_labels) for layer, _, (_, height), _ in rows]
        room = sum(keys.length + 4.5 * line for _, _, _, (_, keys) in rows)
        figure = new_figure(PAGE_WIDTH, sum(heights) + room)
        grid = figure.subplots(len(rows), self.columns, squeeze=False, height_ratios=heights)
        for axes, (layer, first, cell, (queries, keys)) in zip(grid, rows, strict=True):
            for place, panel in enumerate(axes):
                head = first + place
                if head >= len(layer.weights):
                    panel.set_visible(False)
                    continue
                labels = (None if place else queries, keys)
                _draw_weights(panel, layer.weights[head], colours, cell, labels, layer.relevant)
                title = layer.head_name(head) if place else f"{drawable(layer.title)}\n{layer.head_name(head)}"
                panel.set_title(title, loc="left")
        _colour_bar(figure, colours, grid, largest, True, min(1.0, 1.4 / sum(heights)))
        return figure


def _largest(weights: Sequence[np.ndarray]) -> float:
    return max(float(finite(layer).max(initial=0.0)) for layer in weights) or 1.0


def _scale(largest: float, root: bool) -> Normalize:
    return PowerNorm(0.5, 0, largest, clip=True) if root else Normalize(0, largest)


def _colour_bar(
    figure: FigureBase, colours: ScalarMappable, axes: Any, largest: float, root: bool, shrink: float
) -> None:
    ticks = [largest * share ** (1 + root) for share in (0, 0.25, 0.5, 0.75, 1)]
    bar = figure.colorbar(
        colours, ax=axes, ticks=ticks, format="%.2g", shrink=shrink, anchor=(0, 1), aspect=20 * shrink + 2
    )
    bar.ax.minorticks_off()


def layer_labels(layers: Mapping[str, LayerKind]) -> dict[str, str]:
    """Return short labels of layers by name: the number of the layer, with its kind if the kinds differ.

    >>> layer_labels({"encoder.0.self_attention": "encoder", "cross": "cross"})
    {'encoder.0.self_attention': 'encoder', 'cross': 'cross'}
    """
    kinds = list(layers.values())
    labels = {}
    for index, (name, kind) in enumerate(layers.items()):
        number = [str(kinds[:index].count(kind))] if kinds.count(kind) > 1 else []
        labels[name] = " ".join([*([kind] if len(set(kinds)) > 1 or not number else []), *number])
    return labels


@dataclass(frozen=True, kw_only=True)
class HeadGrid:
    """A panel for each head, a row for each layer; `rows`: weights (H, Tq, Tk) of each layer."""

    rows: Sequence[np.ndarray]
    labels: Sequence[str]
    width: float

    @property
    def largest(self) -> float:
        return _largest(self.rows)

    @property
    def panels(self) -> tuple[float, float, list[float]]:
        """The width of all that is beside the panels, that of a panel, and the height of each row, in inches."""
        around = SIDES + letter_size()[0] * max(map(len, self.labels)) + BAR
        across = min((self.width - around) / max(map(len, self.rows)), PANEL)
        heights = [across * min(max(row.shape[1] / row.shape[2], 0.25), 1.5) for row in self.rows]
        return around, across, [height * min(1.0, GRID_TALLEST / sum(heights)) for height in heights]

    @property
    def notes(self) -> str:
        """Sentences on the colors, and on weights that have no pixel."""
        _, across, heights = self.panels
        thinned = (_thinned(row, across, height) for row, height in zip(self.rows, heights, strict=True))
        return f"{ROOT}, from 0 to {self.largest:.2g} for all heads. {next(filter(None, thinned), '')}".rstrip()

    def draw(self) -> Figure:
        """Return the figure, with all panels in a single image: axes for each panel would take minutes."""
        around, across, heights = self.panels
        columns = max(map(len, self.rows))
        colours = ScalarMappable(_scale(self.largest, True), weight_colours())
        gap, lines = int(0.035 * PIXELS), []
        for row, height in zip(self.rows, heights, strict=True):
            panels = [
                np.pad(_pixels(head, colours, across - 0.035, height - 0.035), ((2, 2), (2, 2), (0, 0))) for head in row
            ]
            for panel in panels:
                panel[[0, 1, -2, -1]] = panel[:, [0, 1, -2, -1]] = FRAME
            line = np.concatenate([np.pad(panel, ((0, gap), (0, gap), (0, 0))) for panel in panels], axis=1)
            lines.append(np.pad(line, ((0, 0), (0, line.shape[1] // len(row) * (columns - len(row))), (0, 0))))
        image = np.concatenate(lines)
        figure = new_figure(min(self.width, max(columns * across, 1) + around), sum(heights) + 0.42)
        axes = figure.subplots()
        axes.imshow(image, interpolation="none", aspect="equal")
        centres = np.cumsum([0, *map(len, lines)])[:-1] + [len(line) / 2 for line in lines]
        every = label_interval(1, min(heights), letter_size()[1])
        axes.set_yticks(centres[::every], list(self.labels)[::every])
        every = label_interval(1, across, letter_size()[0] * (len(str(columns)) + 0.7))
        heads = range(0, columns, every)
        axes.set_xticks([(head + 0.5) * image.shape[1] / columns for head in heads], list(map(str, heads)))
        axes.xaxis.tick_top()
        axes.xaxis.set_label_position("top")
        axes.tick_params(length=0)
        axes.set(xlabel="head", ylabel="layer")
        axes.spines[:].set_visible(False)
        _colour_bar(figure, colours, axes, self.largest, True, min(1.0, 1.4 / sum(heights)))
        return figure


LARGEST = (255, 106, 0)
"""Color of the largest weight, as in `js/overlay.js`: an orange that differs from light and dark grays."""
OPACITY = 0.85  # of the largest weight, so that the image remains visible
SIDE = 1.5  # width of an image if there is room
MARGIN, HEADER, IMAGE_GAP, IMAGE_TITLE, CAPTION_LINE = 0.2, 0.65, 0.12, 0.36, 0.16


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
    side = min(SIDE, (PAGE_WIDTH - 2 * MARGIN) / columns - IMAGE_GAP)
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
    _draw_image(axes, pixels, (MARGIN, HEADER + IMAGE_TITLE, side, high), "image")
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
