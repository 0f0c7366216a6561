"""Attention maps in a terminal: the primer's printout, and a heatmap of characters."""

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from regard.inspection.maps import CROSS, LayerMap, Map

SHADES = " ░▒▓█"
"""Five steps from nothing to all: readable without colour."""
COLOURS = ("#440154", "#3b528b", "#21918c", "#5ec962", "#fde725")
"""The same steps in viridis, which keeps its order for colour-blind eyes and in grey."""


def describe(attention: Map) -> str:
    """Write one sample as the primer does: input, prediction, truth, weights of each output step and head."""
    lines = [
        f"Input:      {attention.input!r}",
        f"Prediction: {attention.prediction!r}",
        f"Truth:      {'unknown' if attention.truth is None else repr(attention.truth)}",
    ]
    if isinstance(attention.prediction, str):
        return "\n".join(lines)  # the heatmap says the rest, at a fraction of the length
    for layer in attention.layers.values():
        if layer.kind != "encoder":
            lines += ["", *_describe_layer(layer, "Input" if layer.name == CROSS else "Output")]
    if attention.position_norms is not None:
        lines += ["", "L2-Norm of Input Positional Encoding:", decimals(attention.position_norms)]
    return "\n".join(lines)


def _describe_layer(layer: LayerMap, keys: str) -> list[str]:
    lines = [f"{layer.title}:"]
    for step, label in enumerate(layer.query_labels):
        lines.append(f"Output step {step} ({label})")
        for head, weights in enumerate(layer.weights[:, step]):
            lines.append(f"    Head #{head} attended mainly to {keys} steps: {mainly(weights)}")
            lines.append(f"    {decimals(weights)}")
    return lines


def mainly(weights: np.ndarray) -> list[int]:
    """Return the steps with the largest weight, to three decimals: letters that are alike tie."""
    rounded = np.round(weights, 3)
    return np.flatnonzero(rounded == rounded.max()).tolist()


def decimals(values: "np.ndarray | list[float]") -> str:
    """Write numbers to three decimals, as a list."""
    return "[" + ", ".join(f"{value:.3f}" for value in values) + "]"


def heatmap(attention: Map) -> RenderableType:
    """Draw what each output attended to: a row for each output step and head, a column for each key."""
    # Of a run, what the outputs attended to; of records, which know of no outputs, everything.
    layers = [layer for layer in attention.drawn if layer.kind != "encoder" or attention.prediction is None]
    if not layers:
        return Text("This model has no attention to show.")
    largest = max(float(layer.weights.max()) for layer in layers)
    legend = Text("weight  ")
    for shade, colour in zip(SHADES, COLOURS, strict=True):
        legend.append(shade * 3, style=colour)
    known = any(layer.relevant is not None and layer.relevant.any() for layer in layers)
    meaning = "    x  the answer depends on this input" if known else ""
    legend.append(f"  0 to {largest:.3f}{meaning}", style="dim")
    tables = [part for layer in layers for part in (Text(f"{layer.title}:"), _layer_table(layer, largest))]
    return Group(*tables, legend)


def _layer_table(layer: LayerMap, largest: float) -> Table:
    table = Table(box=None, padding=(0, 0), pad_edge=False)
    table.add_column("")
    table.add_column("")
    for label in layer.key_labels:
        table.add_column(f" {label}", justify="left", no_wrap=True)
    for step, label in enumerate(layer.query_labels):
        for head, weights in enumerate(layer.weights[:, step]):
            relevant = np.zeros(len(weights), dtype=bool) if layer.relevant is None else layer.relevant[step]
            cells = [cell(float(w), largest, bool(r)) for w, r in zip(weights, relevant, strict=True)]
            table.add_row(f"{label} " if head == 0 else "", f"head {head} ", *cells)
    return table


def cell(weight: float, largest: float, relevant: bool) -> Text:
    """Return the three characters of one weight: two of its shade, and `x` for a relevant input."""
    step = round(weight / largest * (len(SHADES) - 1))
    return Text.assemble((SHADES[step] * 2, COLOURS[step]), ("x" if relevant else " ", "dim"))
