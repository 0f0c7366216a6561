"""Pictures of positions: the vectors as waves over the sequence, and how alike each two positions are."""

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from regard.files import write_file
from regard.inspection.endings import PICTURES, check_ending
from regard.inspection.glyphs import drawable
from regard.inspection.picture import COLOURS, figure_bytes

SHOWN = 8
"""Dimensions drawn as waves: more than a few cannot be told apart."""


def save_positions(vectors: np.ndarray, path: str | Path, title: str) -> Path:
    """Draw position vectors (T, D) into a picture: waves of some dimensions, all as a map, and similarity.

    Similarity is the cosine of each two vectors (0 where one is zero). Raises `InputError` for an ending that
    is no picture, or a path that cannot be written.
    """
    path = Path(path)
    check_ending(path, PICTURES)
    write_file(path, draw_positions(vectors, title, path.suffix.lower()[1:]))
    return path


def draw_positions(vectors: np.ndarray, title: str, format: str) -> bytes:
    """Return the picture of `plot_positions` as the bytes of a file; `format`: png, svg or pdf."""
    time, width = vectors.shape
    figure = Figure(figsize=(13, 4), layout="constrained")
    FigureCanvasAgg(figure)
    waves, every, alike = figure.subplots(1, 3)
    for dim in np.unique(np.linspace(0, width - 1, SHOWN).round().astype(int)):
        waves.plot(vectors[:, dim], label=f"dimension {dim}", linewidth=1)
    waves.set(title="waves", xlabel="position", ylabel="value")
    waves.legend(fontsize=6, loc="upper right")
    largest = max(float(np.abs(vectors).max()), 1e-12)
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


def similarity(vectors: np.ndarray) -> np.ndarray:
    """Return the cosine of each two of vectors (T, D): (T, T), 0 where one of them is zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    found: np.ndarray = unit @ unit.T
    return found
