"""HTML pages of results, with tables, figures, text and links; the pages open offline.

The tables are `rich` tables, as printed in a terminal. All text is escaped.
"""

import base64
import html
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { margin: 1.5rem auto; max-width: 72rem; padding: 0 1rem; background: light-dark(#ffffff, #101418); }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin: 1.6rem 0 0.4rem; }
.wide { overflow-x: auto; } td.whole { white-space: nowrap; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 14px; }
caption { text-align: start; font-weight: 600; padding: 0.4rem 0; }
th, td { text-align: start; padding: 2px 12px 2px 0; vertical-align: top;
  border-bottom: 1px solid light-dark(#dbe4ee, #2b3a4b); }
img { max-width: 100%; height: auto; } p { max-width: 72ch; margin: 0.4rem 0; }
@media screen and (max-width: 40rem) { .picture img { width: 40rem; max-width: none; } } /* text stays readable */
a { color: light-dark(#08519c, #8abaea); }
@media print { body { margin: 0; } table, img { break-inside: avoid; } }
"""

LINK = "link "
"""Beginning of the style of a linked cell; `rich` shows the same style as a link in a terminal."""
DARK: dict[Any, Any] = {
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "legend.facecolor"), "#101418"),
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), "#e8eaed"),
    "grid.color": "#7f8894",
    "legend.edgecolor": "#7f8894",
}
"""Matplotlib settings for a dark page."""


@dataclass(frozen=True)
class Plot:
    """A figure that is drawn once for light pages and once for dark pages."""

    draw: Callable[[], bytes]  # returns the figure as SVG in matplotlib's current colors
    says: str  # alternative text


@dataclass(frozen=True)
class Links:
    """A list of links."""

    title: str
    to: Sequence[tuple[str, str]]  # pairs of a name and a URL


Part = Group | Table | Text | str | Plot | Links


def render_page(title: str, parts: Iterable[Part]) -> str:
    """Return a page that shows `parts` one after the other.

    >>> "<p>1 &lt; 2</p>" in render_page("Numbers", ["1 < 2"])
    True
    """
    name = html.escape(title)
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    body = "\n".join(filter(None, map(_render, parts)))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{name}</h1>\n{body}\n"
        f"</main>\n</body>\n</html>\n"
    )


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; `|` in a cell becomes `/`.

    >>> print(markdown_table(["method", "score"], [["attention", "0.43"]]))
    | method | score |
    | --- | --- |
    | attention | 0.43 |
    """
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def _render(part: object) -> str:
    """Return one part as HTML; empty text gives no paragraph."""
    if isinstance(part, Group):
        return "\n".join(filter(None, map(_render, part.renderables)))
    if isinstance(part, Table):
        return _render_table(part)
    if isinstance(part, Plot):
        return _render_plot(part)
    if isinstance(part, Links):
        items = (f'<li><a href="{html.escape(url)}">{html.escape(name)}</a></li>' for name, url in part.to)
        return f"<h2>{html.escape(part.title)}</h2>\n<ul>{''.join(items)}</ul>"
    text = _plain_text(part).strip()
    return f"<p>{html.escape(text)}</p>" if text else ""


def _render_plot(plot: Plot) -> str:
    from matplotlib import rc_context  # slow to import, and most pages have no figure

    light = _data_url(plot.draw())
    with rc_context(DARK):
        dark = _data_url(plot.draw())
    source = f'<source media="(prefers-color-scheme: dark)" srcset="{dark}">'
    image = f'<picture>{source}<img src="{light}" alt="{html.escape(plot.says)}"></picture>'
    return f'<div class="wide picture" tabindex="0" role="group" aria-label="figure">{image}</div>'


def _data_url(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def _render_table(table: Table) -> str:
    title = _plain_text(table.title or "")
    caption = f"<caption>{html.escape(title)}</caption>" if title else ""
    names = [_plain_text(column.header) for column in table.columns]
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' if name else "<td></td>" for name in names)
    columns = [[_render_cell(cell) for cell in column.cells] for column in table.columns]
    starts = ['<td class="whole">' if column.no_wrap else "<td>" for column in table.columns]
    rows = (
        "".join(f"{start}{cell}</td>" for start, cell in zip(starts, row, strict=True))
        for row in zip(*columns, strict=True)
    )
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    header = f"<thead><tr>{head}</tr></thead>" if table.show_header and any(names) else ""
    return f'<div class="wide"><table>{caption}{header}<tbody>{body}</tbody></table></div>'


def _render_cell(cell: object) -> str:
    text = html.escape(_plain_text(cell))
    if not (isinstance(cell, Text) and str(cell.style).startswith(LINK)):
        return text
    return f'<a href="{html.escape(str(cell.style).removeprefix(LINK))}">{text}</a>'


def _plain_text(value: object) -> str:
    """Return text without rich's markup."""
    if isinstance(value, Text):
        return value.plain
    return Text.from_markup(value).plain if isinstance(value, str) else str(value)
