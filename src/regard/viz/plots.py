"""Plots of values of heads, intervals, curves over training, position vectors and embeddings."""

import csv
import io
import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from regard.arguments import public
from regard.io import write_file
from regard.result import Result, to_plain
from regard.statistics import Interval
from regard.viz.attention_map import PICTURES, check_extension
from regard.viz.figure import (
    PAGE_WIDTH,
    drawable,
    figure_bytes,
    figure_style,
    label_interval,
    letter_size,
    new_figure,
    weight_colours,
)
from regard.viz.heatmaps import LABEL_LENGTH
from regard.viz.maps import finite

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

    @classmethod
    def of(cls, name: str, interval: Interval, scale: float = 1) -> "ValueInterval":
        """Return an interval of `regard.statistics`, without width if its ends are unknown, times `scale`."""
        value, low, high = interval.value, interval.low, interval.high
        return cls(
            name, scale * value, scale * (value if low is None else low), scale * (value if high is None else high)
        )


def make_panels(count: int, width: float, height: float, **options: Any) -> tuple[Figure, list[Axes]]:
    wide = width >= NARROW
    figure = new_figure(width, height if wide else height * count)
    return figure, list(figure.subplots(*((1, count) if wide else (count, 1)), squeeze=False, **options).flat)


def draw_positions(vectors: np.ndarray, width: float, between: np.ndarray | None = None) -> Figure:
    """Draw position vectors (T, D): some dimensions as curves, all as a heatmap, and the similarity of vectors.

    `between`: vectors (N, D) at N evenly spaced places from the first position to the last, for encodings that
    are defined between two positions. Similarity is the cosine of each pair of vectors (0 if one vector is zero).
    Curves and colors end at `position_scale`.
    """
    figure, (curves, dimensions, cosines) = make_panels(3, width, 2.1)
    largest = position_scale(vectors)
    # Some dimensions as curves, one below the other, with a dot for every position
    shown = np.clip((vectors if between is None else between) / largest, -1, 1)
    places = np.linspace(0, len(vectors) - 1, len(shown))
    levels = {dim: -2.4 * index for index, dim in enumerate(drawn_dimensions(vectors.shape[1]))}
    for index, (dim, level) in enumerate(levels.items()):
        curves.plot(places, shown[:, dim] + level, color=f"C{index}")
        curves.axhline(level, color="0.85", linewidth=0.5, zorder=0)
        if len(vectors) <= MARKED:
            dots = np.clip(vectors[:, dim] / largest, -1, 1) + level
            curves.plot(dots, ".", color=f"C{index}", markersize=2)
    curves.set(title=f"curves, each from -{largest:.3g} to {largest:.3g}", xlabel="position", ylabel="dimension")
    curves.set_yticks(list(levels.values()), [str(dim) for dim in levels])
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
    """Return the end of the scale of position vectors: their 99.5 % quantile, or the largest of few."""
    sizes = np.abs(vectors)
    most, largest = float(np.percentile(sizes, 99.5)), max(float(sizes.max()), 1e-12)
    return most if largest > 1.5 * most > 0 else largest


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


def draw_intervals(axes: Axes, intervals: Sequence[ValueInterval], unit: str) -> None:
    """Draw values with their intervals, from top to bottom, and a vertical line at 0."""
    for row, (_, value, low, high) in enumerate(intervals):
        axes.plot([low, high], [row, row], color="C0")
        axes.plot([value], [row], "o", color="C0")
    axes.axvline(0.0, color="C1", linestyle="--", linewidth=0.8)
    axes.set_yticks(range(len(intervals)), [drawable(interval.name) for interval in intervals])
    axes.set(xlabel=unit, ylim=(len(intervals) - 0.4, -0.6))
    axes.locator_params(axis="x", nbins=5)


def draw_rows(
    series: Mapping[str, Sequence[ValueInterval]], width: float, unit: str, reference: float = 0.0, name: str = ""
) -> Figure:
    """Draw values with their intervals in rows that are not joined, with a color for each series. Values with the
    same name share a row. `reference`: a vertical line, with a name in the legend."""
    names = {row.name: None for rows in series.values() for row in rows}
    places = {row: place for place, row in enumerate(names)}
    figure, [axes] = make_panels(1, width, 1.2 + len(names) * (0.1 + 0.14 * len(series)))
    for number, (label, rows) in enumerate(series.items()):
        shift, colour = 0.6 * ((number + 0.5) / len(series) - 0.5), f"C{number % 7}"
        heights = [places[row.name] + shift for row in rows]
        axes.hlines(heights, [row.low for row in rows], [row.high for row in rows], color=colour)
        axes.plot([row.value for row in rows], heights, "o", color=colour, markersize=4.5, label=label)
    axes.axvline(reference, color="C1" if name else "0.5", linestyle="--", linewidth=0.8, label=name)
    axes.set_yticks(range(len(names)), list(map(drawable, names)))
    room = max(width - 0.08 * max(map(len, names)), 1.2)
    axes.set(xlabel="\n".join(textwrap.wrap(unit, int(12 * room))), ylim=(len(names) - 0.4, -0.6))
    axes.locator_params(axis="x", nbins=5)
    axes.grid(axis="x", alpha=0.3)
    if name or len(series) > 1:
        figure.legend(loc="outside upper left", ncols=max(int(width // 2.4), 1))
    return figure


def better_colours() -> LinearSegmentedColormap:
    """Return colors from worse (red) through the color of the page, light or dark, to better (blue)."""
    return LinearSegmentedColormap.from_list("better", ["#b2182b", rcParams["axes.facecolor"], "#2166ac"])


def letter_colour(share: float) -> str:
    """Return the color of text on `better_colours`, at a share from -1 to 1 of the scale."""
    return "white" if abs(share) > 0.84 else str(rcParams["text.color"])


def draw_by_layer(
    values: Mapping[str, Sequence[float]], reference: Sequence[float], width: float, unit: str, reference_name: str
) -> Figure:
    """Draw the values of each layer's heads as dots, and their mean and a reference value as marks."""
    figure, [axes] = make_panels(1, width, 2.2)
    dots = np.array([(row, value) for row, heads in enumerate(values.values()) for value in heads])
    axes.plot(*dots.T, "o", color="C0", alpha=0.6, markeredgewidth=0, label="one head")
    means = [float(np.mean(heads)) for heads in values.values()]
    for marks, colour, name in ((means, "C1", "mean of the heads"), (list(reference), "0.4", reference_name)):
        axes.plot(marks, "_", color=colour, markersize=12, markeredgewidth=2, label=name)
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
    points: np.ndarray, labels: Mapping[int, str], shares: tuple[float, float], width: float, *, grey: Sequence[int]
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
        """Write the figure (.pdf, .svg or .png), and its caption and data to files in the same folder.

        `fig.pdf` comes with `fig.caption.txt` and with `fig.data.csv` or `fig.data.json`. Fonts are embedded.
        Raises `InputError` for another extension, or a path that cannot be written.
        """
        path = Path(path)
        check_extension(path, PICTURES)
        write_file(path, self._bytes(path.suffix.lower()[1:]))
        caption, data = self.files_beside(path)
        write_file(caption, f"{self.caption}\n".encode(errors="replace"))
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
            return (json.dumps(to_plain(self.data), ensure_ascii=False) + "\n").encode(errors="replace")
        file = io.StringIO()
        writer = csv.DictWriter(file, list(self.data[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.data)
        return file.getvalue().encode(errors="replace")


def head_figure(
    values: Mapping[str, Sequence[float]], caption: str, unit: str, others: Mapping[str, float] | None = None
) -> PaperFigure:
    """Return a heatmap of one value per head, with a row for each layer. `unit`: what a value is; `others`: values of
    whole layers and of parts without heads, which are in the data only."""
    width = min(2.4 + 0.35 * max(map(len, values.values())), PAGE_WIDTH)

    def draw() -> Figure:
        figure, [axes] = make_panels(1, width, min(0.8 + 0.2 * len(values), 8.0))
        figure.colorbar(draw_head_matrix(axes, values, signed=True), ax=axes, label=drawable(unit))
        return figure

    cells: list[tuple[str, int | str, float]]
    cells = [(name, head, value) for name, row in values.items() for head, value in enumerate(row)]
    cells += [(name, "all", value) for name, value in (others or {}).items()]
    data: list[Row] = [{"layer": name, "head": head, unit: value} for name, head, value in cells]
    return PaperFigure(kind="heads", caption=caption, data=data, width=width, draw=draw)
