"""Draw matrices of weights at their printed size: one head with token labels, or a grid of all heads.

All lengths are in inches. The size of a cell is known before drawing, so that a caption can name the labels
that do not fit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize, PowerNorm
from matplotlib.figure import Figure, FigureBase
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle
from rich.cells import cell_len

from regard.viz.figure import NOT_FINITE
from regard.viz.heatmap import downsample, label_interval, short_label
from regard.viz.labels import WORD_START
from regard.viz.maps import finite

LARGEST_CELL, TALLEST = 0.3, 7.0  # side of a cell, and height of a matrix
LABEL_LENGTH = 14  # characters of a label that are drawn
CONTINUED = "·"  # begins the label of a piece that continues a word
SIDES, BAR = 0.3, 0.55  # room for an axis label with ticks, and for a color bar
PANEL, GRID_TALLEST = 1.6, 8.4  # largest width of a head in a grid, and height of a grid
PIXELS = 300  # of an image, per inch at least: viewers blur an image with one pixel for each weight
EXCEEDING = 0.5  # percentage of weights beyond the darkest color of a grid
FRAME = (170, 170, 170, 255)


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


def _pixels(weights: np.ndarray, colours: ScalarMappable, width: float, height: float) -> np.ndarray:
    """Return the colors of weights (Tq, Tk) as an image of a size in inches."""
    image = downsample(np.where(np.isfinite(weights), weights, np.nan), int(max(width, height) * PIXELS))
    rows, columns = (np.arange(max(int(side * PIXELS), 1)) for side in (height, width))
    rows, columns = rows * len(image) // len(rows), columns * image.shape[1] // len(columns)
    pixels: np.ndarray = colours.to_rgba(image, bytes=True)[rows][:, columns]
    return pixels


def _thinned(weights: np.ndarray, width: float, height: float) -> str:
    """Return a sentence for weights (..., Tq, Tk) that outnumber the pixels; empty if each weight has a pixel."""
    side = -(-max(weights.shape[-2:]) // max(int(max(width, height) * PIXELS), 1))
    return f"Each pixel is the largest weight of a square of {side} steps." if side > 1 else ""


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
    def cell(self) -> float:
        queries, keys = self.weights.shape
        left = SIDES + letter_size()[0] * max(map(cell_len, self.queries))
        return float(min((self.width - left - BAR) / keys, LARGEST_CELL, TALLEST / queries))

    @property
    def rotated(self) -> bool:
        return letter_size()[0] * (max(map(cell_len, self.keys)) + 0.5) > self.cell

    @property
    def height(self) -> float:
        letter, line = letter_size()
        labels = letter * max(map(cell_len, self.keys)) if self.rotated else line
        return max(self.cell * len(self.weights), 0.5) + SIDES + labels

    @property
    def interval(self) -> int:
        return label_interval(1, self.cell, letter_size()[1])

    @property
    def notes(self) -> str:
        """Sentences on colors and marks, and on labels and weights that do not fit."""
        queries, keys = self.weights.shape
        pieces = any(label.startswith(CONTINUED) for label in (*self.queries, *self.keys))
        sentences = (
            "The color is the square root of the weight." if self.root else "",
            f"“{CONTINUED}” marks a piece that continues a word." if pieces else "",
            f"1 in {self.interval} steps has a label." if self.interval > 1 else "",
            _thinned(self.weights, self.cell * keys, self.cell * queries),
        )
        return " ".join(filter(None, sentences))

    def draw(self, figure: FigureBase) -> None:
        """Draw into a figure, with a color bar from 0 to the largest weight."""
        axes = figure.subplots()
        queries, keys = self.weights.shape
        largest = float(finite(self.weights).max()) or 1.0
        colours = ScalarMappable(_scale(largest, self.root), weight_colours())
        pixels = _pixels(self.weights, colours, self.cell * keys, self.cell * queries)
        axes.imshow(pixels, extent=(0, keys, queries, 0), interpolation="none", aspect="equal")
        for query, key in () if self.marks is None else np.argwhere(self.marks):
            axes.add_patch(Rectangle((key, query), 1, 1, fill=False, ec="C1", lw=0.6))
        shown = [slice(None, None, self.interval)] * 2
        axes.set_xticks(np.arange(keys)[shown[0]] + 0.5, list(self.keys)[shown[0]], rotation=90 * self.rotated)
        axes.set_yticks(np.arange(queries)[shown[1]] + 0.5, list(self.queries)[shown[1]])
        axes.set(ylabel=self.axis_names[0], xlabel=self.axis_names[1])
        axes.spines[:].set_visible(True)
        _colour_bar(figure, colours, axes, largest, self.root, min(1.0, 1.2 / (self.cell * queries)))


def _scale(largest: float, root: bool) -> Normalize:
    return PowerNorm(0.5, 0, largest, clip=True) if root else Normalize(0, largest)


def _colour_bar(
    figure: FigureBase, colours: ScalarMappable, axes: Axes, largest: float, root: bool, shrink: float
) -> None:
    ticks = [largest * share ** (1 + root) for share in (0, 0.25, 0.5, 0.75, 1)]
    bar = figure.colorbar(
        colours, ax=axes, ticks=ticks, format="%.2g", shrink=shrink, anchor=(0, 1), aspect=20 * shrink + 2
    )
    bar.ax.minorticks_off()


@dataclass(frozen=True, kw_only=True)
class HeadGrid:
    """A panel for each head, a row for each layer; `rows`: weights (H, Tq, Tk) of each layer."""

    rows: Sequence[np.ndarray]
    labels: Sequence[str]
    width: float

    @property
    def largest(self) -> float:
        weights = np.concatenate([finite(row)[row > 0].ravel() for row in self.rows])
        return float(np.percentile(weights, 100 - EXCEEDING)) if weights.size else 1.0

    @property
    def panels(self) -> tuple[float, list[float]]:
        left = SIDES + letter_size()[0] * max(map(len, self.labels))
        across = min((self.width - left - BAR) / max(map(len, self.rows)), PANEL)
        heights = [across * min(max(row.shape[1] / row.shape[2], 0.25), 1.5) for row in self.rows]
        return across, [height * min(1.0, GRID_TALLEST / sum(heights)) for height in heights]

    @property
    def notes(self) -> str:
        """Sentences on the colors, and on weights that have no pixel."""
        across, heights = self.panels
        thinned = (_thinned(row, across, height) for row, height in zip(self.rows, heights, strict=True))
        return (
            "The color is the square root of the weight, on the same scale for all heads; the darkest color is"
            f" {self.largest:.2g} or more, which {EXCEEDING} % of the weights exceed."
            f" {next(filter(None, thinned), '')}"
        ).rstrip()

    def draw(self) -> Figure:
        """Return the figure, with all panels in a single image, because axes for each panel would take
        minutes."""
        across, heights = self.panels
        columns = max(map(len, self.rows))
        colours = ScalarMappable(_scale(self.largest, True), weight_colours())
        gap, lines = int(0.035 * PIXELS), []
        for row, height in zip(self.rows, heights, strict=True):
            panels = [
                np.pad(_pixels(head, colours, across - 0.035, height - 0.035), ((2, 2), (2, 2), (0, 0)))
                for head in row
            ]
            for panel in panels:
                panel[[0, 1, -2, -1]] = panel[:, [0, 1, -2, -1]] = FRAME
            line = np.concatenate([np.pad(panel, ((0, gap), (0, gap), (0, 0))) for panel in panels], axis=1)
            lines.append(np.pad(line, ((0, 0), (0, line.shape[1] // len(row) * (columns - len(row))), (0, 0))))
        image = np.concatenate(lines)
        figure = new_figure(self.width, sum(heights) + 0.42)
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
