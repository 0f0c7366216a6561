"""Pictures of positions: the vectors as waves over the sequence, and how alike each two positions are."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from regard.io import write_file
from regard.viz.endings import PICTURES, check_ending
from regard.viz.glyphs import drawable
from regard.viz.picture import COLOURS, figure_bytes

SHOWN = 8
"""Dimensions drawn as waves: more than a few cannot be told apart."""
MARKED = 120
"""Positions at most that are marked with a dot each."""


def save_positions(
    vectors: np.ndarray, path: str | Path, title: str, *, between: np.ndarray | None = None
) -> Path:
    """Draw position vectors (T, D) into a picture: waves of some dimensions, all as a map, and similarity.

    `between`: vectors (N, D) at N places evenly from the first position to the last, where there is something
    between two positions. Similarity is the cosine of each two vectors (0 where one is zero). Raises `InputError`
    for an ending that is no picture, or a path that cannot be written.
    """
    path = Path(path)
    check_ending(path, PICTURES)
    write_file(path, draw_positions(vectors, title, path.suffix.lower()[1:], between))
    return path


def draw_positions(vectors: np.ndarray, title: str, format: str, between: np.ndarray | None = None) -> bytes:
    """Return the picture of `plot_positions` as the bytes of a file; `format`: png, svg or pdf."""
    time, width = vectors.shape
    figure = Figure(figsize=(13, 4), layout="constrained")
    FigureCanvasAgg(figure)
    waves, every, alike = figure.subplots(1, 3)
    largest = max(float(np.abs(vectors).max()), 1e-12)
    _draw_waves(waves, vectors, between, largest)
    shown = every.imshow(
        vectors.T, aspect="auto", cmap="RdBu", vmin=-largest, vmax=largest, interpolation="nearest"
    )
    every.set(title="all dimensions", xlabel="position", ylabel="dimension")
    figure.colorbar(shown, ax=every)
    shown = alike.imshow(similarity(vectors), cmap=COLOURS, vmin=-1, vmax=1, interpolation="nearest")
    alike.set(title="similarity (cosine)", xlabel="position", ylabel="position")
    figure.colorbar(shown, ax=alike)
    figure.suptitle(f"{drawable(title)}: {time} positions of width {width}")
    return figure_bytes(figure, format)


def _draw_waves(axes: Any, vectors: np.ndarray, between: np.ndarray | None, largest: float) -> None:
    """Draw some dimensions one below the other, each between its own two lines: a dot for every position."""
    time, width = vectors.shape
    curves = vectors if between is None else between
    places, dims = np.linspace(0, time - 1, len(curves)), np.linspace(0, width - 1, SHOWN).round().astype(int)
    levels = {int(dim): -2.4 * place for place, dim in enumerate(np.unique(dims))}
    for dim, level in levels.items():
        (line,) = axes.plot(places, curves[:, dim] / largest + level, linewidth=1)
        axes.axhline(level, color="0.85", linewidth=0.5, zorder=0)
        if time <= MARKED:
            axes.plot(vectors[:, dim] / largest + level, ".", color=line.get_color(), markersize=3)
    axes.set(title=f"waves, each from -{largest:.3g} to {largest:.3g}", xlabel="position", ylabel="dimension")
    axes.set_yticks(list(levels.values()), [str(dim) for dim in levels])


def similarity(vectors: np.ndarray) -> np.ndarray:
    """Return the cosine of each two of vectors (T, D): (T, T), 0 where one of them is zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    found: np.ndarray = unit @ unit.T
    return found
