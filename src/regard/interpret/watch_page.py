"""The offline page of `regard.watch`: a curve for each head, the warnings, and the loss."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.collections import LineCollection
from rich.table import Table

from regard.errors import InputError
from regard.interpret.training_warnings import describe
from regard.result import plain_table
from regard.viz.figure import drawable, new_figure
from regard.viz.report_page import Part, Plot, render_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CALM, ALARM = "#7b7ae2", "#e0457b"


def render_watch(record: Any) -> str:
    """Return the page of a `WatchRecord`. Raises `InputError` if nothing was measured."""
    if not record.rows:
        raise InputError("nothing was measured: the page would be empty")
    layers = list(dict.fromkeys(row["layer"] for row in record.rows))
    first, last = record.rows[0]["step"], record.rows[-1]["step"]
    warned = {(row["layer"], row["head"]) for row in record.warnings}
    parts: list[Part] = [
        Plot(
            lambda width: draw_heads(record, layers, width), f"Relative entropy of each head, steps {first} to {last}"
        ),
        f"Each row is a layer ({layers[0]} to {layers[-1]}), each column a head. Curve: mean entropy of the weights, "
        f"divided by that of equal weights (dashed), from step {first} to {last}; the line below is 0. "
        f"Red: {len(warned)} heads with a warning.",
        *(f"{describe(rows)}." for rows in _by_kind(record.warnings)),
        _warning_table(record.warnings) if record.warnings else "No warning.",
    ]
    losses = [(note["step"], note["loss"]) for note in record.notes if note.get("loss") is not None]
    if losses:
        parts.append(Plot(lambda width: draw_loss(losses, width), "Loss by training step"))
    else:
        parts.append("No loss was noted: watch.note(loss=...) adds it.")
    parts += [note["error"] for note in record.notes if "error" in note]
    return render_page("Attention during a training", parts)


def _by_kind(found: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return for each kind the warnings of its first step."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for row in found:
        rows = kinds.setdefault(row["warning"], [])
        if not rows or rows[0]["step"] == row["step"]:
            rows.append(row)
    return list(kinds.values())


def _warning_table(found: Sequence[dict[str, Any]]) -> Table:
    """Return a row for each kind of warning and layer, with its heads in the order of their first warnings."""
    table = plain_table(("warning", "layer", "heads", "first step", "value there"))
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in found:
        groups.setdefault((row["warning"], row["layer"]), []).append(row)
    for (kind, layer), rows in groups.items():
        heads = ", ".join(map(str, dict.fromkeys(row["head"] for row in rows)))
        table.add_row(kind, layer, heads, str(rows[0]["step"]), f"{rows[0]['value']:.3g}")
    return table


def draw_heads(record: Any, layers: Sequence[str], width: float) -> "Figure":
    """Draw a small curve for each head: layers as rows, heads as columns."""
    curves: dict[tuple[str, int], list[tuple[int, float]]] = {}
    for row in record.rows:
        if row["relative_entropy"] is not None:
            curves.setdefault((row["layer"], row["head"]), []).append((row["step"], row["relative_entropy"]))
    heads = 1 + max(row["head"] for row in record.rows)
    last = max(1, *(row["step"] for row in record.rows))
    warned = {(row["layer"], row["head"]) for row in record.warnings}
    figure = new_figure(width, min(0.75, width / heads) * len(layers) + 0.4)
    axes = figure.subplots()
    places = {layer: place for place, layer in enumerate(layers)}
    lines = [
        [(head + 0.9 * step / last, 0.85 - places[layer] - 0.75 * (1 - entropy)) for step, entropy in points]
        for (layer, head), points in curves.items()
    ]
    colours = [ALARM if key in warned else CALM for key in curves]
    axes.add_collection(LineCollection(lines, colors=colours, linewidths=1.4))
    for height, style in ((0.85, "dashed"), (0.1, "solid")):
        frames = [
            [(head, height - place), (head + 0.9, height - place)] for head in range(heads) for place in places.values()
        ]
        axes.add_collection(LineCollection(frames, colors="#7f8894", linewidths=0.4, linestyles=style))
    every = max(1, round(0.25 * heads / width))
    axes.set(xlim=(-0.05, heads), ylim=(1 - len(layers), 1.0))
    axes.set_xticks([head + 0.45 for head in range(0, heads, every)], [str(head) for head in range(0, heads, every)])
    short = width < 5
    axes.set_yticks(
        [0.45 - place for place in places.values()],
        [str(place) if short else drawable(layer) for layer, place in places.items()],
    )
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("head")
    if short:
        axes.set_ylabel("layer")
    return figure


def draw_loss(losses: Sequence[tuple[int, float]], width: float) -> "Figure":
    """Draw the loss over the steps."""
    figure = new_figure(width, 1.8)
    axes = figure.subplots()
    axes.plot(*zip(*losses, strict=True), color=CALM)
    axes.set(xlabel="training step", ylabel="loss")
    return figure
