"""Report pages show tables and text of `rich`, and escape all HTML."""

import base64
import re
from typing import Any

from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from rich.console import Group
from rich.table import Table
from rich.text import Text

from regard.viz.figure import new_figure
from regard.viz.plots import ValueInterval, draw_rows
from regard.viz.report_page import NARROW, WIDE, Links, Markup, Plot, render_page

EVIL = "<img src=x onerror=alert(1)>"


def begins_with_picture(page: str) -> bool:
    """Whether a report shows a picture before any table or text. Tests of the seven reports call it."""
    return bool(re.search(r'<h1>[^<]*</h1>\n<div class="wide picture"', page)) and "light-dark(" in page


def empty(width: float) -> Figure:
    return new_figure(width, 1)


def test_tables() -> None:
    table = Table("name", "", title="Some [bold]title[/]")
    table.add_row(Text("[a]"), "b & c")
    table.add_row(Text(EVIL), "[dim]d[/]")
    text = render_page("x", [Group("", Group(table), Text("said"))])
    assert "<h2>Some title</h2>" in text and '<th scope="col">name</th><td></td>' in text
    assert "<tr><td>[a]</td><td>b &amp; c</td></tr>" in text and "<td>d</td>" in text
    assert "<p>said</p>" in text and "<p></p>" not in text


def test_text_is_escaped() -> None:
    table = Table(EVIL.replace("[", "("), title=Text(EVIL))
    table.add_row(Text(EVIL))
    parts: list[Any] = [table, Text(EVIL), Plot(empty, EVIL), Links(EVIL, [(EVIL, f'"{EVIL}')])]
    text = render_page(EVIL, parts)
    assert "<img src=x" not in text and text.count("&lt;img src=x") == 11
    assert "default-src 'none'" in text


def test_plot_has_light_and_dark_colours_for_two_widths() -> None:
    text = render_page("x", [Plot(empty, "says")])
    found = re.findall(r'(?:media="([^"]*)" srcset| src)="data:image/svg\+xml;base64,([^"]+)"', text)
    shown = {media: base64.b64decode(svg).decode() for media, svg in found}
    assert ["max-width" in media for media in shown] == [True, True, False, False]
    for media, svg in shown.items():
        assert ("#101418" in svg) == ("dark" in media)
        assert f'width="{72 * (NARROW if "max-width" in media else WIDE):g}pt"' in svg
    assert begins_with_picture(text) and not begins_with_picture(render_page("x", ["text", Plot(empty, "says")]))


def test_rows_are_not_joined() -> None:
    """Each line of a chart over categories stays within its row."""
    rows = [ValueInterval(name, value, value - 1, value + 1) for name, value in (("dot", 1), ("additive", 3))]
    [axes] = draw_rows({"a": rows, "b": rows[::-1]}, WIDE, "unit").axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["dot", "additive"]
    assert [line.get_linestyle() for line in axes.lines] == ["None", "None", "--"]  # points, and the reference
    for lines in axes.collections:
        assert isinstance(lines, LineCollection)
        assert all(len({y for _, y in segment}) == 1 for segment in lines.get_segments())


def test_a_script_is_allowed_by_its_hash() -> None:
    text = render_page("x", [Markup("<b>1</b>")], "const one = 1;")
    assert "<b>1</b>" in text and "script-src 'sha256-" in text and "'unsafe-inline'; script" in text
    assert "script" not in render_page("x", [])


def test_a_cell_with_a_link() -> None:
    table = Table("name")
    table.add_column("score", no_wrap=True)
    table.add_row(Text("a"), Text("0.10 <", style='link pages/x.html#map=1&layer="cross"'))
    text = render_page("x", [table])
    address = "pages/x.html#map=1&amp;layer=&quot;cross&quot;"
    assert f'<tr><td>a</td><td><a href="{address}">0.10 &lt;</a></td></tr>' in text
