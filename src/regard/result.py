"""The base class of results of public functions. All results are printed in the same way:

str(result), print(result)    text for reading
result.table()                a renderable for rich
result.json()                 plain values for programs: dicts, lists, numbers and text
repr(result)                  one short line
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Column, Table

WIDTH = 110  # Width in columns of a table that is printed as text


class Result:
    """Base class of results, which are dataclasses. Subclasses override `table` or `__str__` to show more."""

    def table(self) -> "RenderableType":
        """Return the fields as a table for rich, one row per field."""
        from rich.text import Text

        fields = self.json().items()
        rows = (
            (name.replace("_", " "), Text("not measured" if value is None else str(value))) for name, value in fields
        )
        return plain_table((), rows, show_header=False)

    def json(self) -> dict[str, Any]:
        result: Any = self  # a dataclass in every class that inherits this method
        return {field.name: to_plain(getattr(self, field.name)) for field in dataclasses.fields(result)}

    def summary(self) -> str:
        return str(self).strip().partition("\n")[0]

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=WIDTH, color_system=None, force_terminal=False)
        with console.capture() as captured:
            console.print(Fitted(self.table()))
        return "\n".join(line.rstrip() for line in captured.get().splitlines())

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.summary()}>"


def plain_table(
    columns: "Iterable[Column | str]", rows: "Iterable[Iterable[RenderableType]]" = (), title: str = "", **options: Any
) -> "Table":
    """Return a table for rich without lines, with its title on the left."""
    from rich.table import Table

    table = Table(*columns, box=None, pad_edge=False, title=title or None, title_justify="left", **options)
    for row in rows:
        table.add_row(*row)
    return table


NUMBER = re.compile(r"\W*\d")
LONGEST = 32  # characters of a word that is not broken; numbers are never broken


class Fitted:
    """A renderable whose tables fit the width of the console, with every number whole.

    Rich shortens the cells of a table that is too wide. Here the widest columns wrap between words. Columns that do
    not fit even so follow in further tables, which repeat the columns that name a row.
    """

    def __init__(self, renderable: Any) -> None:
        self.renderable = renderable

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[RenderableType]":
        from rich.console import Group
        from rich.table import Table

        if isinstance(self.renderable, Group):
            yield from map(Fitted, self.renderable.renderables)
        elif isinstance(self.renderable, Table) and self.renderable.box is None:
            yield from _fit_table(self.renderable, console, options.max_width)
        else:
            yield self.renderable


def _fit_table(table: "Table", console: "Console", width: int) -> "Iterator[RenderableType]":
    from rich.cells import cell_len

    def least_width(text: str) -> int:
        """Return the width at which no number and no word of usual length is broken."""
        lengths = ((cell_len(word), NUMBER.match(word)) for word in text.split())
        return max((length if number else min(length, LONGEST) for length, number in lengths), default=1)

    space = table.padding[1] + table.padding[3]  # between two columns
    room = width - space * table.pad_edge
    cells = [[*([column.header] if table.show_header else []), *column.cells] for column in table.columns]
    texts = [[str(console.render_str(cell) if isinstance(cell, str) else cell) for cell in column] for column in cells]
    least = [max(map(least_width, column), default=1) for column in texts]
    whole = [max((cell_len(line) for text in column for line in text.splitlines()), default=1) for column in texts]
    rows = list(zip(*texts, strict=True))
    names = next((count for count in range(1, len(texts)) if len({row[:count] for row in rows}) == len(rows)), 1)
    parts: list[list[int]] = [[]]
    for index in range(len(texts)):
        part = [*parts[-1], index]
        if index > names and sum(least[place] + space for place in part) - space > room:
            parts.append([*range(names), index])
        else:
            parts[-1] = part
    for part in parts:
        widths = {index: whole[index] for index in part}
        most = room - space * (len(part) - 1)
        while sum(widths.values()) > most and (wide := [index for index in part if widths[index] > least[index]]):
            widths[max(wide, key=lambda index: widths[index])] -= 1
        if part is not parts[0]:
            yield ""
        shown = copy(table)
        shown.title = table.title if part is parts[0] else None
        shown.columns = [
            dataclasses.replace(table.columns[index], _index=place, width=widths[index], no_wrap=False, overflow="fold")
            for place, index in enumerate(part)
        ]
        yield shown


def to_plain(value: Any) -> Any:
    """Convert a value to types supported by JSON. Arrays become lists. NaN and infinity become None.

    >>> to_plain({"weights": np.array([0.5, np.nan])})
    {'weights': [0.5, None]}
    """
    if isinstance(value, Result):
        return value.json()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): to_plain(content) for name, content in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return to_plain(value.tolist())
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def signed(value: float, digits: int = 3, *, small: bool = False) -> str:
    """Return a difference with its sign; a value that rounds to zero has no sign.

    `small`: such a value has one significant digit instead, if it is not zero.

    >>> signed(0.41239), signed(-0.00002), signed(-0.00002, small=True), signed(-0.0, small=True)
    ('+0.412', '0.000', '-2e-05', '0.000')
    """
    text = f"{value:+.{digits}f}"
    if text.strip("+-0."):
        return text
    return f"{value:+.1g}" if small and value else text[1:]


def percent(value: float, digits: int = 1) -> str:
    """Return a share as a percentage. A share below 1 does not read 100 %, and rounding does not yield -0.

    >>> percent(0.99998), percent(1.0), percent(-0.0001), percent(0.5, 0)
    ('99.9%', '100.0%', '0.0%', '50%')
    """
    text = f"{value:.{digits}%}"
    if 0.9 < abs(value) < 1 and text.lstrip("-").startswith("100"):
        text = f"{'-' * (value < 0)}{(100 - 10**-digits):.{digits}f}%"
    return text.removeprefix("-") if not text.strip("-0.%") else text
