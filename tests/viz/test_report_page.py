"""Report pages show tables and text of `rich`, and escape all HTML."""

import base64
import re
from typing import Any

import matplotlib
from rich.console import Group
from rich.table import Table
from rich.text import Text

from regard.viz.report_page import Links, Plot, render_page

EVIL = "<img src=x onerror=alert(1)>"


def test_tables() -> None:
    table = Table("name", "", title="Some [bold]title[/]")
    table.add_row(Text("[a]"), "b & c")
    table.add_row(Text(EVIL), "[dim]d[/]")
    text = render_page("x", [Group("", Group(table), Text("said"))])
    assert "<caption>Some title</caption>" in text and '<th scope="col">name</th><td></td>' in text
    assert "<tr><td>[a]</td><td>b &amp; c</td></tr>" in text and "<td>d</td>" in text
    assert "<p>said</p>" in text and "<p></p>" not in text


def test_text_is_escaped() -> None:
    table = Table(EVIL.replace("[", "("), title=Text(EVIL))
    table.add_row(Text(EVIL))
    parts: list[Any] = [table, Text(EVIL), Plot(lambda: b"<svg/>", EVIL), Links(EVIL, [(EVIL, f'"{EVIL}')])]
    text = render_page(EVIL, parts)
    assert "<img src=x" not in text and text.count("&lt;img src=x") == 10
    assert "default-src 'none'" in text


def test_plot_has_light_and_dark_colours() -> None:
    def draw() -> bytes:
        return f"<svg>{matplotlib.rcParams['figure.facecolor']}</svg>".encode()

    text = render_page("x", [Plot(draw, "says")])
    light, dark = (
        base64.b64decode(re.findall(rf'{name}="data:image/svg\+xml;base64,([^"]+)"', text)[0]).decode()
        for name in (" src", "srcset")
    )
    assert light == "<svg>white</svg>" and dark == "<svg>#101418</svg>"
    assert 'media="(prefers-color-scheme: dark)"' in text and "background: white" not in text
    assert matplotlib.rcParams["figure.facecolor"] == "white"


def test_a_cell_with_a_link() -> None:
    table = Table("name")
    table.add_column("score", no_wrap=True)
    table.add_row(Text("a"), Text("0.10 <", style='link pages/x.html#map=1&layer="cross"'))
    text = render_page("x", [table])
    address = "pages/x.html#map=1&amp;layer=&quot;cross&quot;"
    assert f'<tr><td>a</td><td class="whole"><a href="{address}">0.10 &lt;</a></td></tr>' in text
