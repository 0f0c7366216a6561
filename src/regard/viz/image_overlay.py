"""Attention to the patches of an image as a figure (matplotlib), with a copy of the image for each head.

The figure shows the weights of the class token, or the mean over all patches if there is no class token.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from regard.viz.figure import NOT_FINITE, drawable
from regard.viz.labels import intervention_lines
from regard.viz.maps import LayerMap, Map, finite

LARGEST = (255, 106, 0)
"""Color of the largest weight, as in `js/overlay.js`: an orange that differs from light and dark grays."""
OPACITY = 0.85  # of the largest weight, so that the image remains visible
# All lengths are in inches.
SIDE = 1.5  # width of an image if there is room
MAX_WIDTH = 30.0  # of all images of a row
HEADER, MARGIN, GAP, CAPTION_LINE, TITLE = 0.65, 0.2, 0.12, 0.16, 0.36


def has_patches(attention: Map) -> bool:
    return attention.pixels is not None and any(layer.patches for layer in attention.plotted_layers)


def patch_weights(layer: LayerMap) -> np.ndarray:
    """Return the weight of each patch (H, rows, columns) for the class token, or as the mean over all queries."""
    assert layer.patches is not None
    first, rows, columns = layer.patches
    weights = layer.weights[:, 0] if first else layer.weights.mean(1)
    patches: np.ndarray = weights[:, first : first + rows * columns].reshape(-1, rows, columns)
    return patches


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
    side = min(SIDE, MAX_WIDTH / columns)
    high = side * pixels.shape[0] / pixels.shape[1]
    width = max(2 * MARGIN + columns * (side + GAP), 5.0)
    caption = intervention_lines(attention)
    height = HEADER + len(layers) * (high + TITLE) + MARGIN + CAPTION_LINE * len(caption)
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1), frameon=False)
    axes.set(xticks=[], yticks=[])
    axes.text(MARGIN, MARGIN, _header(attention, layers), fontsize=9, va="top")
    axes.text(MARGIN, height - MARGIN / 2, "\n".join(map(drawable, caption)), fontsize=8, va="bottom")
    _draw_image(axes, pixels, (MARGIN, HEADER + TITLE, side, high), "the image")
    for row, layer in enumerate(layers):
        weights = patch_weights(layer)
        largest = max(float(finite(weights).max(initial=0.0)), 1e-9)
        for head, head_weights in enumerate(weights):
            left, top = MARGIN + (head + 1) * (side + GAP), HEADER + TITLE + row * (high + TITLE)
            layer_title = "" if head else f"{drawable(layer.title)}, 0 to {largest:.3f}\n"
            title = f"{layer_title}head {layer.head_number(head)}"
            _draw_image(axes, blend(pixels, head_weights / largest), (left, top, side, high), title)
    axes.set(xlim=(0, width), ylim=(height, 0))
    return figure


def _header(attention: Map, layers: Sequence[LayerMap]) -> str:
    answer = "" if attention.prediction is None else f", prediction {attention.prediction!r}"
    return f"{drawable(f'{attention.task}: {attention.input}{answer}')}\nColor: {query_description(layers[0])}"


def query_description(layer: LayerMap) -> str:
    if layer.patches is not None and layer.patches.first:
        return f"weights of {drawable(layer.query_labels[0])}, from 0 to the largest weight of the layer"
    return "mean weights of all patches, from 0 to the largest weight of the layer"


def _draw_image(axes: Axes, image: np.ndarray, box: tuple[float, float, float, float], title: str) -> None:
    left, top, width, height = box
    axes.imshow(image, extent=(left, left + width, top + height, top), interpolation="none", aspect="auto")
    axes.text(left, top - 0.03, title, fontsize=7, va="bottom")
