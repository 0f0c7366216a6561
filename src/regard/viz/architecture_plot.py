"""Architecture graphs as figures and pages: boxes from bottom to top, arrows, shapes and parameter counts.

Identical layers are drawn once, in a frame with their number.
"""

import dataclasses
import html
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path as Curve

from regard.io import write_file
from regard.viz.architecture import ANSWER, INPUT, PARAMETER, ROLES, SUM, GraphNode, ModelGraph
from regard.viz.architecture_layout import HEIGHT, WIDTH, Layout, Line, Spot, arrange
from regard.viz.attention_map import PAGE, check_extension
from regard.viz.figure import drawable, figure_bytes

MARGIN, TITLE, MIN_WIDTH = 0.4, 0.35, 5.5  # inches
FULL_SIZE, MAX_NAME = 34, 46  # characters of a name in the usual size, and in a reduced size
FILLS = {"attention": "#ffd9a0", PARAMETER: "#d8ecd8", INPUT: "#e6e6ee", ANSWER: "#e6e6ee", "other": "#dce8f7"}
INK, GREY, HIGHLIGHT = "#1b1b1f", "#55607a", "#c06000"
LAYER = re.compile(r"(.+?)\.(\d+)\.(.+)")
"""Name of a module in a numbered layer: `encoder.layers.0.self_attention`."""


@dataclass(frozen=True)
class Stack:
    """Consecutive layers with identical modules and shapes."""

    name: str  # name of their container: `encoder.layers`
    count: int
    parameters: int  # of all layers
    nodes: tuple[str, ...]  # nodes of the first layer, which represent all layers


def save_graph(graph: ModelGraph, path: str | Path) -> Path:
    """Write a graph to a file: .png, .svg, .pdf, or .html for a self-contained page.

    Raises `InputError` for another extension, `MachineError` if the file cannot be written.
    """
    path = Path(path)
    check_extension(path)
    if path.suffix.lower() == PAGE:
        write_file(path, _page(graph).encode())
    else:
        write_file(path, draw_graph(graph, path.suffix.lower()[1:]))
    return path


def draw_graph(graph: ModelGraph, format: str) -> bytes:
    """Return the figure of a graph as the bytes of a file; `format`: png, svg or pdf."""
    folded, stacks = fold_layers(graph)
    layout = arrange(folded)
    width, height = max(layout.width + 2 * MARGIN, MIN_WIDTH), layout.height + 2 * MARGIN + TITLE / 2
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    left = (width - layout.width) / 2
    axes.set(xlim=(-left, width - left), ylim=(-MARGIN, height - MARGIN))
    axes.axis("off")
    title = drawable(f"{graph.title}: {graph.parameters:,} parameters")
    axes.text(min(0.0, MARGIN - left), layout.height + MARGIN, title, fontsize=11, weight="bold", color=INK)
    for stack in stacks:
        _draw_frame(axes, stack, layout)
    for line in layout.lines:
        _draw_line(axes, line, folded, layout)
    for name, place in layout.places.items():
        _draw_node(axes, folded.nodes[name], place, stacks)
    return figure_bytes(figure, format)


def fold_layers(graph: ModelGraph) -> tuple[ModelGraph, list[Stack]]:
    """Return a graph with only the first of several identical layers, and the stacks of layers that this layer
    represents."""
    stacks: list[Stack] = []
    first: dict[str, str] = {}
    for name, layers in _numbered_layers(graph).items():
        shown, *others = layers.values()
        if not others or any(_unnamed(layer) != _unnamed(shown) for layer in others):
            continue
        parameters = sum(node.parameters for layer in layers.values() for node in layer.values())
        stacks.append(Stack(name, len(layers), parameters, tuple(node.name for node in shown.values())))
        for layer in others:
            first |= {node.name: shown[inside].name for inside, node in layer.items()}
    folded = ModelGraph(graph.title, graph.parameters)
    folded.nodes = {name: node for name, node in graph.nodes.items() if name not in first}
    for (source, target), roles in graph.edges.items():
        source_stack, source_layer = _layer_key(source)
        target_stack, target_layer = _layer_key(target)
        between_layers = source_stack == target_stack and source_layer != target_layer
        if between_layers and (source in first or target in first):
            continue  # the frame of the stack implies the edges from one layer to the next
        for role in roles or [""]:
            folded.add_edge(first.get(source, source), first.get(target, target), role)
    return folded, stacks


def _numbered_layers(graph: ModelGraph) -> dict[str, dict[str, dict[str, GraphNode]]]:
    """Return nodes by the name of the container, the number of the layer, and their name within the layer."""
    layers: dict[str, dict[str, dict[str, GraphNode]]] = {}
    for name, node in graph.nodes.items():
        if match := LAYER.fullmatch(name):
            container, number, inside = match.groups()
            layers.setdefault(container, {}).setdefault(number, {})[inside] = node
    return layers


def _unnamed(layer: dict[str, GraphNode]) -> dict[str, GraphNode]:
    return {inside: dataclasses.replace(node, name=inside) for inside, node in layer.items()}


def _layer_key(name: str) -> tuple[str | None, str | None]:
    match = LAYER.fullmatch(name)
    return (match[1], match[2]) if match else (None, None)


def _draw_frame(axes: Axes, stack: Stack, layout: Layout) -> None:
    """Draw the frame and the title of a stack of layers, in each lane that it occupies."""
    by_lane: dict[int, list[Spot]] = {}
    for place in (layout.places[name] for name in stack.nodes if name in layout.places):
        by_lane.setdefault(place.lane, []).append(place)
    title = drawable(f"{stack.count} \N{MULTIPLICATION SIGN} {stack.name}, {stack.parameters:,} parameters")
    for places in by_lane.values():
        left = min(place.x - max(place.width, WIDTH) / 2 for place in places) - 0.12
        right = max(place.x + max(place.width, WIDTH) / 2 for place in places) + 0.42
        low = min(place.y - place.height / 2 for place in places) - 0.09
        high = max(place.y + place.height / 2 for place in places) + 0.07
        style: dict[str, Any] = {"linestyle": "--", "linewidth": 0.9, "facecolor": "#f6f6fa", "edgecolor": GREY}
        axes.add_patch(_rectangle(left, low, right - left, high - low, 0.1, zorder=0.1, **style))
        font: dict[str, Any] = {"fontsize": 6.5, "color": GREY, "weight": "bold"}
        axes.text(left - 0.05, high, title, rotation=90, ha="right", va="top", **font)


def _rectangle(
    left: float, low: float, width: float, height: float, radius: float, **style: Any
) -> FancyBboxPatch:
    return FancyBboxPatch((left, low), width, height, boxstyle=f"round,pad=0,rounding_size={radius}", **style)


def _draw_node(axes: Axes, node: GraphNode, place: Spot, stacks: list[Stack]) -> None:
    if node.kind == SUM:
        circle = Circle((place.x, place.y), place.width / 2, facecolor="white", edgecolor=GREY, linewidth=0.9)
        axes.add_patch(circle)
        axes.text(place.x, place.y, "+", ha="center", va="center_baseline", fontsize=11, color=INK)
        return
    style: dict[str, Any] = {
        "facecolor": FILLS.get("attention" if node.is_attention else node.kind, FILLS["other"]),
        "edgecolor": HIGHLIGHT if node.is_attention else GREY,
        "linewidth": 1.8 if node.is_attention else 0.9,
    }
    left, low = place.x - place.width / 2, place.y - place.height / 2
    axes.add_patch(_rectangle(left, low, place.width, place.height, 0.08, **style))
    stack = next((stack.name for stack in stacks if node.name in stack.nodes), None)
    name = node.name if stack is None else node.name[len(stack) :].lstrip(".").partition(".")[2]
    name = name if len(name) <= MAX_NAME else f"…{name[-MAX_NAME + 1 :]}"
    kind = "" if node.kind in (INPUT, ANSWER) else node.kind
    details = ", ".join(filter(None, (kind, f"{node.parameters:,} parameters" if node.parameters else "")))
    y = place.y + (0.09 if details else 0)
    size = 8.5 * min(1.0, FULL_SIZE / len(name))
    axes.text(place.x, y, drawable(name), ha="center", va="center", fontsize=size, weight="bold", color=INK)
    axes.text(place.x, place.y - 0.11, drawable(details), ha="center", va="center", fontsize=7, color=GREY)


def _draw_line(axes: Axes, line: Line, graph: ModelGraph, layout: Layout) -> None:
    codes = [Curve.MOVETO] + [Curve.LINETO] * (len(line.points) - 1)
    style: dict[str, Any] = {"mutation_scale": 8, "linewidth": 0.9, "color": GREY, "zorder": 0.5}
    linestyle = ":" if line.returns else "-"
    arrow = FancyArrowPatch(path=Curve(line.points, codes), arrowstyle="-|>", linestyle=linestyle, **style)
    axes.add_patch(arrow)
    roles = [role for role in ROLES if role in graph.edges[line.source, line.target]]
    output_shape = graph.nodes[line.source].output_shape
    shape = f"({', '.join(map(str, output_shape))})" if output_shape else ""
    label = "  ".join(filter(None, (", ".join(roles), shape)))
    (_, y), (_, end) = line.points[-2:]
    target = layout.places[line.target]
    font: dict[str, Any] = {"fontsize": 6.5, "color": HIGHLIGHT if roles else GREY}
    if line.straight:
        (begin, low), (_, bend) = line.points[:2]
        axes.text(begin + 0.06, (low + bend) / 2, label, ha="left", va="center", **font)
    elif layout.places[line.source].lane != target.lane:
        above = end if target.alone else y
        axes.text(target.x - WIDTH / 2 - 0.17, above + 0.02, label, ha="right", va="bottom", **font)
    elif roles or line.returns:
        label = ", ".join([*roles, *(["next step"] if line.returns else [])])
        side = target.x + target.width / 2 + 0.04
        axes.text(side, target.y + HEIGHT / 8, label, ha="left", va="bottom", **font)


def _page(graph: ModelGraph) -> str:
    """Return a page with the figure and a table of all nodes."""
    figure = draw_graph(graph, "svg").decode("utf-8")
    figure = figure[figure.index("<svg") :]
    rows = "".join(
        f"<tr><td>{html.escape(node.name)}</td><td>{html.escape(node.kind)}</td><td>{node.input_shape or ''}</td>"
        f"<td>{node.output_shape or ''}</td><td>{node.parameters:,}</td></tr>"
        for node in graph.nodes.values()
    )
    title = html.escape(f"{graph.title}: {graph.parameters:,} parameters")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>'
        "body{font:15px/1.5 system-ui,sans-serif;margin:1rem}:root{color-scheme:light dark}"
        "svg{max-width:100%;max-height:92vh;background:#fff}"
        "@media (prefers-color-scheme:dark){svg{filter:invert(.93) hue-rotate(180deg)}}"
        ".wide{overflow-x:auto}"
        "td,th{padding:.2rem .8rem .2rem 0;text-align:left;border-bottom:1px solid #8884}</style>"
        f"</head>\n<body><h1>{title}</h1>\n{figure}\n"
        '<div class="wide"><table><thead><tr><th>module</th><th>kind</th>'
        "<th>input</th><th>output</th><th>parameters</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div></body></html>\n"
    )
