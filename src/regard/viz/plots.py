"""Figures of numbers: position vectors, and one value for each head."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from regard.io import write_file
from regard.viz.attention_map import PICTURES, check_extension
from regard.viz.figure import COLOURS, drawable, figure_bytes
from regard.viz.maps import finite

CURVES = 8  # dimensions drawn as curves; more could not be told apart
MARKED = 120  # up to this number of positions, each is marked with a dot


def save_position_plot(
    vectors: np.ndarray, path: str | Path, title: str, *, between: np.ndarray | None = None
) -> Path:
    """Draw position vectors (T, D) into a file: some dimensions as curves, all as a heatmap, and similarity.

    `between`: vectors (N, D) at N evenly spaced places from the first position to the last, for encodings that
    are defined between two positions. Similarity is the cosine of each pair of vectors (0 if one is zero). Raises
    `InputError` for an extension other than .png, .svg and .pdf, or a path that cannot be written.
    """
    path = Path(path)
    check_extension(path, PICTURES)
    write_file(path, draw_position_plot(vectors, title, path.suffix.lower()[1:], between))
    return path


def draw_position_plot(vectors: np.ndarray, title: str, format: str, between: np.ndarray | None = None) -> bytes:
    """Return the figure of `save_position_plot` as the bytes of a file; `format`: png, svg or pdf."""
    time, width = vectors.shape
    figure = Figure(figsize=(13, 4), layout="constrained")
    FigureCanvasAgg(figure)
    curves, dimensions, cosines = figure.subplots(1, 3)
    largest = max(float(np.abs(vectors).max()), 1e-12)
    _draw_curves(curves, vectors, between, largest)
    image = dimensions.imshow(
        vectors.T, aspect="auto", cmap="RdBu", vmin=-largest, vmax=largest, interpolation="nearest"
    )
    dimensions.set(title="all dimensions", xlabel="position", ylabel="dimension")
    figure.colorbar(image, ax=dimensions)
    image = cosines.imshow(similarity(vectors), cmap=COLOURS, vmin=-1, vmax=1, interpolation="nearest")
    cosines.set(title="similarity (cosine)", xlabel="position", ylabel="position")
    figure.colorbar(image, ax=cosines)
    figure.suptitle(f"{drawable(title)}: {time} positions of width {width}")
    return figure_bytes(figure, format)


def _draw_curves(axes: Axes, vectors: np.ndarray, between: np.ndarray | None, largest: float) -> None:
    """Draw some dimensions one below the other, with a dot for every position."""
    time, width = vectors.shape
    curves = vectors if between is None else between
    places, dims = np.linspace(0, time - 1, len(curves)), np.linspace(0, width - 1, CURVES).round().astype(int)
    levels = {int(dim): -2.4 * index for index, dim in enumerate(np.unique(dims))}
    for dim, level in levels.items():
        (line,) = axes.plot(places, curves[:, dim] / largest + level, linewidth=1)
        axes.axhline(level, color="0.85", linewidth=0.5, zorder=0)
        if time <= MARKED:
            axes.plot(vectors[:, dim] / largest + level, ".", color=line.get_color(), markersize=3)
    axes.set(title=f"waves, each from -{largest:.3g} to {largest:.3g}", xlabel="position", ylabel="dimension")
    axes.set_yticks(list(levels.values()), [str(dim) for dim in levels])


def similarity(vectors: np.ndarray) -> np.ndarray:
    """Return the cosine of each pair of vectors (T, D): (T, T), 0 if one of them is zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    cosines: np.ndarray = unit @ unit.T
    return cosines


def draw_head_table(values: Mapping[str, Sequence[float]], title: str, format: str) -> bytes:
    """Draw a heatmap with one value for each head and a row for each layer; return the bytes of a file.

    Colours go from blue through white, which is 0, to red.
    """
    columns = max(map(len, values.values()))
    table = np.full((len(values), columns), np.nan)
    for row, head_values in enumerate(values.values()):
        table[row, : len(head_values)] = head_values
    size = (max(columns * 0.5 + 3.5, 6.0), max(len(values) * 0.35 + 1.4, 2.4))
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    largest = max(float(np.abs(finite(table)).max(initial=0.0)), 1e-9)
    image = axes.imshow(table, cmap="RdBu_r", vmin=-largest, vmax=largest, aspect="auto")
    axes.set_xticks(range(columns), [str(head) for head in range(columns)], fontsize=7)
    axes.set_yticks(range(len(values)), list(map(drawable, values)), fontsize=7)
    axes.set_xlabel("head", fontsize=8)
    axes.set_title("\n".join(textwrap.wrap(drawable(title), int(size[0] * 12))), fontsize=8)
    figure.colorbar(image, ax=axes, shrink=0.8)
    return figure_bytes(figure, format)
