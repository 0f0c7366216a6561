"""Where the boxes of a blueprint stand: a lane for each input, from the bottom to the top, and lines between.

What one input alone leads to stands in its own lane, as the encoder of a translator; all that depends on
several stands in the last one. In a lane each box is above what feeds it. Lengths are inches, upwards from the
lower left.
"""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field

from regard.viz.blueprint import INPUT, SUM, Blueprint

WIDTH, HEIGHT = 2.5, 0.42
"""Of a box."""
ROUND = 0.24
"""Diameter of a sum's circle."""
BETWEEN, ASIDE = 0.25, 0.3
"""From one row to the next, and from one box to that beside it."""
APART = 0.15
"""Between lines that come to a box from aside."""
WORDS = 0.9
"""For what is said of a line that goes from one lane to the next."""
TRACK = 0.17
"""From one line to the next, where they go past boxes."""


@dataclass(frozen=True)
class Spot:
    """Where a box stands."""

    x: float
    y: float
    """Of its middle."""
    width: float
    height: float
    lane: int
    row: int
    alone: bool
    """Whether nothing else is in its row."""


@dataclass(frozen=True)
class Line:
    """A way from one box to another."""

    giver: str
    taker: str
    points: tuple[tuple[float, float], ...]
    straight: bool
    """Whether it goes from a row to the next."""
    returns: bool
    """Whether it leads back, to the next step of what runs again and again."""


@dataclass
class Layout:
    """All places and lines, and the size of what holds them."""

    width: float = 0.0
    height: float = 0.0
    places: dict[str, Spot] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)


def layout_of(found: Blueprint) -> Layout:
    """Return where everything stands."""
    back = _returning(found)
    forward = [flow for flow in found.flows if flow not in back]
    lanes = _lanes(found)
    result, left = Layout(), 0.0
    tracks: dict[int, list[list[tuple[int, int]]]] = {}
    for lane in sorted(set(lanes.values())):
        names = [name for name in found.parts if lanes.get(name) == lane]
        rows = _rows(found, names, forward)
        inside = [flow for flow in found.flows if {lanes.get(each) for each in flow} == {lane}]
        past = [
            (rows[one], rows[other])
            for one, other in inside
            if not _near(rows[one], rows[other], (one, other) in back)
        ]
        tracks[lane] = _tracks(_span(*each) for each in past)
        left = _stand(found, result, names, rows, lane, left) + TRACK * (len(tracks[lane]) + 2)
        _align(result, names, rows, inside)
        if lane != max(lanes.values()):
            crossing = sum(1 for one, other in found.flows if lanes.get(one) == lane != lanes.get(other))
            left += TRACK * crossing + WORDS
    result.width, result.height = left, max(place.y + place.height / 2 for place in result.places.values())
    crossings, arriving = 0, _arriving(found, lanes)
    for flow in found.flows:
        one, other = (result.places[each] for each in flow)
        returns = flow in back
        if one.lane != other.lane:
            crossings += 1
            groups = arriving[flow[1]]
            place = groups.index(_group(found, flow)) - (len(groups) - 1) / 2
            points = _around(result, one, other, len(tracks[one.lane]) + crossings, -1, -place * APART)
            result.lines.append(Line(*flow, points, straight=False, returns=returns))
        elif _near(one.row, other.row, returns):
            result.lines.append(Line(*flow, _up(one, other), straight=True, returns=False))
        else:
            span = _span(one.row, other.row)
            track = next(number for number, each in enumerate(tracks[one.lane]) if span in each)
            points = _around(result, one, other, track, 1)
            result.lines.append(Line(*flow, points, straight=False, returns=returns))
    return result


def _returning(found: Blueprint) -> set[tuple[str, str]]:
    """Return the flows that lead back to what came before, where some parts run again and again: what flowed
    first leads on."""
    follows: dict[str, list[str]] = {}
    back = set()
    for one, other in found.flows:
        reached, waiting = {other}, [other]
        while waiting:
            further = [each for each in follows.get(waiting.pop(), ()) if each not in reached]
            reached.update(further)
            waiting += further
        if one in reached:
            back.add((one, other))
        else:
            follows.setdefault(one, []).append(other)
    return back


def _lanes(found: Blueprint) -> dict[str, int]:
    """Return the lane of each part that anything flows from or to."""
    inputs = [name for name, part in found.parts.items() if part.kind == INPUT]
    sources: dict[str, set[str]] = {name: {name} for name in inputs}
    for _ in found.parts:
        for one, other in found.flows:
            sources.setdefault(other, set()).update(sources.get(one, ()))
    shown = {each for flow in found.flows for each in flow}
    lanes = {
        name: inputs.index(next(iter(sources[name]))) if len(sources[name]) == 1 else len(inputs) - 1
        for name in found.parts
        if name in shown and sources.get(name)
    }
    for name in [each for each in found.parts if each in shown and each not in lanes]:  # what comes from nowhere
        lanes[name] = next((lanes[other] for one, other in found.flows if one == name and other in lanes), 0)
    return lanes


def _rows(found: Blueprint, names: list[str], forward: list[tuple[str, str]]) -> dict[str, int]:
    """Return the row of each part of a lane: above everything there that feeds it."""
    inside = [flow for flow in forward if set(flow) <= set(names)]
    rows = dict.fromkeys(names, 0)
    for _ in names:
        for one, other in inside:
            rows[other] = max(rows[other], rows[one] + 1)
    fed = {other for _, other in inside}
    for name in names:  # what nothing there feeds stands just below what it feeds
        taken = [rows[other] for one, other in inside if one == name]
        if name not in fed and taken and found.parts[name].kind != INPUT:
            rows[name] = min(taken) - 1
    for name in names:  # attention stands alone, for most lines come to it
        if found.parts[name].attends and list(rows.values()).count(rows[name]) > 1:
            row = rows[name]
            rows = {each: at + (at > row or each == name) for each, at in rows.items()}
    return rows


def _span(one: int, other: int) -> tuple[int, int]:
    return min(one, other), max(one, other)


def _near(one: int, other: int, returns: bool) -> bool:
    """Whether a line goes from a row to the next."""
    return not returns and other == one + 1


def _tracks(spans: Iterable[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Share lines past boxes out to tracks, on each of which none is where another one is; short ones inside."""
    tracks: list[list[tuple[int, int]]] = []
    for span in sorted(set(spans), key=lambda each: (each[1] - each[0], each)):
        free = (each for each in tracks if all(span[1] <= low or high <= span[0] for low, high in each))
        track = next(free, None)
        if track is None:
            tracks.append([span])
        else:
            track.append(span)
    return tracks


def _stand(
    found: Blueprint, result: Layout, names: list[str], rows: dict[str, int], lane: int, left: float
) -> float:
    """Give each part of a lane its place; returns where the lane ends."""
    by_row: dict[int, list[str]] = {}
    for name in names:
        by_row.setdefault(rows[name], []).append(name)
    wide = max(len(each) * WIDTH + (len(each) - 1) * ASIDE for each in by_row.values())
    y = 0.0
    for row in sorted(by_row):
        there = by_row[row]
        heights = [ROUND if found.parts[name].kind == SUM else HEIGHT for name in there]
        x = left + wide / 2 - (len(there) - 1) * (WIDTH + ASIDE) / 2
        for name, height in zip(there, heights, strict=True):
            width = ROUND if found.parts[name].kind == SUM else WIDTH
            result.places[name] = Spot(x, y + max(heights) / 2, width, height, lane, row, len(there) == 1)
            x += WIDTH + ASIDE
        y += max(heights) + BETWEEN
    return left + wide


def _align(result: Layout, names: list[str], rows: dict[str, int], inside: list[tuple[str, str]]) -> None:
    """Put what stands alone under the one box that it feeds, from the top downwards."""
    for name in sorted(names, key=lambda each: -rows[each]):
        takers = [other for one, other in inside if one == name and rows[other] == rows[name] + 1]
        if result.places[name].alone and len(takers) == 1:
            result.places[name] = dataclasses.replace(result.places[name], x=result.places[takers[0]].x)


def _end(result: Layout, lane: int) -> float:
    """Return where the boxes of a lane end."""
    return max(place.x + max(place.width, WIDTH) / 2 for place in result.places.values() if place.lane == lane)


def _leaving(one: Spot) -> list[tuple[float, float]]:
    """Return how a line that goes aside leaves a box: from its side, or where others stand there, over them."""
    if one.alone:
        return [(one.x + one.width / 2, one.y)]
    over = one.y + HEIGHT / 2 + BETWEEN / 3
    return [(one.x + WIDTH / 3, one.y + one.height / 2), (one.x + WIDTH / 3, over)]


def _up(one: Spot, other: Spot) -> tuple[tuple[float, float], ...]:
    """Return the way from a row to the next."""
    begin, end = (one.x, one.y + one.height / 2), (other.x, other.y - other.height / 2)
    if abs(one.x - other.x) < 1e-6:
        return begin, end
    middle = other.y - HEIGHT / 2 - BETWEEN / 2
    return begin, (one.x, middle), (other.x, middle), end


def _around(
    result: Layout, one: Spot, other: Spot, track: int, side: int, above: float = 0.0
) -> tuple[tuple[float, float], ...]:
    """Return a way beside the boxes of a lane, on a track, that ends on the left (-1) or right (1) of a box, so
    far above its middle; where others stand in its row, under it."""
    begin = _leaving(one)
    aside = _end(result, one.lane) + TRACK * (track + 1)
    end = [(other.x + side * other.width / 2, other.y + above)]
    if not other.alone:
        under = other.y - HEIGHT / 2 - BETWEEN / 3
        end = [(other.x + side * WIDTH / 6, under), (other.x + side * WIDTH / 6, other.y - other.height / 2)]
    return (*begin, (aside, begin[-1][1]), (aside, end[0][1]), *end)


def _group(found: Blueprint, flow: tuple[str, str]) -> object:
    """Return what lines that come to a box have in common which come as one."""
    return tuple(found.flows[flow]) or flow[0]


def _arriving(found: Blueprint, lanes: dict[str, int]) -> dict[str, list[object]]:
    """Return the groups of lines that come to each box from other lanes."""
    groups: dict[str, list[object]] = {}
    for one, other in found.flows:
        if lanes.get(one) != lanes.get(other):
            there, group = groups.setdefault(other, []), _group(found, (one, other))
            if group not in there:
                there.append(group)
    return groups
