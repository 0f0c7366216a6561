"""Plots of values of heads, intervals, curves over training, position vectors and embeddings."""

import csv
import io
import json
import logging
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib import rc_context, rc_params_from_file, rcParams
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize, PowerNorm
from matplotlib.figure import Figure, FigureBase
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle
from rich.cells import cell_len

from regard.arguments import public
from regard.errors import InputError
from regard.io import write_file
from regard.result import Result, to_plain
from regard.viz.attention_map import PICTURES, check_extension
from regard.viz.figure import COLOURS, NOT_FINITE, downsample, drawable, figure_bytes, label_interval, short_label
from regard.viz.maps import WORD_START, finite

CURVES = 8  # dimensions drawn as curves; more could not be told apart
MARKED = 120  # up to this number of positions, each is marked with a dot
NARROW = 5.0  # inches; in a narrower figure, panels stand one below the other
SIGNED = "RdBu_r"  # colors from negative (blue) through 0 (white) to positive (red), also for color-blind readers


class ValueInterval(NamedTuple):
    """A value with its interval, and a name."""

    name: str
    value: float
    low: float
    high: float


def make_panels(count: int, width: float, height: float, **options: Any) -> tuple[Figure, list[Axes]]:
    wide = width >= NARROW
    figure = new_figure(width, height if wide else height * count)
    return figure, list(figure.subplots(*((1, count) if wide else (count, 1)), squeeze=False, **options).flat)


def draw_positions(vectors: np.ndarray, width: float, between: np.ndarray | None = None) -> Figure:
    """Draw position vectors (T, D): some dimensions as curves, all dimensions as a heatmap, and the similarity
    of vectors.

    `between`: vectors (N, D) at N evenly spaced places from the first position to the last, for encodings that
    are defined between two positions. Similarity is the cosine of each pair of vectors (0 if one vector is zero).
    Curves and colors end at `position_scale`.
    """
    figure, (curves, dimensions, cosines) = make_panels(3, width, 2.1)
    largest = position_scale(vectors)
    _draw_curves(curves, vectors, between, largest)
    image = dimensions.imshow(
        vectors.T, aspect="auto", cmap=SIGNED, vmin=-largest, vmax=largest, interpolation="nearest"
    )
    dimensions.set(title="all dimensions", xlabel="position", ylabel="dimension")
    figure.colorbar(image, ax=dimensions)
    image = cosines.imshow(similarity(vectors), cmap=SIGNED, vmin=-1, vmax=1, interpolation="nearest")
    cosines.set(title="similarity (cosine)", xlabel="position", ylabel="position")
    figure.colorbar(image, ax=cosines, ticks=[-1, 0, 1])
    for axes in (curves, dimensions, cosines):
        axes.locator_params(axis="x", integer=True)
    return figure


def position_scale(vectors: np.ndarray) -> float:
    """Return the end of the scale of position vectors: the largest absolute value, or its 99.5 % quantile if few
    values are larger."""
    sizes = np.abs(vectors)
    most, largest = float(np.percentile(sizes, 99.5)), max(float(sizes.max()), 1e-12)
    return most if largest > 1.5 * most > 0 else largest


def _draw_curves(axes: Axes, vectors: np.ndarray, between: np.ndarray | None, largest: float) -> None:
    """Draw some dimensions one below the other, with a dot for every position."""
    time, width = vectors.shape
    curves = np.clip((vectors if between is None else between) / largest, -1, 1)
    places = np.linspace(0, time - 1, len(curves))
    levels = {dim: -2.4 * index for index, dim in enumerate(drawn_dimensions(width))}
    for index, (dim, level) in enumerate(levels.items()):
        axes.plot(places, curves[:, dim] + level, color=f"C{index}")
        axes.axhline(level, color="0.85", linewidth=0.5, zorder=0)
        if time <= MARKED:
            dots = np.clip(vectors[:, dim] / largest, -1, 1) + level
            axes.plot(dots, ".", color=f"C{index}", markersize=2)
    axes.set(title=f"curves, each from -{largest:.3g} to {largest:.3g}", xlabel="position", ylabel="dimension")
    axes.set_yticks(list(levels.values()), [str(dim) for dim in levels])


def drawn_dimensions(width: int) -> list[int]:
    """Return the dimensions that are drawn as curves: at most `CURVES`, evenly spaced.

    >>> drawn_dimensions(4)
    [0, 1, 2, 3]
    """
    dimensions: list[int] = np.unique(np.linspace(0, width - 1, CURVES).round().astype(int)).tolist()
    return dimensions


def similarity(vectors: np.ndarray) -> np.ndarray:
    """Return the cosine of each pair of vectors (T, D) as (T, T); 0 if either vector is zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    cosines: np.ndarray = unit @ unit.T
    return cosines


def head_table(values: Mapping[str, Sequence[float]]) -> np.ndarray:
    table = np.full((len(values), max(map(len, values.values()))), np.nan)
    for row, head_values in enumerate(values.values()):
        table[row, : len(head_values)] = head_values
    return table


def draw_head_matrix(
    axes: Axes, values: Mapping[str, Sequence[float]], *, signed: bool, marks: np.ndarray | None = None
) -> Any:
    """Draw one value per head, with a row for each layer; return the image.

    `signed`: whether the color scale is centered at 0; otherwise it goes from 0 to the largest value. `marks`:
    (layers, heads) bool, True for heads with a dot.
    """
    table = head_table(values)
    largest = max(float(np.abs(finite(table)).max(initial=0.0)), 1e-9)
    colours = (matplotlib.colormaps[SIGNED] if signed else weight_colours()).with_extremes(bad="none")
    image = axes.imshow(table, cmap=colours, vmin=-largest * signed, vmax=largest, aspect="auto")
    rows, columns = table.shape
    letter, line = letter_size()
    across, down = label_interval(columns, 1.6, letter * (len(str(columns)) + 1)), label_interval(rows, 6.0, line)
    axes.set_xticks(range(0, columns, across), [str(head) for head in range(0, columns, across)])
    axes.set_yticks(range(0, rows, down), list(map(drawable, values))[::down])
    axes.set(xlabel="head", ylabel="layer")
    axes.spines[:].set_visible(True)
    if marks is not None:
        rows_marked, columns_marked = np.nonzero(marks)
        axes.scatter(columns_marked, rows_marked, s=6, c="white", edgecolors="black", linewidths=0.4)
    return image


def draw_head_table(values: Mapping[str, Sequence[float]], title: str, format: str) -> bytes:
    """Draw a head matrix with a title (see `draw_head_matrix`); return the bytes of a file. `format`: png, svg or
    pdf."""
    columns = max(map(len, values.values()))
    width = max(columns * 0.5 + 3.5, 6.0)
    figure = new_figure(width, max(len(values) * 0.35 + 1.4, 2.4))
    axes = figure.subplots()
    figure.colorbar(draw_head_matrix(axes, values, signed=True), ax=axes, shrink=0.8)
    axes.set_title("\n".join(textwrap.wrap(drawable(title), int(width * 12))), fontsize=8)
    return figure_bytes(figure, format)


def write_head_table(values: Mapping[str, Sequence[float]], title: str, path: str | Path) -> Path:
    """Write the picture of `draw_head_table` to a .png, .svg or .pdf file, and return the path; raises
    `InputError` for another ending."""
    path = Path(path)
    check_extension(path, PICTURES)
    write_file(path, draw_head_table(values, title, path.suffix.lower()[1:]))
    return path


def draw_intervals(
    axes: Axes, intervals: Sequence[ValueInterval], unit: str, reference: float = 0.0, reference_name: str = ""
) -> None:
    """Draw values with their intervals, from top to bottom, and a vertical line at `reference`."""
    for row, (_, value, low, high) in enumerate(intervals):
        axes.plot([low, high], [row, row], color="C0")
        axes.plot([value], [row], "o", color="C0")
    axes.axvline(reference, color="C1", linestyle="--", linewidth=0.8, label=reference_name)
    axes.set_yticks(range(len(intervals)), [drawable(interval.name) for interval in intervals])
    axes.set(xlabel=unit, ylim=(len(intervals) - 0.4, -0.6))
    axes.locator_params(axis="x", nbins=5)
    if reference_name:
        axes.legend()


def draw_by_layer(
    values: Mapping[str, Sequence[float]],
    reference: Sequence[float],
    width: float,
    unit: str,
    reference_name: str,
) -> Figure:
    """Draw the values of the heads of each layer as dots, the mean over heads as a line, and a reference value
    per layer."""
    figure, [axes] = make_panels(1, width, 2.2)
    dots = np.array([(row, value) for row, heads in enumerate(values.values()) for value in heads])
    axes.plot(*dots.T, "o", color="C0", alpha=0.6, markeredgewidth=0, label="one head")
    means = [float(np.mean(heads)) for heads in values.values()]
    axes.plot(means, color="C1", marker="_", label="mean of the heads")
    axes.plot(list(reference), color="0.4", linestyle="--", marker="_", label=reference_name)
    letter, line = letter_size()
    rotated = letter * (max(map(len, values)) + 1) * len(values) > width - 0.6 and max(map(len, values)) > 3
    every = label_interval(len(values), width - 0.6, line if rotated else letter * (max(map(len, values)) + 1))
    axes.set_xticks(range(0, len(values), every), list(map(drawable, values))[::every], rotation=90 * rotated)
    axes.set(xlabel="layer", ylabel=unit, xlim=(-0.5, len(values) - 0.5))
    axes.set_ylim(min(0.0, axes.get_ylim()[0]))
    figure.legend(loc="outside upper center", ncols=3)
    return figure


def draw_learning(curves: Mapping[str, Sequence[tuple[int, float]]], width: float) -> Figure:
    """Draw curves over training steps, each in a panel; `curves`: names, and pairs of step and value."""
    figure, panels = make_panels(len(curves), width, 1.7)
    for index, (axes, (name, points)) in enumerate(zip(panels, curves.items(), strict=True)):
        axes.plot(*zip(*points, strict=True), color=f"C{index}", marker="." if len(points) <= CURVES else None)
        axes.set(ylabel=name, xlabel="training step")
        values = [value for _, value in points]
        if "loss" in name and max(values) > 20 * min(values) > 0:
            axes.set_yscale("log")
        else:
            axes.set_ylim(0)
    return figure


def spread_labels(points: np.ndarray, labels: Mapping[int, str], width: float, height: float) -> list[int]:
    """Return the indices in `labels` of points (N, 2) whose labels do not overlap in axes of a size in inches."""
    letter, line = letter_size()
    low, high = points.min(0), points.max(0)
    corners = (points - low) / np.maximum(high - low, 1e-12) * (width, height)
    boxes: list[tuple[float, float, float]] = []
    shown = []
    for index, label in labels.items():
        (x, y), size = corners[index], letter * min(len(label), LABEL_LENGTH)
        if all(x > right or x + size < left or abs(y - other) > line for left, right, other in boxes):
            boxes.append((x, x + size, y))
            shown.append(index)
    return shown


def draw_points(
    points: np.ndarray,
    labels: Mapping[int, str],
    shares: tuple[float, float],
    width: float,
    *,
    grey: Sequence[int],
) -> Figure:
    """Draw points (N, 2), with labels for the points in `labels`, and gray dots for the points in `grey`.

    `shares`: fraction of the variance (0 to 1) along each axis.
    """
    figure, [axes] = make_panels(1, width, min(width, 4.5) * 0.9)
    axes.plot(*points[list(grey)].T, ".", color="0.8", markersize=1.5, zorder=0, rasterized=len(grey) > 500)
    axes.plot(*points[list(labels)].T, "o", color="C0", markersize=1.8)
    for index, label in labels.items():
        place = {"xytext": (1.5, 1.5), "textcoords": "offset points", "fontsize": rcParams["xtick.labelsize"]}
        axes.annotate(label, points[index], **place)
    first, second = (f"component {number} ({share:.1%} of the variance)" for number, share in enumerate(shares, 1))
    axes.set(xlabel=first, ylabel=second)
    axes.margins(0.08)
    return figure


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
                np.pad(_pixels(head, colours, across - 0.035, height - 0.035), ((2, 2), (2, 2), (0, 0))) for head in row
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


SHEET = Path(__file__).with_name("paper.mplstyle")
COLUMN, PAGE_WIDTH = 3.3, 6.9
"""Width of one column and of both columns of a two-column page, in inches."""
WIDTHS = (COLUMN, PAGE_WIDTH)
DISPLAY = ("backend", "interactive", "toolbar", "tk.", "webagg.", "savefig.", "figure.")
"""Prefixes of rcParams that describe the display, not the style. A notebook sets some of these rcParams."""

Row = Mapping[str, str | float | None]


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class PaperFigure(Result):
    """A figure for a paper. `save` writes it; a notebook shows it."""

    kind: str
    caption: str
    """A caption with the content of the figure, its inputs, and omitted parts."""
    data: Sequence[Row] | dict[str, Any]
    """The numbers of the figure: rows of a table, or a dict with matrices."""
    width: float
    """Printed width in inches."""
    draw: Callable[[], Figure]
    """Function that draws the figure with the current rcParams of matplotlib."""
    style: str | Path | None = None

    def figure(self) -> Figure:
        """Return the matplotlib figure, which can be changed by hand."""
        with figure_style(self.style):
            return self.draw()

    def save(self, path: str | Path) -> Path:
        """Write the figure (.pdf, .svg or .png), and its caption and its data to separate files in the same
        folder.

        `fig.pdf` comes with `fig.caption.txt` and with `fig.data.csv` or `fig.data.json`. Fonts are embedded.
        Raises `InputError` for another extension, or a path that cannot be written.
        """
        path = Path(path)
        check_extension(path, PICTURES)
        write_file(path, self._bytes(path.suffix.lower()[1:]))
        caption, data = self.files_beside(path)
        write_file(caption, f"{self.caption}\n".encode())
        write_file(data, self._data_bytes())
        return path

    def files_beside(self, path: str | Path) -> tuple[Path, Path]:
        """Return the paths of caption and data that `save(path)` writes."""
        kind = "json" if isinstance(self.data, dict) else "csv"
        return Path(path).with_suffix(".caption.txt"), Path(path).with_suffix(f".data.{kind}")

    def json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "caption": self.caption,
            "width": self.width,
            "data": to_plain(self.data if isinstance(self.data, dict) else [dict(row) for row in self.data]),
        }

    def summary(self) -> str:
        return f"{self.kind}, {self.width} inches wide"

    def __str__(self) -> str:
        return self.caption

    def _repr_png_(self) -> bytes:
        return self._bytes("png")

    def _bytes(self, format: str) -> bytes:
        with figure_style(self.style):
            return figure_bytes(self.draw(), format, {"caption": self.caption}, dpi=None)

    def _data_bytes(self) -> bytes:
        if isinstance(self.data, dict):
            return (json.dumps(to_plain(self.data), ensure_ascii=False) + "\n").encode()
        file = io.StringIO()
        writer = csv.DictWriter(file, list(self.data[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.data)
        return file.getvalue().encode()


@contextmanager
def figure_style(style: str | Path | None = None) -> Iterator[None]:
    """Apply `paper.mplstyle`, the user's rcParams and a style sheet inside the block, in increasing order of
    precedence.

    `style`: a file, or the name of one of matplotlib's styles. Raises `InputError` if the style sheet cannot be
    read.
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
