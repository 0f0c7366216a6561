"""Attention maps in a terminal: the primer's printout, and a heatmap of characters."""

import math
import textwrap
from collections.abc import Iterator

import numpy as np
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from regard.viz.facts import changed_lines, shown_label
from regard.viz.maps import CROSS, UNFINITE, Aligned, LayerMap, Map, best_aligned, finite

SHADES = " ░▒▓█"
"""Five steps from nothing to all: readable without colour."""
COLOURS = ("#440154", "#3b528b", "#21918c", "#5ec962", "#fde725")
"""The same steps in viridis, which keeps its order for colour-blind eyes and in grey."""

BROKEN = "!!"
"""A weight that is not finite."""
CELL = 3
"""Characters of a weight."""
SCREEN = 60
"""Rows that are drawn at most."""
HIGHEST = 14
"""Letters of a column's label that are written, one below the other."""
WIDEST = 20
"""Letters of a row's label."""
WIDTH = 80
"""Characters of a line that the primer's printout is folded to."""


def describe(attention: Map) -> str:
    """Write one sample as the primer does: input, prediction, truth, weights of each output step and head."""
    lines = [
        f"Input:      {attention.input!r}",
        f"Prediction: {attention.prediction!r}",
        f"Truth:      {'unknown' if attention.truth is None else repr(attention.truth)}",
    ]
    lines += [f"Note:       {attention.note}"] if attention.note else []
    lines += changed_lines(attention)
    if isinstance(attention.prediction, str):
        return "\n".join(lines)  # the heatmap says the rest, at a fraction of the length
    for layer in attention.layers.values():
        if layer.kind != "encoder":
            lines += ["", *_describe_layer(layer, "Input" if layer.name == CROSS else "Output")]
    if attention.position_norms is not None:
        lines += [
            "",
            "L2-Norm of Input Positional Encoding:",
            _folded(decimals(attention.position_norms)),
        ]
    return "\n".join(lines)


def _describe_layer(layer: LayerMap, keys: str) -> list[str]:
    lines = [f"{layer.title}:"]
    for step, label in enumerate(layer.query_labels):
        lines.append(f"Output step {step} ({label})")
        for head, weights in enumerate(layer.weights[:, step]):
            lines.append(_folded(f"Head #{head} attended mainly to {keys} steps: {mainly(weights)}", " " * 4))
            lines.append(_folded(decimals(weights), " " * 4))
    return lines


def _folded(text: str, before: str = "") -> str:
    return textwrap.fill(text, WIDTH, initial_indent=before, subsequent_indent=f"{before} ")


def mainly(weights: np.ndarray) -> list[int]:
    """Return the steps with the largest weight, to three decimals: letters that are alike tie."""
    if not weights.any():  # of a head that is off
        return []
    rounded = np.round(finite(weights), 3)
    return np.flatnonzero(rounded == rounded.max()).tolist()


def decimals(values: "np.ndarray | list[float]") -> str:
    """Write numbers to three decimals, as a list."""
    return "[" + ", ".join(f"{value:.3f}" for value in values) + "]"


def heatmap(attention: Map) -> RenderableType:
    """Draw what each output attended to: a row for each output step and head, a column for each key.

    It is as wide as the terminal. Of an answer in words, and of more rows than fit on a screen, it shows only the
    head that aligns best, and says how to see the others.
    """
    changed = changed_lines(attention)
    return Group(*map(Text, changed), _heatmap(attention)) if changed else _heatmap(attention)


def _heatmap(attention: Map) -> RenderableType:
    # Of a run, what the outputs attended to; of records, which know of no outputs, everything.
    drawn = attention.drawn
    answered = attention.prediction is not None
    layers = [each for each in drawn if each.kind != "encoder" or not answered] or drawn
    if not layers:
        return Text("This model has no attention to show.")
    heads = sum(len(layer.weights) for layer in layers)
    rows = sum(layer.weights.shape[0] * layer.weights.shape[1] for layer in layers)
    best = attention.chosen_head or best_aligned(layers)
    if best is not None and best.layer.patches is not None:
        return Group(_on_patches(best), Text(_others(best, heads), style="dim"))
    if heads > 1 and best is not None and (rows > SCREEN or isinstance(attention.prediction, str)):
        return Group(_Heatmap([best.layer], best.head), Text(_others(best, heads), style="dim"))
    return _Heatmap(layers)


def _others(best: Aligned, heads: int) -> str:
    what = "aligns best" if best.layer.kind == CROSS else "looks at most of the tokens"
    return (
        f"This is {best.layer.called(best.head)} of {best.layer.name}, of {heads} heads the one that {what}."
        " To see the others: --plot page.html, the explorer, or in Python .to_html(path)."
    )


def _on_patches(best: Aligned) -> RenderableType:
    """Draw the patches of a picture where they are, with the weights that a head puts upon them."""
    from regard.viz.overlay import looker, weights_on_patches

    weights = weights_on_patches(best.layer)[best.head]
    largest = max(float(finite(weights).max(initial=0.0)), 1e-9)
    table = Table(box=None, padding=(0, 0), pad_edge=False, show_header=False)
    for row in weights:
        table.add_row(*(cell(float(weight), largest, False) for weight in row))
    said = f"{best.layer.title}, {best.layer.called(best.head)}: {looker(best.layer)}"
    return Group(Text(said), table, Text(f"largest weight {largest:.3f}", style="dim"))


class _Heatmap:
    """Layers as tables that are no wider than the terminal: the columns go on below where they do not fit."""

    def __init__(self, layers: list[LayerMap], head: int | None = None) -> None:
        self.layers = layers
        self.head = head
        self.largest = max(max(float(finite(layer.weights).max(initial=0.0)) for layer in layers), 1e-9)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for layer in self.layers:
            yield Text(f"{layer.title}:")
            called = max((len(layer.called(head)) for head in range(len(layer.weights))), default=0)
            left = max((cell_len(_named(label)) for label in layer.query_labels), default=0) + called + 1
            beside = max((options.max_width - left) // CELL, 1)
            for first in range(0, len(layer.key_labels), beside):
                yield from self._part(layer, slice(first, first + beside))
        yield self._legend(any(layer.relevant is not None and layer.relevant.any() for layer in self.layers))

    def _part(self, layer: LayerMap, keys: slice) -> Iterator[RenderableType]:
        """Yield the table of some keys: their labels, and a line for each query and head."""
        labels = [_cut(label) for label in layer.key_labels[keys]]
        table = Table(box=None, padding=(0, 0), pad_edge=False, show_header=False)
        for _ in ("query", "head", *labels):
            table.add_column("", no_wrap=True)
        for line in _headings(labels):
            table.add_row("", "", *line)
        heads = range(len(layer.weights)) if self.head is None else [self.head]
        for step, label in enumerate(layer.query_labels):
            for head in heads:
                relevant = np.zeros_like(layer.weights[0], bool) if layer.relevant is None else layer.relevant
                shown = zip(layer.weights[head, step, keys], relevant[step, keys], strict=True)
                cells = [cell(float(weight), self.largest, bool(dot)) for weight, dot in shown]
                table.add_row(f"{_named(label)}" if head == heads[0] else "", f"{layer.called(head)} ", *cells)
        yield table

    def _legend(self, relevant: bool) -> Text:
        legend = Text("weight  ")
        for shade, colour in zip(SHADES, COLOURS, strict=True):
            legend.append(shade * 3, style=colour)
        legend.append(f"  0 to {self.largest:.3f}, one scale", style="dim")
        if relevant:
            legend.append("    x  the answer comes from this input", style="dim")
        if not all(np.isfinite(layer.weights).all() for layer in self.layers):
            legend.append(f"    {BROKEN}  {UNFINITE}", style="dim")
        return legend


def _headings(labels: list[str]) -> Iterator[list[str]]:
    """Yield the lines of the columns' labels: written downwards, where some are longer than a column is wide."""
    if all(cell_len(label) < CELL for label in labels):
        yield [f" {label}" if cell_len(label) == 1 else label for label in labels]
        return
    high = max(map(len, labels))
    for row in range(high):
        letters = [label.rjust(high)[row] for label in labels]
        yield [f" {letter}" for letter in letters]


def _cut(label: str) -> str:
    label = shown_label(label)
    return label if len(label) <= HIGHEST else f"{label[: HIGHEST - 1]}…"


def _named(label: str) -> str:
    label = shown_label(label)
    return f"{label if len(label) <= WIDEST else label[: WIDEST - 1] + '…'} "


def cell(weight: float, largest: float, relevant: bool) -> Text:
    """Return the three characters of one weight: two of its shade, and `x` for a relevant input."""
    if not math.isfinite(weight):
        return Text.assemble((BROKEN, "bold red"), ("x" if relevant else " ", "dim"))
    step = round(weight / largest * (len(SHADES) - 1))
    return Text.assemble((SHADES[step] * 2, COLOURS[step]), ("x" if relevant else " ", "dim"))
