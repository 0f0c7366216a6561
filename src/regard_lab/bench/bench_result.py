"""The result of the bench: scores of explanation methods on models whose answer is known."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from regard.arguments import public
from regard.result import Result, to_plain
from regard_lab.bench.bench_cells import Cell
from regard_lab.bench.columns import Column, Entry
from regard_lab.bench.methods import RANDOM
from regard_lab.bench.rankings import FAILURE, KNOWN_INPUTS

# The bench as tables for a terminal and for a page.

WIDTH = 4
"""Number of models beside each other in a table of a terminal."""
MISSING = "-"
CellLink = Callable[[Column, str], str | None]
"""Returns the address of the page that shows a failure of a method in a column, or None."""
CAPTION = (
    "AUROC: 1 is a perfect ranking, 0.50 is chance. In brackets Student's 95 % interval over seeds; none if all "
    "seeds agree. Seeds are those of training, or of unneeded heads and inputs for compiled models and traps. "
    "Two methods without a common letter differ: paired by seed, 5 % family-wise error (Holm). "
    f"!: below {FAILURE}, a failure. {MISSING}: the method has no ranking. "
    "CPU s: CPU time for one model and one seed."
)


def group_tables(
    columns: Sequence[Column], methods: Sequence[str], width: int = WIDTH, link: CellLink | None = None
) -> list[Table]:
    """Return the mean of each method over the models of each kind, and its CPU time."""
    seconds = {method: _seconds(columns, method) for method in methods}
    parts = [columns[begin : begin + width] for begin in range(0, len(columns), width)]
    return [
        _table("Means over models", part, methods, link, seconds if part is parts[0] else {}) for part in parts
    ]


def detail_tables(
    columns: Sequence[Column], methods: Sequence[str], width: int = WIDTH, link: CellLink | None = None
) -> list[Table]:
    """Return the tables of all models, `width` models beside each other."""
    tables = []
    for kind, level in dict.fromkeys((column.kind, column.level) for column in columns):
        chosen = [column for column in columns if (column.kind, column.level) == (kind, level)]
        for begin in range(0, len(chosen), width):
            tables.append(_table(f"{kind}: {level}", chosen[begin : begin + width], methods, link, {}))
    return tables


def _table(
    title: str,
    columns: Sequence[Column],
    methods: Sequence[str],
    link: CellLink | None,
    seconds: Mapping[str, float],
) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    table.add_column("method", no_wrap=True)
    for column in columns:
        table.add_column(Text(_heading(column)), no_wrap=True)
    if seconds:
        table.add_column("CPU s")
    for method in methods:
        entries = [column.entries.get(method) for column in columns]
        if not any(entries):
            continue
        row: list[Text] = [
            entry_text(
                entry,
                column.models,
                None if link is None or entry is None else link(column, method),
                mark=method != RANDOM,
            )
            for column, entry in zip(columns, entries, strict=True)
        ]
        cost = [Text(f"{seconds[method]:.2f}")] if seconds else []
        table.add_row(Text(method), *row, *cost)
    return table


def _heading(column: Column) -> str:
    name = (
        column.name if column.models == 1 and column.name != column.kind else f"{column.kind} ({column.models})"
    )
    truth = "" if column.truth == KNOWN_INPUTS else f": {column.truth}"
    return f"{name}, {column.level}{truth}" if column.family == "all" else f"{name}{truth}"


def entry_text(entry: Entry | None, models: int, address: str | None = None, *, mark: bool = True) -> Text:
    """Return a score with its interval and letters; with `mark`, a failure is marked, and linked to its page.

    >>> entry = Entry(mean=0.5, low=0.4, high=0.6, letters="b", values=[0.5, 0.5], seconds=0.1)
    >>> entry_text(entry, models=1).plain
    '0.50 (0.40-0.60) b !'
    """
    if entry is None:
        return Text(MISSING)
    failure = "!" if entry.fails and mark else ""
    style: Any = "" if address is None else f"link {address}"
    return Text(" ".join(filter(None, [score_text(entry, models), entry.letters, failure])), style=style)


def score_text(entry: Entry | None, models: int) -> str:
    """Return a score with its interval, and the number of models that are ranked if it is below `models`."""
    if entry is None:
        return MISSING
    interval = "" if entry.low is None or entry.high is None else f" ({entry.low:.2f}-{entry.high:.2f})"
    return f"{entry.mean:.2f}{interval}" + (f" [{entry.models} of {models}]" if entry.models < models else "")


def _seconds(columns: Sequence[Column], method: str) -> float:
    """Return the mean CPU time of a method on a model, over all levels. Kinds of truth share one ranking."""
    kinds: dict[tuple[str, str], float] = {}
    for column in columns:
        if method in column.entries:
            kinds[column.kind, column.level] = column.entries[method].seconds
    totals: dict[str, float] = {}
    for (kind, _), seconds in kinds.items():
        totals[kind] = totals.get(kind, 0.0) + seconds
    return sum(totals.values()) / max(len(totals), 1)


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
