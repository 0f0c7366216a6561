"""Attention maps as static pictures (matplotlib): a row of panels for each layer, a panel for each head."""

import io
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from regard.inspection.glyphs import drawable
from regard.inspection.maps import LayerMap, Map

COLOURS = "viridis"
"""Keeps its order for colour-blind eyes and in grey."""
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


def draw_table(values: Mapping[str, Sequence[float]], title: str, format: str) -> bytes:
    """Return a heatmap of a value for each head, a row for each layer, as the bytes of a file.

    Colours go from blue over white, which is nothing, to red.
    """
    columns = max(map(len, values.values()))
    table = np.full((len(values), columns), np.nan)
    for row, each in enumerate(values.values()):
        table[row, : len(each)] = each
    size = (max(columns * 0.5 + 3.5, 6.0), max(len(values) * 0.35 + 1.4, 2.4))
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    panel = figure.subplots()
    most = max(float(np.nanmax(np.abs(table))), 1e-9)
    image = panel.imshow(table, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto")
    panel.set_xticks(range(columns), [str(head) for head in range(columns)], fontsize=7)
    panel.set_yticks(range(len(values)), list(map(drawable, values)), fontsize=7)
    panel.set_xlabel("head", fontsize=8)
    panel.set_title("\n".join(textwrap.wrap(drawable(title), int(size[0] * 12))), fontsize=8)
    figure.colorbar(image, ax=panel, shrink=0.8)
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
    panel.set_title(f"{drawable(layer.title)}\nhead {layer.number(head)}", fontsize=7)
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
