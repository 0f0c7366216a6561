"""The result of the bench: scores of explanation methods on models whose answer is known."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group

from regard.arguments import public
from regard.result import Result, to_plain
from regard_lab.bench.bench_cells import Cell
from regard_lab.bench.columns import Column
from regard_lab.bench.tables import CAPTION, detail_tables, group_tables


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class BenchResult(Result):
    """How well explanation methods rank inputs, heads and edges of models whose answer is known."""

    methods: list[str]
    seeds: int
    samples: int
    """Number of inputs of each model and seed."""
    groups: list[Column]
    """Means over the models of each kind."""
    columns: list[Column]
    """One column for each model, level and kind of truth."""
    left_out: dict[str, list[str]]
    """For each method, what it does not rank, with the reason."""
    resisted: dict[str, str]
    """Programs that could not be trained in, with the measurements of the best attempt."""
    folder: Path
    cells: list[Cell]

    def json(self) -> dict[str, Any]:
        """Return the table as plain values, without the single rankings."""
        fields = ("methods", "seeds", "samples", "groups", "columns", "left_out", "resisted")
        return {name: to_plain(getattr(self, name)) for name in fields}

    @property
    def notes(self) -> list[str]:
        """Sentences on the rankings and programs that are left out."""
        reasons = [(method, reason) for method, listed in self.left_out.items() for reason in listed]
        return [
            *(f"{method}: no ranking of {reason}" for method, reason in reasons),
            *(f"not trained in: {name}: {reason}" for name, reason in self.resisted.items()),
        ]

    def table(self) -> Group:
        groups = group_tables(self.groups, self.methods)
        tables = [*groups, *detail_tables(self.columns, self.methods)]
        return Group(CAPTION, *(Group("", table) for table in tables), "", *self.notes)

    def summary(self) -> str:
        models = len({(column.kind, column.name) for column in self.columns})
        return f"{len(self.methods)} methods, {models} models, {self.seeds} seeds, {self.samples} inputs each"
