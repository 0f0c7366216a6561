"""What a result tells, as one page of HTML that opens offline: its tables, its pictures, its words and its links.

Tables are those that rich prints, written as tables of a page; whatever they say is text, and is escaped.
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
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 14px; }
caption { text-align: start; font-weight: 600; padding: 0.4rem 0; }
th, td { text-align: start; padding: 2px 12px 2px 0; vertical-align: top;
  border-bottom: 1px solid light-dark(#dbe4ee, #2b3a4b); }
img { max-width: 100%; height: auto; } p { max-width: 72ch; margin: 0.4rem 0; }
a { color: light-dark(#08519c, #8abaea); }
@media print { body { margin: 0; } table, img { break-inside: avoid; } }
"""


DARK: dict[Any, Any] = {
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "legend.facecolor"), "#101418"),
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), "#e8eaed"),
    "grid.color": "#7f8894",
    "legend.edgecolor": "#7f8894",
}
"""How matplotlib draws on a dark page."""


@dataclass(frozen=True)
class Plot:
    """A picture of a page, which is drawn twice: for a light page and for a dark one."""

    draw: Callable[[], bytes]
    """Returns it as SVG, in the colours that matplotlib is set to."""
    says: str
    """What it shows, for who cannot see it."""


@dataclass(frozen=True)
class Links:
    """Places to go on at."""

    title: str
    to: Sequence[tuple[str, str]]
    """Pairs of a name and an address."""


Part = Group | Table | Text | str | Plot | Links
"""What a page is made of."""


def page_of(title: str, parts: Iterable[Part]) -> str:
    """Return a page of `parts`, one after the other."""
    name = html.escape(title)
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    body = "\n".join(filter(None, map(_written, parts)))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{name}</h1>\n{body}\n"
        f"</main>\n</body>\n</html>\n"
    )


def _written(part: object) -> str:
    """Return one part as HTML; what has no words is nothing."""
    if isinstance(part, Group):
        return "\n".join(filter(None, map(_written, part.renderables)))
    if isinstance(part, Table):
        return _table(part)
    if isinstance(part, Plot):
        return _picture(part)
    if isinstance(part, Links):
        items = (f'<li><a href="{html.escape(to)}">{html.escape(name)}</a></li>' for name, to in part.to)
        return f"<h2>{html.escape(part.title)}</h2>\n<ul>{''.join(items)}</ul>"
    text = _plain(part).strip()
    return f"<p>{html.escape(text)}</p>" if text else ""


def _picture(plot: Plot) -> str:
    """Return a plot as a picture in the colours of the page."""
    from matplotlib import rc_context  # takes a while

    light = _address(plot.draw())
    with rc_context(DARK):
        dark = _address(plot.draw())
    source = f'<source media="(prefers-color-scheme: dark)" srcset="{dark}">'
    return f'<picture>{source}<img src="{light}" alt="{html.escape(plot.says)}"></picture>'


def _address(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def _table(table: Table) -> str:
    """Return a table of rich's: its title, the names of its columns, its cells."""
    title = _plain(table.title or "")
    caption = f"<caption>{html.escape(title)}</caption>" if title else ""
    names = [_plain(column.header) for column in table.columns]
    head = "".join(f'<th scope="col">{html.escape(each)}</th>' if each else "<td></td>" for each in names)
    columns = [[_plain(cell) for cell in column.cells] for column in table.columns]
    rows = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in zip(*columns, strict=True))
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    top = f"<thead><tr>{head}</tr></thead>" if table.show_header and any(names) else ""
    return f'<div class="wide"><table>{caption}{top}<tbody>{body}</tbody></table></div>'


def _plain(value: object) -> str:
    """Return the letters of what rich prints, without its markup."""
    if isinstance(value, Text):
        return value.plain
    return Text.from_markup(value).plain if isinstance(value, str) else str(value)
