"""A blueprint as a picture: boxes from top to bottom, arrows, shapes and numbers of parameters."""

import html
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from regard.files import write_file
from regard.inspection.blueprint import ANSWER, INPUT, Blueprint, Box
from regard.inspection.endings import PAGE, check_ending
from regard.inspection.glyphs import drawable
from regard.inspection.picture import figure_bytes

WIDTH, HEIGHT = 3.0, 0.62
"""Of a box, inches."""
ACROSS, DOWN = 3.5, 1.05
"""From one box to the next, inches."""
FILLS = {"attention": "#ffd9a0", "parameter": "#d8ecd8", "edge": "#e6e6ee", "other": "#dce8f7"}


def save_blueprint(found: Blueprint, path: str | Path) -> Path:
    """Write a blueprint to a file by its ending: .png, .svg or .pdf, or .html for a page of its own.

    Raises `InputError` for another ending, `MachineError` where the disk refuses.
    """
    path = Path(path)
    check_ending(path)
    if path.suffix.lower() == PAGE:
        write_file(path, _page(found).encode())
    else:
        write_file(path, draw_blueprint(found, path.suffix.lower()[1:]))
    return path


def draw_blueprint(found: Blueprint, format: str) -> bytes:
    """Return the picture as the bytes of a file; `format`: png, svg or pdf."""
    places = _places(found)
    columns = max(column for column, _ in places.values()) + 1
    rows = max(row for _, row in places.values()) + 1
    wide = max(columns * ACROSS + 0.8, 6.0)
    figure = Figure(figsize=(wide, rows * DOWN + 0.9))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, wide), ylim=(rows * DOWN + 0.9, 0))
    axes.axis("off")
    axes.text(0.3, 0.42, drawable(f"{found.title}: {found.parameters:,} parameters"), fontsize=11, weight="bold")
    middle = (wide - columns * ACROSS) / 2
    centres = {
        name: (middle + (column + 0.5) * ACROSS, 0.95 + row * DOWN + HEIGHT / 2)
        for name, (column, row) in places.items()
    }
    for one, other in found.flows:
        _arrow(axes, centres[one], centres[other], far=abs(places[other][1] - places[one][1]) > 1)
    for name, part in found.parts.items():
        if name in centres:
            _box(axes, part, *centres[name])
    return figure_bytes(figure, format)


def _places(found: Blueprint) -> dict[str, tuple[int, int]]:
    """Return column and row of each part: below everything that feeds it."""
    rows: dict[str, int] = {}
    feeds = {name: [one for one, other in found.flows if other == name] for name in found.parts}
    for _ in found.parts:  # until nothing moves: as many times as the longest way at most
        before = dict(rows)
        for name, sources in feeds.items():
            rows[name] = max((rows.get(each, 0) + 1 for each in sources), default=0)
        if rows == before:
            break
    wanted = {one for one, _ in found.flows}
    for name in found.parts:  # what nothing feeds stands just above what it feeds
        if not feeds[name] and name != INPUT and name in wanted:
            rows[name] = min(rows[other] for one, other in found.flows if one == name) - 1
    counts: dict[int, int] = {}
    places = {}
    for name in found.parts:
        if name in wanted or feeds[name]:
            row = rows[name]
            places[name] = counts.get(row, 0), row
            counts[row] = counts.get(row, 0) + 1
    return places


def _box(axes: Any, part: Box, x: float, y: float) -> None:
    fill = "attention" if part.attends else part.kind if part.kind == "parameter" else "other"
    fill = "edge" if part.kind in (INPUT, ANSWER) else fill
    axes.add_patch(
        FancyBboxPatch(
            (x - WIDTH / 2, y - HEIGHT / 2),
            WIDTH,
            HEIGHT,
            boxstyle="round,pad=0,rounding_size=0.08",
            facecolor=FILLS[fill],
            edgecolor="#c06000" if part.attends else "#55607a",
            linewidth=1.8 if part.attends else 0.9,
        )
    )
    name = part.name if len(part.name) <= 36 else f"…{part.name[-35:]}"
    axes.text(x, y - 0.11, drawable(name), ha="center", va="center", fontsize=8.5, weight="bold", color="#1b1b1f")
    axes.text(x, y + 0.13, drawable(_said(part)), ha="center", va="center", fontsize=7, color="#333340")


def _said(part: Box) -> str:
    """Say what a part is, its shapes and its number of parameters."""
    shapes = [str(list(each)) for each in (part.given, part.gave) if each is not None]
    flow = " → ".join(dict.fromkeys(shapes))
    kind = "" if part.kind in (INPUT, ANSWER) else f"{part.kind}  "
    return f"{kind}{flow}" + (f"  {part.parameters:,}" if part.parameters else "")


def _arrow(axes: Any, one: tuple[float, float], other: tuple[float, float], *, far: bool) -> None:
    begin, end = (one[0], one[1] + HEIGHT / 2), (other[0], other[1] - HEIGHT / 2)
    bend = "arc3,rad=0.0"
    if far:  # round what stands between
        begin, end = (one[0] + WIDTH / 2, one[1]), (other[0] + WIDTH / 2, other[1])
        bend = "arc3,rad=-0.25" if abs(one[0] - other[0]) < ACROSS / 2 else "arc3,rad=-0.12"
        if other[0] > one[0] + ACROSS / 2:
            begin, end = (one[0] + WIDTH / 2, one[1]), (other[0], other[1] - HEIGHT / 2)
    axes.add_patch(
        FancyArrowPatch(
            begin,
            end,
            arrowstyle="-|>",
            mutation_scale=9,
            linewidth=0.9,
            color="#55607a",
            connectionstyle=bend,
            zorder=0.5,
            shrinkA=0,
            shrinkB=0,
        )
    )


def _page(found: Blueprint) -> str:
    """Return a page with the picture and a table of the parts."""
    picture = draw_blueprint(found, "svg").decode("utf-8")
    picture = picture[picture.index("<svg") :]
    rows = "".join(
        f"<tr><td>{html.escape(each.name)}</td><td>{html.escape(each.kind)}</td><td>{each.given or ''}</td>"
        f"<td>{each.gave or ''}</td><td>{each.parameters:,}</td></tr>"
        for each in found.parts.values()
    )
    title = html.escape(f"{found.title}: {found.parameters:,} parameters")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n<style>'
        "body{font:15px/1.5 system-ui,sans-serif;margin:1rem}:root{color-scheme:light dark}"
        "svg{max-width:100%;height:auto;background:#fff}"
        "td,th{padding:.2rem .8rem .2rem 0;text-align:left;border-bottom:1px solid #8884}</style>"
        f"</head>\n<body><h1>{title}</h1>\n{picture}\n<table><thead><tr><th>part</th><th>kind</th>"
        "<th>is given</th><th>gives</th><th>parameters</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></body></html>\n"
    )
