"""HTML pages of results, with tables, figures, text and links; the pages open offline.

A page begins with its best picture. The tables are `rich` tables, as printed in a terminal. All text is escaped.
"""

import base64
import hashlib
import html
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINK = "link "
"""Beginning of the style of a linked cell; `rich` shows the same style as a link in a terminal."""
WIDE, NARROW = 9.0, 3.7
"""Widths in inches of a figure on a page and on a phone, where its text has the same size."""
SIZES = ("font.size", "legend.fontsize", "axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize")
LETTERS: dict[Any, Any] = dict.fromkeys(SIZES, 9)
"""Matplotlib settings for all pages: text of 12 pixels."""
DARK: dict[Any, Any] = {
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "legend.facecolor"), "#101418"),
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), "#e8eaed"),
    "grid.color": "#7f8894",
}
"""Matplotlib settings for a dark page."""
LONG = 48  # Number of characters from which a cell of a table is wrapped


@dataclass(frozen=True)
class Plot:
    """A figure that is drawn for wide and narrow pages, each in light and dark colors."""

    draw: Callable[[float], "Figure"]  # draws the figure for a width in inches, in matplotlib's current colors
    says: str  # alternative text


@dataclass(frozen=True)
class Links:
    """A list of links."""

    title: str
    to: Sequence[tuple[str, str]]  # pairs of a name and a URL


@dataclass(frozen=True)
class Markup:
    """HTML in which all text is escaped."""

    html: str


Part = Group | Table | Text | str | Plot | Links | Markup


def render_page(title: str, parts: Iterable[Part], script: str = "") -> str:
    """Return a page that shows `parts` one after the other. `script`: a JavaScript module.

    >>> "<p>1 &lt; 2</p>" in render_page("Numbers", ["1 < 2"])
    True
    """
    name, style = html.escape(title), files("regard.viz").joinpath("report.css").read_text(encoding="utf-8")
    # Only this script, by its hash, may run.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"; script-src 'sha256-{digest}'" if script else ""
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'{allowed}"
    body = "\n".join(filter(None, map(_render, parts)))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f"<title>{name}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n<h1>{name}</h1>\n{body}\n</main>\n"
        + (f'<script type="module">{script}</script>\n' if script else "")
        + "</body>\n</html>\n"
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
    if isinstance(part, Markup):
        return part.html
    if isinstance(part, Links):
        items = (f'<li><a href="{html.escape(url)}">{html.escape(name)}</a></li>' for name, url in part.to)
        return f"<h2>{html.escape(part.title)}</h2>\n<ul>{''.join(items)}</ul>"
    text = _plain_text(part).strip()
    return f"<p>{html.escape(text)}</p>" if text else ""


def _render_plot(plot: Plot) -> str:
    from matplotlib import rc_context  # slow to import, and most pages have no figure

    from regard.viz.figure import figure_bytes, figure_style

    def address(width: float, colours: dict[Any, Any]) -> str:
        with figure_style(), rc_context(LETTERS | colours):
            svg = figure_bytes(plot.draw(width), "svg")
        return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"

    sources = "".join(
        f'<source media="{media}" srcset="{address(width, colours)}">'
        for media, width, colours in (
            ("(max-width: 40rem) and (prefers-color-scheme: dark)", NARROW, DARK),
            ("(max-width: 40rem)", NARROW, {}),
            ("(prefers-color-scheme: dark)", WIDE, DARK),
        )
    )
    image = f'<picture>{sources}<img src="{address(WIDE, {})}" alt="{html.escape(plot.says)}"></picture>'
    return f'<div class="wide picture" tabindex="0" role="group" aria-label="figure">{image}</div>'


def _render_table(table: Table) -> str:
    title = html.escape(_plain_text(table.title or ""))
    names = [_plain_text(column.header) for column in table.columns]
    kinds = (' class="long"' if len(name) > LONG else "" for name in names)
    heads = (f'<th scope="col"{kind}>{html.escape(name)}</th>' for kind, name in zip(kinds, names, strict=True))
    head = "".join(cell if name else "<td></td>" for cell, name in zip(heads, names, strict=True))
    rows = zip(*([_render_cell(cell) for cell in column.cells] for column in table.columns), strict=True)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    header = f"<thead><tr>{head}</tr></thead>" if table.show_header and any(names) else ""
    content = f"<table>{header}<tbody>{body}</tbody></table>"
    heading = f"<h2>{title}</h2>\n" if title else ""
    note = "".join(f"\n<p>{html.escape(line)}</p>" for line in _plain_text(table.caption or "").splitlines())
    name = title or "table"
    return f'{heading}<div class="wide" tabindex="0" role="group" aria-label="{name}">{content}</div>{note}'


def _render_cell(cell: object) -> str:
    plain = _plain_text(cell)
    text = html.escape(plain)
    if isinstance(cell, Text) and str(cell.style).startswith(LINK):
        text = f'<a href="{html.escape(str(cell.style).removeprefix(LINK))}">{text}</a>'
    return f'<td class="long">{text}</td>' if len(plain) > LONG else f"<td>{text}</td>"


def _plain_text(value: object) -> str:
    """Return text without rich's markup."""
    if isinstance(value, Text):
        return value.plain
    return Text.from_markup(value).plain if isinstance(value, str) else str(value)
