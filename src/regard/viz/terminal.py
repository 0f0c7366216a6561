"""Attention maps in a terminal: lists of weights in the format of the primer, and a heatmap of characters."""

import math
import textwrap
from collections.abc import Iterator

import numpy as np
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from regard.viz.maps import (
    CROSS,
    UNFINITE,
    AlignedHead,
    LayerMap,
    Map,
    best_aligned,
    finite,
    intervention_lines,
    patch_weights,
    query_description,
    shown_label,
)

SHADES = " ░▒▓█"  # five steps from 0 to the largest weight, readable without color
COLOURS = ("#440154", "#3b528b", "#21918c", "#5ec962", "#fde725")
"""The same steps in viridis, whose order is preserved in gray and for color-blind readers."""
NOT_FINITE = "!!"
# All lengths are in characters or lines.
CELL = 3  # width of one weight
MAX_ROWS = 60  # above this number of rows, only one head is drawn
COLUMN_LABEL, ROW_LABEL = 14, 20  # maximal lengths of labels; column labels are written vertically
WIDTH = 80  # of the lists of weights


def describe_answer(attention: Map) -> str:
    """Return the input, prediction, truth and interventions, a line each."""
    lines = [
        f"Input:      {attention.input!r}",
        f"Prediction: {attention.prediction!r}",
        f"Truth:      {'unknown' if attention.truth is None else repr(attention.truth)}",
    ]
    lines += [f"Note:       {attention.note}"] if attention.note else []
    return "\n".join(lines + intervention_lines(attention))


def describe_weights(attention: Map) -> str:
    """Return the weights of each output step and head, in the format of the primer; nothing for a text."""
    if isinstance(attention.prediction, str):
        return ""
    lines: list[str] = []
    for layer in attention.layers.values():
        if layer.kind == "encoder":
            continue
        keys = "Input" if layer.name == CROSS else "Output"
        lines += ["", f"{layer.title}:"]
        for step, label in enumerate(layer.query_labels):
            lines.append(f"Output step {step} ({label})")
            for head, weights in enumerate(layer.weights[:, step]):
                largest = largest_keys(weights)
                lines.append(_wrap(f"Head #{head} attended mainly to {keys} steps: {largest}", " " * 4))
                lines.append(_wrap(decimals(weights), " " * 4))
    if attention.position_norms is not None:
        lines += ["", "L2-Norm of Input Positional Encoding:", _wrap(decimals(attention.position_norms))]
    return "\n".join(lines[1:])


def _wrap(text: str, indent: str = "") -> str:
    return textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent} ")


def largest_keys(weights: np.ndarray) -> list[int]:
    """Return the keys with the largest weight after rounding to three decimals; several keys may tie.

    >>> largest_keys(np.array([0.2, 0.4, 0.4]))
    [1, 2]
    """
    if not weights.any():  # an ablated head
        return []
    rounded = np.round(finite(weights), 3)
    return np.flatnonzero(rounded == rounded.max()).tolist()


def decimals(values: "np.ndarray | list[float]") -> str:
    """Format numbers as a list with three decimals.

    >>> decimals([0.5, 0.25])
    '[0.500, 0.250]'
    """
    return "[" + ", ".join(f"{value:.3f}" for value in values) + "]"


def heatmap(attention: Map) -> RenderableType:
    """Draw a heatmap of characters: a row for each output step and head, a column for each key.

    The heatmap is as wide as the terminal. For text answers, and for more rows than fit on a screen, only the
    best-aligned head is shown, with a hint about showing the other heads.
    """
    lines = intervention_lines(attention)
    return Group(*map(Text, lines), _heatmap(attention)) if lines else _heatmap(attention)


def _heatmap(attention: Map) -> RenderableType:
    # Draw only the layers of the outputs for a run. Draw all layers of recorded weights, which have no
    # prediction.
    plotted = attention.plotted_layers
    answered = attention.prediction is not None
    layers = [layer for layer in plotted if layer.kind != "encoder" or not answered] or plotted
    if not layers:
        return Text("This model has no attention to show.")
    heads = sum(len(layer.weights) for layer in layers)
    rows = sum(layer.weights.shape[0] * layer.weights.shape[1] for layer in layers)
    best = attention.selected_head or best_aligned(layers)
    if best is not None and best.layer.patches is not None:
        # The weights of the head on a grid of image patches
        weights = patch_weights(best.layer)[best.head]
        largest = max(float(finite(weights).max(initial=0.0)), 1e-9)
        table = Table(box=None, padding=(0, 0), pad_edge=False, show_header=False)
        for row in weights:
            table.add_row(*(cell(float(weight), largest, False) for weight in row))
        title = f"{best.layer.title}, {best.layer.head_name(best.head)}: {query_description(best.layer)}"
        remarks = f"largest weight {largest:.3f}\n{_other_heads(best, heads)}"
        return Group(Text(title), table, Text(remarks, style="dim"))
    if heads > 1 and best is not None and (rows > MAX_ROWS or isinstance(attention.prediction, str)):
        return Group(_Heatmap([best.layer], best.head), Text(_other_heads(best, heads), style="dim"))
    return _Heatmap(layers)


def _other_heads(best: AlignedHead, heads: int) -> str:
    return (
        f"This is {best.layer.head_name(best.head)} of {best.layer.name}: of {heads} heads, it has the largest weights."
        " For the other heads: --plot page.html, the explorer, or in Python .to_html(path)."
    )


class _Heatmap:
    """Layers as tables that fit the terminal; columns that do not fit are in further tables below."""

    def __init__(self, layers: list[LayerMap], head: int | None = None) -> None:
        self.layers = layers
        self.head = head
        self.largest = max(max(float(finite(layer.weights).max(initial=0.0)) for layer in layers), 1e-9)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for layer in self.layers:
            yield Text(f"{layer.title}:")
            head_width = max((len(layer.head_name(head)) for head in range(len(layer.weights))), default=0)
            widths = (cell_len(_cut_label(label, ROW_LABEL)) + 1 for label in layer.query_labels)
            left = max(widths, default=0) + head_width + 1
            columns = max((options.max_width - left) // CELL, 1)
            for first in range(0, len(layer.key_labels), columns):
                yield self._table(layer, slice(first, first + columns))
        yield self._legend(any(layer.relevant is not None and layer.relevant.any() for layer in self.layers))

    def _table(self, layer: LayerMap, keys: slice) -> Table:
        """Return the table of some keys: their labels, and a line for each query and head."""
        labels = [_cut_label(label, COLUMN_LABEL) for label in layer.key_labels[keys]]
        table = Table(box=None, padding=(0, 0), pad_edge=False, show_header=False)
        for _ in ("query", "head", *labels):
            table.add_column("", no_wrap=True)
        for line in _header_lines(labels):
            table.add_row("", "", *line)
        heads = range(len(layer.weights)) if self.head is None else [self.head]
        relevant = np.zeros_like(layer.weights[0], bool) if layer.relevant is None else layer.relevant
        for step, label in enumerate(layer.query_labels):
            for head in heads:
                pairs = zip(layer.weights[head, step, keys], relevant[step, keys], strict=True)
                cells = [cell(float(weight), self.largest, bool(mark)) for weight, mark in pairs]
                row_label = f"{_cut_label(label, ROW_LABEL)} " if head == heads[0] else ""
                table.add_row(row_label, f"{layer.head_name(head)} ", *cells)
        return table

    def _legend(self, relevant: bool) -> Text:
        legend = Text("weight  ")
        for shade, colour in zip(SHADES, COLOURS, strict=True):
            legend.append(shade * 3, style=colour)
        legend.append(f"  0 to {self.largest:.3f}, one scale", style="dim")
        if relevant:
            legend.append("    x  the answer depends on it", style="dim")
        if not all(np.isfinite(layer.weights).all() for layer in self.layers):
            legend.append(f"    {NOT_FINITE}  {UNFINITE}", style="dim")
        return legend


def _header_lines(labels: list[str]) -> Iterator[list[str]]:
    """Yield the lines of the column labels, which are vertical if one is wider than a column."""
    if all(cell_len(label) < CELL for label in labels):
        yield [f" {label}" if cell_len(label) == 1 else label for label in labels]
        return
    height = max(map(len, labels))
    for row in range(height):
        letters = [label.rjust(height)[row] for label in labels]
        yield [f" {letter}" for letter in letters]


def _cut_label(label: str, most: int) -> str:
    label = shown_label(label)
    return label if len(label) <= most else f"{label[: most - 1]}…"


def cell(weight: float, largest: float, relevant: bool) -> Text:
    """Return the three characters of one weight: two for its shade, and `x` for a relevant input."""
    mark = ("x" if relevant else " ", "dim")
    if not math.isfinite(weight):
        return Text.assemble((NOT_FINITE, "bold red"), mark)
    step = round(weight / largest * (len(SHADES) - 1))
    return Text.assemble((SHADES[step] * 2, COLOURS[step]), mark)
