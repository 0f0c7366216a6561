"""What a public call returns tells of itself in the same way, whatever it is.

str(it), print(it)    for people, as text
it.table()            for rich: a renderable
it.json()             for programs: dicts, lists, numbers and text, as `json.dumps` takes them
repr(it)              one short line
"""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDTH = 110
"""Columns of a table that is printed as text."""


class Result:
    """Base of what public calls return, dataclasses; `table` and `__str__` are their own where that says more."""

    def table(self) -> "RenderableType":
        """Return the figures as something that rich can print: of a dataclass, a line for each field."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, show_header=False)
        for name, value in self.json().items():
            table.add_row(name.replace("_", " "), Text("not measured" if value is None else str(value)))
        return table

    def json(self) -> dict[str, Any]:
        """Return all as plain values: of a dataclass, its fields."""
        return {each.name: to_plain(getattr(self, each.name)) for each in dataclasses.fields(self)}  # type: ignore[arg-type]

    def summary(self) -> str:
        """Say in a few words what this is, for `repr`."""
        return str(self).strip().partition("\n")[0]

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=WIDTH, color_system=None, force_terminal=False)
        with console.capture() as captured:
            console.print(self.table())
        return "\n".join(line.rstrip() for line in captured.get().splitlines())

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.summary()}>"


def to_plain(value: Any) -> Any:
    """Return a value as JSON has it: what is no number there is None, arrays are lists, results their `json`."""
    if isinstance(value, Result):
        return value.json()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: to_plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): to_plain(each) for name, each in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return to_plain(value.tolist())
    if isinstance(value, list | tuple):
        return [to_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
