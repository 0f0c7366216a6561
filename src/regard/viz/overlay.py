"""Attention over the patches of a picture, as a static picture (matplotlib): for each head the picture, with the
weights of one query upon its patches.

That query is the step that stands for the whole picture, where there is one; else the mean of all patches.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from regard.viz.facts import changed_lines
from regard.viz.glyphs import drawable
from regard.viz.maps import LayerMap, Map, finite

LIT = (255, 106, 0)
"""Colour of the largest weight, the same as in `view/overlay.js`: far from grey on light and dark pictures."""
BROKEN = (194, 24, 91)
"""Colour of a weight that is not finite, as in `view/colours.js`."""
THICK = 0.85
"""How much of the colour there is where the weight is largest; the picture shows through."""
SIDE = 1.5
"""Inches that a picture is wide, where there is room."""
WIDEST = 30.0
"""Inches of all pictures beside each other, at most."""
ABOVE, AROUND, GAP = 0.65, 0.2, 0.12
"""Inches: of what was answered, around all, and between pictures."""
BELOW = 0.16
"""Inches of a line below the pictures."""
TITLE = 0.36
"""Inches of what a head is called."""


def has_patches(attention: Map) -> bool:
    """Say whether a map can be drawn upon the picture that was given."""
    return attention.pixels is not None and any(layer.patches for layer in attention.drawn)


def weights_on_patches(layer: LayerMap) -> np.ndarray:
    """Return what each head puts on each patch, (H, rows, columns): of the step for the whole picture, or where
    there is none the mean of all queries."""
    assert layer.patches is not None
    first, rows, columns = layer.patches
    seen = layer.weights[:, 0] if first else layer.weights.mean(1)
    found: np.ndarray = seen[:, first : first + rows * columns].reshape(-1, rows, columns)
    return found


def lit(pixels: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return a picture (height, width, 3) in grey, coloured by shares (rows, columns) from 0 to 1."""
    high, wide = pixels.shape[:2]
    rows = np.arange(high) * shares.shape[0] // high
    columns = np.arange(wide) * shares.shape[1] // wide
    shares = shares[rows][:, columns, None]
    thick = THICK * np.where(np.isfinite(shares), shares, 1)
    colour = np.where(np.isfinite(shares), LIT, BROKEN)
    grey = pixels @ np.array([0.299, 0.587, 0.114])
    found: np.ndarray = (grey[..., None] * (1 - thick) + colour * thick).astype(np.uint8)
    return found


def draw_on_picture(attention: Map) -> Figure:
    """Return the figure of a map: a row for each layer, on a scale of its own, the picture for each head."""
    pixels = attention.pixels
    assert pixels is not None
    layers = [layer for layer in attention.drawn if layer.patches is not None]
    columns = max(len(layer.weights) for layer in layers) + 1
    side = min(SIDE, WIDEST / columns)
    high = side * pixels.shape[0] / pixels.shape[1]
    width = max(2 * AROUND + columns * (side + GAP), 5.0)
    below = changed_lines(attention)
    height = ABOVE + len(layers) * (high + TITLE) + AROUND + BELOW * len(below)
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    canvas = figure.add_axes((0, 0, 1, 1), frameon=False)
    canvas.set(xticks=[], yticks=[])
    canvas.text(AROUND, AROUND, said_of(attention, layers), fontsize=9, va="top")
    foot = height - AROUND / 2
    canvas.text(AROUND, foot, "\n".join(map(drawable, below)), fontsize=8, va="bottom")
    _place(canvas, pixels, (AROUND, ABOVE + TITLE, side, high), "the picture")
    for row, layer in enumerate(layers):
        weights = weights_on_patches(layer)
        largest = max(float(finite(weights).max(initial=0.0)), 1e-9)
        for head, each in enumerate(weights):
            left, top = AROUND + (head + 1) * (side + GAP), ABOVE + TITLE + row * (high + TITLE)
            said = "" if head else f"{drawable(layer.title)}, 0 to {largest:.3f}\n"
            place = (left, top, side, high)
            _place(canvas, lit(pixels, each / largest), place, f"{said}head {layer.number(head)}")
    canvas.set(xlim=(0, width), ylim=(height, 0))
    return figure


def said_of(attention: Map, layers: Sequence[LayerMap]) -> str:
    """Say what was answered, and whose weights are drawn."""
    answered = "" if attention.prediction is None else f", prediction {attention.prediction!r}"
    return f"{drawable(f'{attention.task}: {attention.input}{answered}')}\nColour: {looker(layers[0])}"


def looker(layer: LayerMap) -> str:
    """Say whose weights `weights_on_patches` returns."""
    if layer.patches is not None and layer.patches.first:
        return f"what {drawable(layer.query_labels[0])} looks at, from no weight to the largest of the layer"
    return "what all patches look at on average, from no weight to the largest of the layer"


def _place(canvas: Axes, image: np.ndarray, place: tuple[float, float, float, float], title: str) -> None:
    left, top, width, height = place
    canvas.imshow(image, extent=(left, left + width, top + height, top), interpolation="none", aspect="auto")
    canvas.text(left, top - 0.03, title, fontsize=7, va="bottom")
