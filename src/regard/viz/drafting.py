"""A blueprint as a picture: boxes from the bottom to the top, arrows, shapes and numbers of parameters."""

import html
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path as Way

from regard.io import write_file
from regard.viz.blueprint import ANSWER, INPUT, PARAMETER, ROLES, SUM, Blueprint, Box
from regard.viz.endings import PAGE, check_ending
from regard.viz.folding import Stack, folded
from regard.viz.glyphs import drawable
from regard.viz.layout import HEIGHT, WIDTH, Layout, Line, Spot, layout_of
from regard.viz.picture import figure_bytes

EDGE, TITLE = 0.4, 0.35
"""Around all, and of the line above it, inches."""
NARROWEST = 5.5
USUAL, LONGEST = 34, 46
"""Characters of a name in its box; up to the latter in smaller letters."""
FILLS = {"attention": "#ffd9a0", PARAMETER: "#d8ecd8", INPUT: "#e6e6ee", ANSWER: "#e6e6ee", "other": "#dce8f7"}
TIMES = "\N{MULTIPLICATION SIGN}"
INK, QUIET, MARK = "#1b1b1f", "#55607a", "#c06000"


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
    """Return the picture as the bytes of a file; `format`: png, svg or pdf. Layers that are alike stand once."""
    drawn, stacks = folded(found)
    layout = layout_of(drawn)
    wide, high = max(layout.width + 2 * EDGE, NARROWEST), layout.height + 2 * EDGE + TITLE / 2
    figure = Figure(figsize=(wide, high))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    left = (wide - layout.width) / 2
    axes.set(xlim=(-left, wide - left), ylim=(-EDGE, high - EDGE))
    axes.axis("off")
    title = f"{found.title}: {found.parameters:,} parameters"
    axes.text(min(0.0, EDGE - left), layout.height + EDGE, drawable(title), fontsize=11, weight="bold", color=INK)
    for stack in stacks:
        _frame(axes, stack, layout)
    for line in layout.lines:
        _arrow(axes, line, drawn, layout)
    for name, place in layout.places.items():
        _box(axes, drawn.parts[name], place, stacks)
    return figure_bytes(figure, format)


def _frame(axes: Any, stack: Stack, layout: Layout) -> None:
    """Draw what surrounds layers that are drawn once."""
    by_lane: dict[int, list[Spot]] = {}
    for place in (layout.places[each] for each in stack.parts if each in layout.places):
        by_lane.setdefault(place.lane, []).append(place)
    for places in by_lane.values():
        left = min(place.x - max(place.width, WIDTH) / 2 for place in places) - 0.12
        right = max(place.x + max(place.width, WIDTH) / 2 for place in places) + 0.42
        low = min(place.y - place.height / 2 for place in places) - 0.09
        high = max(place.y + place.height / 2 for place in places) + 0.07
        axes.add_patch(
            FancyBboxPatch(
                (left, low),
                right - left,
                high - low,
                boxstyle="round,pad=0,rounding_size=0.1",
                linestyle="--",
                linewidth=0.9,
                facecolor="#f6f6fa",
                edgecolor=QUIET,
                zorder=0.1,
            )
        )
        said = f"{stack.count} {TIMES} {stack.name}, {stack.parameters:,} parameters"
        small: dict[str, Any] = {"fontsize": 6.5, "color": QUIET, "weight": "bold"}
        axes.text(left - 0.05, high, drawable(said), rotation=90, ha="right", va="top", **small)


def _box(axes: Any, part: Box, place: Spot, stacks: list[Stack]) -> None:
    if part.kind == SUM:
        axes.add_patch(
            Circle((place.x, place.y), place.width / 2, facecolor="white", edgecolor=QUIET, linewidth=0.9)
        )
        axes.text(place.x, place.y, "+", ha="center", va="center_baseline", fontsize=11, color=INK)
        return
    axes.add_patch(
        FancyBboxPatch(
            (place.x - place.width / 2, place.y - place.height / 2),
            place.width,
            place.height,
            boxstyle="round,pad=0,rounding_size=0.08",
            facecolor=FILLS.get("attention" if part.attends else part.kind, FILLS["other"]),
            edgecolor=MARK if part.attends else QUIET,
            linewidth=1.8 if part.attends else 0.9,
        )
    )
    holder = next((stack.name for stack in stacks if part.name in stack.parts), None)
    name = part.name if holder is None else part.name[len(holder) :].lstrip(".").partition(".")[2]
    name = name if len(name) <= LONGEST else f"…{name[-LONGEST + 1 :]}"
    said = _said(part)
    high = place.y + (0.09 if said else 0)
    size = 8.5 * min(1.0, USUAL / len(name))
    axes.text(place.x, high, drawable(name), ha="center", va="center", fontsize=size, weight="bold", color=INK)
    axes.text(place.x, place.y - 0.11, drawable(said), ha="center", va="center", fontsize=7, color=QUIET)


def _said(part: Box) -> str:
    """Say what a part is, and its number of parameters."""
    kind = "" if part.kind in (INPUT, ANSWER) else part.kind
    return ", ".join(filter(None, (kind, f"{part.parameters:,} parameters" if part.parameters else "")))


def _arrow(axes: Any, line: Line, found: Blueprint, layout: Layout) -> None:
    codes = [Way.MOVETO] + [Way.LINETO] * (len(line.points) - 1)
    axes.add_patch(
        FancyArrowPatch(
            path=Way(line.points, codes),
            arrowstyle="-|>",
            mutation_scale=8,
            linewidth=0.9,
            color=QUIET,
            linestyle=":" if line.returns else "-",
            zorder=0.5,
        )
    )
    roles = [each for each in ROLES if each in found.flows[line.giver, line.taker]]
    gave = found.parts[line.giver].gave
    shape = f"({', '.join(map(str, gave))})" if gave else ""
    (_, y), (_, end) = line.points[-2:]
    taker = layout.places[line.taker]
    small: dict[str, Any] = {"fontsize": 6.5, "color": MARK if roles else QUIET}
    if line.straight:
        said = "  ".join(filter(None, (", ".join(roles), shape)))
        (begin, low), (_, bend) = line.points[:2]
        axes.text(begin + 0.06, (low + bend) / 2, said, ha="left", va="center", **small)
    elif layout.places[line.giver].lane != taker.lane:
        above = end if taker.alone else y
        said = "  ".join(filter(None, (", ".join(roles), shape)))
        axes.text(taker.x - WIDTH / 2 - 0.17, above + 0.02, said, ha="right", va="bottom", **small)
    elif roles or line.returns:
        said = ", ".join([*roles, *(["next step"] if line.returns else [])])
        side = taker.x + taker.width / 2 + 0.04
        axes.text(side, taker.y + HEIGHT / 8, said, ha="left", va="bottom", **small)


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
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>'
        "body{font:15px/1.5 system-ui,sans-serif;margin:1rem}:root{color-scheme:light dark}"
        "svg{max-width:100%;max-height:92vh;background:#fff}"
        "@media (prefers-color-scheme:dark){svg{filter:invert(.93) hue-rotate(180deg)}}"
        ".wide{overflow-x:auto}"
        "td,th{padding:.2rem .8rem .2rem 0;text-align:left;border-bottom:1px solid #8884}</style>"
        f"</head>\n<body><h1>{title}</h1>\n{picture}\n"
        '<div class="wide"><table><thead><tr><th>part</th><th>kind</th>'
        "<th>is given</th><th>gives</th><th>parameters</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div></body></html>\n"
    )
