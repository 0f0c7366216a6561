"""Attention maps as static pictures (matplotlib): a row of panels for each layer, a panel for each head.

All panels are cut out of one image on one pair of axes, and what would run together or be too small to read is
left out: so a hundred heads take seconds.
"""

import io
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from rich.cells import cell_len, set_cell_size

from regard.viz.facts import changed_lines, facts_of, shown_label, spelled
from regard.viz.glyphs import drawable, use_fonts
from regard.viz.maps import UNFINITE, LayerMap, Map, finite
from regard.viz.overlay import BROKEN, draw_on_picture, has_patches
from regard.viz.palette import shades

COLOURS = ListedColormap(shades(256), name="regard").with_extremes(bad="#{:02x}{:02x}{:02x}".format(*BROKEN))
"""Those of the page: from the paper to dark blue, in an order that colour-blind eyes and grey keep. A weight that
is not finite is magenta."""
MAGENTA = " (magenta)"
CELL = 0.24
"""Side of one weight, inches, where there is room."""
SIDE = 27.0
"""Inches that a picture is wide or high at most, its margins left out; smaller panels then."""
LEAST = 0.9
"""Inches that a panel is wide or high at least."""
DOTS = 160
"""For each inch."""
LETTER = 0.065
"""Inches of a letter of a label."""
LONG = 4
"""Characters of a label above which labels stand upright; those of Chinese and the like count twice."""
LONGEST = 18
"""Characters of a label that are written."""
APART = 0.1
"""Inches between two labels at least."""
NAMED, NAMED_HEADS = 64, 8
"""Tokens up to which each is named, whatever room that takes, of so many heads beside each other."""
FEW = 16
"""Panels up to which each has labels of its own on its left."""
QUICK: dict[str, Any] = {"png": {"pil_kwargs": {"compress_level": 2}}}
"""Half the time of a large picture is its compression; it gets a little larger so."""
MARGIN, GAP, TITLE, SCALE, SAID, BELOW = 0.2, 0.2, 0.4, 0.8, 0.45, 0.16
"""Inches: around the picture, between panels, of a panel's title, of the scale of colours, of the answer, and of
a line below the panels."""


def draw(attention: Map, format: str) -> bytes:
    """Return the picture of a map as the bytes of a file; `format`: png, svg or pdf.

    All panels share one colour scale, from 0 to the largest weight; a first step that can only look at itself is
    left out of it, for all others would be pale. A weight that is not finite is magenta. A white dot marks an
    input that the output step depends on. Of more weights than dots, the largest of each square is drawn. Of a
    picture, weights lie upon its patches (`overlay`).
    """
    if has_patches(attention):
        scale = "from 0 to the largest weight on a patch, of each layer its own"
        facts = facts_of(attention, attention.drawn, scale)
        return figure_bytes(draw_on_picture(attention), format, facts)
    layers = attention.drawn
    largest = max(_scale(layer.weights) for layer in layers) or 1.0
    more = any(finite(layer.weights).max(initial=0.0) > largest for layer in layers)
    scale = f"weight 0 to {largest:.3f}{' and more' if more else ''}, the same for all panels"
    plan = _Plan(layers, said=attention.prediction is not None)
    marked = MAGENTA if UNFINITE in (attention.note or "") else ""
    below = [f"Note: {attention.note}{marked}"] if attention.note else []
    below += [*changed_lines(attention), f"Colours: {scale}{plan.left_out}"]
    letters = int((plan.width - 2 * MARGIN) / LETTER)
    caption = [line for each in below for line in textwrap.wrap(drawable(each), letters)]
    plan.height += BELOW * len(caption)
    figure = Figure(figsize=(plan.width, plan.height))
    FigureCanvasAgg(figure)
    canvas = figure.add_axes((0, 0, 1, 1), frameon=False)
    canvas.set(xlim=(0, plan.width), ylim=(plan.height, 0), xticks=[], yticks=[])
    colours = ScalarMappable(Normalize(0.0, largest), COLOURS)
    for panel in plan.panels():
        _panel(canvas, panel, colours)
    bar = figure.add_axes((1 - SCALE / plan.width, 0.2, 0.15 / plan.width, 0.6))
    figure.colorbar(colours, cax=bar, label="weight", extend="max" if more else "neither")
    bar.tick_params(labelsize=7)
    if attention.prediction is not None:
        said = f"prediction {spelled(attention.prediction)}, truth {spelled(attention.truth)}"
        words = drawable(f"{attention.task}: {attention.input!r}    {said}")
        lines = "\n".join(textwrap.wrap(words, max(int(plan.width / LETTER * 0.8), 40))[:2])
        canvas.text(MARGIN, MARGIN, lines, fontsize=10, va="top")
    canvas.text(MARGIN, plan.tops[-1], "\n".join(caption), fontsize=8, va="top")
    return figure_bytes(figure, format, facts_of(attention, layers, scale))


def _scale(weights: np.ndarray) -> float:
    """Return what the strongest colour stands for."""
    _, queries, keys = weights.shape
    weights = finite(weights)
    causal = queries == keys > 1 and not weights[:, 0, 1:].any() and not weights[:, 1, 2:].any()
    return float(weights[:, 1:].max(initial=0.0) if causal else weights.max(initial=0.0))


class _Panel(NamedTuple):
    """One head, and where it stands: inches from the left and the top."""

    layer: LayerMap
    head: int
    left: float
    top: float
    width: float
    height: float
    labelled: bool
    """Whether its queries are named."""
    under: bool
    """Whether its keys are."""


class _Plan:
    """What goes where."""

    def __init__(self, layers: Sequence[LayerMap], *, said: bool) -> None:
        first = MARGIN + SAID * said
        self.layers = layers
        self.columns = max(len(layer.weights) for layer in layers)
        self.each = self.columns * len(layers) <= FEW
        queries, keys = (
            [len(getattr(layer, side)) for layer in layers] for side in ("query_labels", "key_labels")
        )
        self.cell = min(CELL, SIDE / self.columns / max(keys), SIDE / sum(queries))
        if max(*keys, *queries) <= NAMED and self.columns <= NAMED_HEADS:
            self.cell = max(self.cell, APART)  # every label is written
        self.widths = [max(count * self.cell, LEAST) for count in keys]
        self.heights = [max(count * self.cell, LEAST) for count in queries]
        self.left = max(_room(layer.query_labels) for layer in layers)
        self.under = [
            self.each or number == len(layers) - 1 or _other(layers, number) for number in range(len(layers))
        ]
        """Of each row, whether keys are named below it: not where those of the next row are the same."""
        self.below = [
            GAP + _height(layer.key_labels) * under for layer, under in zip(layers, self.under, strict=True)
        ]
        self.beside = (self.left if self.each else 0) + GAP
        rows = [TITLE + high + below for high, below in zip(self.heights, self.below, strict=True)]
        self.tops = [first, *(first + each for each in accumulate(rows))]
        self.width = max(MARGIN * 2 + self.left + self.columns * (max(self.widths) + self.beside) + SCALE, 5.0)
        self.height = self.tops[-1] + MARGIN
        sides = [*zip(keys, self.widths, strict=True), *zip(queries, self.heights, strict=True)]
        every = max(_every(count, side) for count, side in sides)
        self.left_out = f"; 1 in {every} steps is named where there is no room" if every > 1 else ""

    def panels(self) -> Iterator[_Panel]:
        """Yield each head with its place."""
        step = max(self.widths) + self.beside
        for row, layer in enumerate(self.layers):
            for head in range(len(layer.weights)):
                left, top = MARGIN + self.left + head * step, self.tops[row] + TITLE
                place = (left, top, self.widths[row], self.heights[row])
                yield _Panel(layer, head, *place, self.each or not head, self.under[row])


def _other(layers: Sequence[LayerMap], row: int) -> bool:
    """Say whether the keys of a row are others than those of the next one."""
    return layers[row].key_labels != layers[row + 1].key_labels


def _room(labels: Sequence[str]) -> float:
    return 0.1 + LETTER * min(max(map(cell_len, labels)), LONGEST)


def _height(labels: Sequence[str]) -> float:
    """Return how much room keys need below a panel: words stand upright, so as not to run into each other."""
    return _room(labels) if max(map(cell_len, labels)) > LONG else 0.2


def _panel(canvas: Axes, panel: _Panel, colours: ScalarMappable) -> None:
    layer, left, top = panel.layer, panel.left, panel.top
    right, bottom = left + panel.width, top + panel.height
    weights = layer.weights[panel.head]
    shown = _fitted(np.where(np.isfinite(weights), weights, np.nan), int(max(panel.width, panel.height) * DOTS))
    canvas.imshow(
        colours.to_rgba(shown, bytes=True), extent=(left, right, bottom, top), interpolation="none", aspect="auto"
    )
    title = f"{drawable(layer.title)}\n" if panel.labelled else ""
    room = int((panel.width + GAP) / LETTER)
    title = title if len(title) <= room or not panel.head else ""
    canvas.text(left, top - 0.05, f"{title}{layer.called(panel.head)}", fontsize=7, va="bottom")
    queries, keys = layer.weights.shape[1:]
    upright = max(map(cell_len, layer.key_labels)) > LONG
    for key, label in _named(layer.key_labels, panel.width) if panel.under else ():
        place = left + (key + 0.5) * panel.width / keys
        canvas.text(place, bottom + 0.04, label, fontsize=7, rotation=90 * upright, ha="center", va="top")
    if panel.labelled:
        for query, label in _named(layer.query_labels, panel.height):
            place = top + (query + 0.5) * panel.height / queries
            canvas.text(left - 0.04, place, label, fontsize=7, ha="right", va="center")
    if layer.relevant is not None:
        rows, columns = np.nonzero(layer.relevant)
        x, y = left + (columns + 0.5) * panel.width / keys, top + (rows + 0.5) * panel.height / queries
        canvas.scatter(x, y, s=6, c="white", edgecolors="black", linewidths=0.4, zorder=3)
    canvas.set(xlim=canvas.get_xlim(), ylim=canvas.get_ylim())


def _every(count: int, side: float) -> int:
    """Return of how many steps one is named, along a side of so many inches."""
    return max(int(np.ceil(count * APART / side)), 1)


def _named(labels: Sequence[str], side: float) -> Iterator[tuple[int, str]]:
    """Yield the steps that are named along a side, so many inches long, and how."""
    for step in range(0, len(labels), _every(len(labels), side)):
        label = shown_label(labels[step])
        yield step, drawable(label if cell_len(label) <= LONGEST else f"{set_cell_size(label, LONGEST - 1)}…")


def _fitted(weights: np.ndarray, most: int) -> np.ndarray:
    """Return weights (Tq, Tk) as they are, or where they are more than `most`, the largest of each square."""
    side = -(-max(weights.shape) // max(most, 1))
    if side <= 1:
        return weights
    high, wide = (-(-count // side) * side for count in weights.shape)
    padded = np.zeros((high, wide), weights.dtype)
    padded[: weights.shape[0], : weights.shape[1]] = weights
    found: np.ndarray = padded.reshape(high // side, side, wide // side, side).max((1, 3))
    return found


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
    most = max(float(np.abs(finite(table)).max(initial=0.0)), 1e-9)
    image = panel.imshow(table, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto")
    panel.set_xticks(range(columns), [str(head) for head in range(columns)], fontsize=7)
    panel.set_yticks(range(len(values)), list(map(drawable, values)), fontsize=7)
    panel.set_xlabel("head", fontsize=8)
    panel.set_title("\n".join(textwrap.wrap(drawable(title), int(size[0] * 12))), fontsize=8)
    figure.colorbar(image, ax=panel, shrink=0.8)
    return figure_bytes(figure, format)


def figure_bytes(figure: Figure, format: str, facts: Mapping[str, str] | None = None) -> bytes:
    """Return a figure as the bytes of a file, without its date: the same figure makes the same file.

    `facts` go into the file's metadata, as its description: of a PDF, as its subject.
    """
    file = io.BytesIO()
    use_fonts(figure)
    metadata: dict[str, Any] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[format]
    if facts:
        name = "Subject" if format == "pdf" else "Description"
        said = "\n".join(f"{each}: {' '.join(value.split())}" for each, value in facts.items())
        metadata[name] = "".join(each for each in said if each == "\n" or each.isprintable())
    with rc_context({"svg.hashsalt": "regard"}):  # names of its parts are otherwise drawn by lot
        figure.savefig(file, format=format, dpi=DOTS, metadata=metadata, **QUICK.get(format, {}))
    return file.getvalue()
