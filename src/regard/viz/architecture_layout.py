"""Layout of an architecture graph: a lane for each input, nodes from bottom to top, and lines between them.

A node that depends on a single input, such as the encoder of a translator, is in the lane of this input. All
other nodes are in the last lane. Within a lane, each node is above its sources. All lengths are in inches,
measured from the lower left corner.
"""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field

from regard.viz.architecture import INPUT, SUM, ModelGraph

WIDTH, HEIGHT = 2.5, 0.42  # of a box
CIRCLE = 0.24  # diameter of a sum
ROW_GAP, COLUMN_GAP = 0.25, 0.3
ARRIVAL_GAP = 0.15  # between lines that arrive at the same side of a box
LABEL_ROOM = 0.9  # for the label of a line between lanes
TRACK = 0.17  # between parallel lines beside the boxes

Edge = tuple[str, str]
Point = tuple[float, float]


@dataclass(frozen=True)
class Spot:
    """Position of a node."""

    x: float  # horizontal centre
    y: float  # vertical centre
    width: float
    height: float
    lane: int
    row: int
    alone: bool  # whether it is the only node of its row


@dataclass(frozen=True)
class Line:
    """A connection between two nodes."""

    source: str
    target: str
    points: tuple[Point, ...]
    straight: bool  # whether it connects a row with the next one
    returns: bool  # whether it leads back, to the next step of a loop


@dataclass
class Layout:
    """Positions of all nodes, lines between them, and the total size."""

    width: float = 0.0
    height: float = 0.0
    places: dict[str, Spot] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)


def arrange(graph: ModelGraph) -> Layout:
    """Compute the layout of a graph."""
    back = _back_edges(graph)
    forward = [edge for edge in graph.edges if edge not in back]
    lanes = _assign_lanes(graph)
    layout, left = Layout(), 0.0
    tracks: dict[int, list[list[tuple[int, int]]]] = {}
    for lane in sorted(set(lanes.values())):
        names = [name for name in graph.nodes if lanes.get(name) == lane]
        rows = _assign_rows(graph, names, forward)
        inside = [edge for edge in graph.edges if {lanes.get(name) for name in edge} == {lane}]
        passing = [
            _span(rows[source], rows[target])
            for source, target in inside
            if not _adjacent(rows[source], rows[target], (source, target) in back)
        ]
        tracks[lane] = _assign_tracks(passing)
        left = _place_lane(graph, layout, names, rows, lane, left) + TRACK * (len(tracks[lane]) + 2)
        _align(layout, names, rows, inside)
        if lane != max(lanes.values()):
            crossing = sum(lanes.get(source) == lane != lanes.get(target) for source, target in graph.edges)
            left += TRACK * crossing + LABEL_ROOM
    layout.width, layout.height = left, max(place.y + place.height / 2 for place in layout.places.values())
    crossings, arrivals = 0, _arrival_groups(graph, lanes)
    for edge in graph.edges:
        source, target = (layout.places[name] for name in edge)
        returns = edge in back
        if source.lane != target.lane:
            crossings += 1
            groups = arrivals[edge[1]]
            offset = groups.index(_arrival_group(graph, edge)) - (len(groups) - 1) / 2
            track = len(tracks[source.lane]) + crossings
            points = _route_around(layout, source, target, track, -1, -offset * ARRIVAL_GAP)
            layout.lines.append(Line(*edge, points, straight=False, returns=returns))
        elif _adjacent(source.row, target.row, returns):
            layout.lines.append(Line(*edge, _route_up(source, target), straight=True, returns=False))
        else:
            span = _span(source.row, target.row)
            track = next(number for number, spans in enumerate(tracks[source.lane]) if span in spans)
            points = _route_around(layout, source, target, track, 1)
            layout.lines.append(Line(*edge, points, straight=False, returns=returns))
    return layout


def _back_edges(graph: ModelGraph) -> set[Edge]:
    """Return the edges of loops that lead to an earlier node; the edge that occurred first is treated as
    forward."""
    successors: dict[str, list[str]] = {}
    back = set()
    for source, target in graph.edges:
        reached, pending = {target}, [target]
        while pending:
            further = [name for name in successors.get(pending.pop(), ()) if name not in reached]
            reached.update(further)
            pending += further
        if source in reached:
            back.add((source, target))
        else:
            successors.setdefault(source, []).append(target)
    return back


def _assign_lanes(graph: ModelGraph) -> dict[str, int]:
    """Return the lane of each node that has edges."""
    inputs = [name for name, node in graph.nodes.items() if node.kind == INPUT]
    origins: dict[str, set[str]] = {name: {name} for name in inputs}
    for _ in graph.nodes:
        for source, target in graph.edges:
            origins.setdefault(target, set()).update(origins.get(source, ()))
    connected = {name for edge in graph.edges for name in edge}
    lanes = {
        name: inputs.index(next(iter(origins[name]))) if len(origins[name]) == 1 else len(inputs) - 1
        for name in graph.nodes
        if name in connected and origins.get(name)
    }
    for name in [name for name in graph.nodes if name in connected and name not in lanes]:  # depend on no input
        lanes[name] = next(
            (lanes[target] for source, target in graph.edges if source == name and target in lanes), 0
        )
    return lanes


def _assign_rows(graph: ModelGraph, names: list[str], forward: list[Edge]) -> dict[str, int]:
    """Return the row of each node of a lane, above all its sources."""
    inside = [edge for edge in forward if set(edge) <= set(names)]
    rows = dict.fromkeys(names, 0)
    for _ in names:
        for source, target in inside:
            rows[target] = max(rows[target], rows[source] + 1)
    targets = {target for _, target in inside}
    for name in names:  # a node without sources goes directly below its first target
        target_rows = [rows[target] for source, target in inside if source == name]
        if name not in targets and target_rows and graph.nodes[name].kind != INPUT:
            rows[name] = min(target_rows) - 1
    for name in names:  # attention gets its own row, since most lines arrive there
        if graph.nodes[name].is_attention and list(rows.values()).count(rows[name]) > 1:
            row = rows[name]
            rows = {key: value + (value > row or key == name) for key, value in rows.items()}
    return rows


def _span(first: int, second: int) -> tuple[int, int]:
    return min(first, second), max(first, second)


def _adjacent(source_row: int, target_row: int, returns: bool) -> bool:
    """Return whether an edge leads to the next row."""
    return not returns and target_row == source_row + 1


def _assign_tracks(spans: Iterable[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Distribute lines beside boxes over tracks without overlaps, the shortest on the innermost track."""
    tracks: list[list[tuple[int, int]]] = []
    for span in sorted(set(spans), key=lambda span: (span[1] - span[0], span)):
        free = (track for track in tracks if all(span[1] <= low or high <= span[0] for low, high in track))
        track = next(free, None)
        if track is None:
            tracks.append([span])
        else:
            track.append(span)
    return tracks


def _place_lane(
    graph: ModelGraph, layout: Layout, names: list[str], rows: dict[str, int], lane: int, left: float
) -> float:
    """Set the position of each node of a lane; return the right end of the lane."""
    by_row: dict[int, list[str]] = {}
    for name in names:
        by_row.setdefault(rows[name], []).append(name)
    width = max(len(row) * WIDTH + (len(row) - 1) * COLUMN_GAP for row in by_row.values())
    y = 0.0
    for row in sorted(by_row):
        members = by_row[row]
        sizes = [(CIRCLE, CIRCLE) if graph.nodes[name].kind == SUM else (WIDTH, HEIGHT) for name in members]
        tallest = max(height for _, height in sizes)
        x = left + width / 2 - (len(members) - 1) * (WIDTH + COLUMN_GAP) / 2
        for name, size in zip(members, sizes, strict=True):
            layout.places[name] = Spot(x, y + tallest / 2, *size, lane, row, len(members) == 1)
            x += WIDTH + COLUMN_GAP
        y += tallest + ROW_GAP
    return left + width


def _align(layout: Layout, names: list[str], rows: dict[str, int], inside: list[Edge]) -> None:
    """Put a node that is alone in its row below its only target in the next row, from top to bottom."""
    for name in sorted(names, key=lambda name: -rows[name]):
        targets = [target for source, target in inside if source == name and rows[target] == rows[name] + 1]
        if layout.places[name].alone and len(targets) == 1:
            layout.places[name] = dataclasses.replace(layout.places[name], x=layout.places[targets[0]].x)


def _route_up(source: Spot, target: Spot) -> tuple[Point, ...]:
    """Return the points of a line to the next row."""
    begin, end = (source.x, source.y + source.height / 2), (target.x, target.y - target.height / 2)
    if abs(source.x - target.x) < 1e-6:
        return begin, end
    middle = target.y - HEIGHT / 2 - ROW_GAP / 2
    return begin, (source.x, middle), (target.x, middle), end


def _route_around(
    layout: Layout, source: Spot, target: Spot, track: int, side: int, above: float = 0.0
) -> tuple[Point, ...]:
    """Return the points of a line on a track beside the boxes of a lane.

    The line ends at the left (`side` -1) or right (1) side of the target, `above` its center, or at the bottom
    if other nodes are in the row of the target.
    """
    begin = [(source.x + source.width / 2, source.y)]
    if not source.alone:  # leave through the top and above the neighbors
        x = source.x + WIDTH / 3
        begin = [(x, source.y + source.height / 2), (x, source.y + HEIGHT / 2 + ROW_GAP / 3)]
    boxes = [place for place in layout.places.values() if place.lane == source.lane]
    right = max(place.x + max(place.width, WIDTH) / 2 for place in boxes) + TRACK * (track + 1)
    end = [(target.x + side * target.width / 2, target.y + above)]
    if not target.alone:
        x = target.x + side * WIDTH / 6
        end = [(x, target.y - HEIGHT / 2 - ROW_GAP / 3), (x, target.y - target.height / 2)]
    return (*begin, (right, begin[-1][1]), (right, end[0][1]), *end)


def _arrival_group(graph: ModelGraph, edge: Edge) -> object:
    """Return a key shared by edges that arrive at the same point: their roles, or else their source."""
    return tuple(graph.edges[edge]) or edge[0]


def _arrival_groups(graph: ModelGraph, lanes: dict[str, int]) -> dict[str, list[object]]:
    """Return the groups of edges that arrive at each node from other lanes."""
    groups: dict[str, list[object]] = {}
    for source, target in graph.edges:
        if lanes.get(source) != lanes.get(target):
            members, group = groups.setdefault(target, []), _arrival_group(graph, (source, target))
            if group not in members:
                members.append(group)
    return groups
