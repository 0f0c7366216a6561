"""Attention maps as static pictures (matplotlib): a row of panels for each layer, a panel for each head."""

import io

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from regard.inspection.glyphs import drawable
from regard.inspection.maps import LayerMap, Map
from regard.inspection.palette import shades

COLOURS = ListedColormap(shades(256), name="regard")
"""Those of the page: from the paper to dark blue, in an order that colour-blind eyes and grey keep."""
CELL = 0.24
"""Side of one weight, inches."""

LONG = 4
"""Characters of a label above which labels stand upright."""


def draw(attention: Map, format: str) -> bytes:
    """Return the picture of a map as the bytes of a file; `format`: png, svg or pdf.

    All panels share one colour scale, from 0 to the largest weight. A white dot marks an input that the
    output step depends on.
    """
    layers = attention.drawn
    columns = max(len(layer.weights) for layer in layers)
    widths = max(len(layer.key_labels) for layer in layers) * CELL + 1.1
    heights = [len(layer.query_labels) * CELL + 0.8 for layer in layers]
    figure = Figure(figsize=(max(columns * widths + 1.0, 5.0), sum(heights) + 0.9), layout="constrained")
    FigureCanvasAgg(figure)
    largest = max(float(layer.weights.max()) for layer in layers)
    axes = figure.subplots(len(layers), columns, squeeze=False, height_ratios=heights)
    image = None
    for row, layer in zip(axes, layers, strict=True):
        for head, panel in enumerate(row):
            if head < len(layer.weights):
                image = _panel(panel, layer, head, largest)
            else:
                panel.set_visible(False)
    assert image is not None
    figure.colorbar(image, ax=axes, label="weight", shrink=0.6, aspect=30)
    if attention.prediction is not None:
        said = f"prediction {_said(attention.prediction)}, truth {_said(attention.truth)}"
        figure.suptitle(drawable(f"{attention.task}: {attention.input!r}    {said}"), fontsize=10)
    return figure_bytes(figure, format)


def figure_bytes(figure: Figure, format: str) -> bytes:
    """Return a figure as the bytes of a file, without its date: the same figure makes the same file."""
    file = io.BytesIO()
    metadata = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[format]
    with rc_context({"svg.hashsalt": "regard"}):  # names of its parts are otherwise drawn by lot
        figure.savefig(file, format=format, dpi=160, metadata=metadata)
    return file.getvalue()


def _panel(panel: Axes, layer: LayerMap, head: int, largest: float) -> AxesImage:
    image = panel.imshow(layer.weights[head], cmap=COLOURS, vmin=0.0, vmax=largest, aspect="equal")
    panel.set_title(f"{drawable(layer.title)}\nhead {head}", fontsize=7)
    # Words stand upright, so as not to run into each other.
    rotation = 90 if max(map(len, layer.key_labels)) > LONG else 0
    panel.set_xticks(
        range(len(layer.key_labels)), list(map(drawable, layer.key_labels)), fontsize=7, rotation=rotation
    )
    panel.set_yticks(range(len(layer.query_labels)), list(map(drawable, layer.query_labels)), fontsize=7)
    panel.tick_params(length=0)
    if layer.relevant is not None:
        queries, keys = np.nonzero(layer.relevant)
        panel.scatter(keys, queries, s=6, c="white", edgecolors="black", linewidths=0.4)
    return image


def _said(answer: list[int] | str | None) -> str:
    if answer is None:
        return "unknown"
    return repr(answer) if isinstance(answer, str) else " ".join(map(str, answer))
