"""The page of `regard.watch`: a small curve for each head, the warnings, and the loss.

A click on a curve shows the head: its large curve, its measures, and its weights on the probe, at the first and at the
last measurement. The page works offline and without JavaScript: a link to the head (`:target`) shows it.
"""

import base64
import html
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.colors import to_rgb
from PIL import Image
from rich.table import Table
from torch import Tensor

from regard.errors import InputError, plural
from regard.interpret.training_warnings import describe
from regard.result import plain_table
from regard.viz.figure import COLOURS, new_figure
from regard.viz.report_page import Markup, Part, Plot, render_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CALM = "#7b7ae2"
POINTS = 200  # of a curve; of more measurements, every nth is drawn
PALETTE = [round(255 * part) for level in range(256) for part in to_rgb(COLOURS(level))]
UNMEASURED = "not measured"


def render_watch(record: Any, note: str = "", script: str = "") -> str:
    """Return the page of a `WatchRecord`. `note`: its first sentence. `script`: as in `render_page`.

    Raises `InputError` if nothing was measured.
    """
    if not record.rows:
        raise InputError("nothing was measured: the page would be empty")
    heads: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in record.rows:
        heads.setdefault((row["layer"], row["head"]), []).append(row)
    layers = list(dict.fromkeys(layer for layer, _ in heads))
    first, last = record.rows[0]["step"], record.rows[-1]["step"]
    warned = {(row["layer"], row["head"]) for row in record.warnings}
    red = plural(len(warned), "head")
    parts: list[Part] = [
        note,
        Markup(_grid(heads, layers, warned)),
        f"Each row is a layer, each column a head. Curve: mean entropy of the weights, divided by that of equal "
        f"weights (dashed), from step {first} to {last}; the line below is 0. Red: {red} with a "
        f"warning. Click a curve for the measures of the head and its weights on the probe, then and now.",
        Markup("".join(_sections(record, heads, layers))),
        *(f"{describe(rows)}." for rows in _by_kind(record.warnings)),
        _warning_table(record.warnings) if record.warnings else "No warning.",
    ]
    losses = [(note["step"], note["loss"]) for note in record.notes if note.get("loss") is not None]
    if losses:
        parts.append(Plot(lambda width: draw_loss(losses, width), "Loss by training step"))
    else:
        parts.append("No loss was noted: watch.note(loss=...) adds it.")
    parts += [note["error"] for note in record.notes if "error" in note]
    return render_page("Attention during a training", parts, script)


def _grid(
    heads: dict[tuple[str, int], list[dict[str, Any]]], layers: Sequence[str], warned: set[tuple[str, int]]
) -> str:
    """Return a table of small curves, each a link to its head."""
    columns = 1 + max(head for _, head in heads)
    rows = [f"<tr><td></td>{''.join(f'<th scope=col>{head}</th>' for head in range(columns))}</tr>"]
    for number, layer in enumerate(layers):
        cells = []
        for head in range(columns):
            link = ""
            if found := heads.get((layer, head)):
                ends = " to ".join(_shown(row["relative_entropy"]) for row in (found[0], found[-1]))
                name = html.escape(f"{layer}, head {head}: relative entropy {ends}")
                kind = " class=warned" if (layer, head) in warned else ""
                link = f'<a href="#head-{number}-{head}" title="{name}" aria-label="{name}"{kind}>{_curve(found)}</a>'
            cells.append(f"<td>{link}</td>")
        rows.append(f"<tr><th scope=row>{html.escape(layer)}</th>{''.join(cells)}</tr>")
    return (
        f'<div class="wide" tabindex="0" role="group" aria-label="heads"><table id=heads>{"".join(rows)}</table></div>'
    )


def _curve(rows: Sequence[dict[str, Any]]) -> str:
    """Return the relative entropy of a head over the steps, as a drawing of 100 by 50 units."""
    chosen = [row for row in rows[:: -(-len(rows) // POINTS)] if row["relative_entropy"] is not None]
    begin, steps = rows[0]["step"], max(1, rows[-1]["step"] - rows[0]["step"])
    places = (f"{100 * (row['step'] - begin) / steps:.1f},{48 - 46 * row['relative_entropy']:.1f}" for row in chosen)
    return (
        '<svg viewBox="0 0 100 50" preserveAspectRatio="none" aria-hidden="true"><path d="M0 2H100" class="even"/>'
        f'<path d="M0 48H100"/><polyline points="{" ".join(places)}"/></svg>'
    )


def _sections(record: Any, heads: dict[tuple[str, int], list[dict[str, Any]]], layers: Sequence[str]) -> Iterator[str]:
    """Yield what a click on each head shows."""
    names = [name for name in record.rows[0] if name not in ("step", "layer", "head", "finite")]
    for (layer, head), rows in heads.items():
        then, now = rows[0], rows[-1]
        cells = "".join(
            f"<tr><th scope=row>{name.replace('_', ' ')}</th>"
            f"<td>{_shown(then[name])}</td><td>{_shown(now[name])}</td></tr>"
            for name in names
        )
        figures = "".join(
            f"<figure><figcaption>step {row['step']}</figcaption>{_picture(weights.get(layer), head)}</figure>"
            for row, weights in zip((then, now), record.pictures, strict=True)
        )
        yield (
            f'<section class="head" id="head-{layers.index(layer)}-{head}"><h2>{html.escape(layer)}, head {head}</h2>'
            f"<p>Relative entropy, 0 to 1, steps {then['step']} to {now['step']}:</p>{_curve(rows)}"
            f"<p>Weights of the probe's first sample: queries from top to bottom, keys from left to right.</p>"
            f"{figures}<table><thead><tr><td></td><th scope=col>step {then['step']}</th>"
            f"<th scope=col>step {now['step']}</th></tr></thead><tbody>{cells}</tbody></table></section>"
        )


def _shown(number: float | None) -> str:
    return UNMEASURED if number is None else f"{number:.3g}"


def _picture(weights: Tensor | None, head: int) -> str:
    """Return the weights (H, Tq, Tk) of one head as an image."""
    if weights is None or head >= len(weights):
        return f"<p>{UNMEASURED}</p>"
    image, content = Image.fromarray(weights[head].contiguous().numpy(), "P"), io.BytesIO()
    image.putpalette(PALETTE)
    image.save(content, "PNG", optimize=True)
    address = base64.b64encode(content.getvalue()).decode()
    size = f"{image.height} queries, {image.width} keys"
    return f'<img src="data:image/png;base64,{address}" alt="weights of {size}" width=256>'


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


def draw_loss(losses: Sequence[tuple[int, float]], width: float) -> "Figure":
    """Draw the loss over the steps."""
    figure = new_figure(width, 1.8)
    axes = figure.subplots()
    axes.plot(*zip(*losses, strict=True), color=CALM)
    axes.set(xlabel="training step", ylabel="loss")
    return figure
