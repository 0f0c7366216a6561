"""The base class of results of public functions. All results are printed in the same way:

str(result), print(result)    text for reading result.table()                a renderable for rich result.json()
plain values for programs: dicts, lists, numbers and text repr(result)                  one short line
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rich.console import RenderableType
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
            console.print(self.table())
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
