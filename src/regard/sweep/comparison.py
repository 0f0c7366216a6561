"""Comparing variants of one training over several seeds: train what is missing, and say what differs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from typing_extensions import Unpack

from regard.errors import check_range
from regard.result import Result
from regard.runs.flags import AnyFlags
from regard.sweep.backends import Backend
from regard.sweep.grid import Measurements, make_variants, measure_grid
from regard.sweep.local import Local
from regard.sweep.report import figures, tables, write_page, write_report
from regard.tasks import find_task

COMPARISONS = "comparisons"


@dataclass(frozen=True, repr=False)
class Comparison(Measurements, Result):
    """What a comparison found, of every variant and seed."""

    def table(self) -> RenderableType:
        """Return the tables: a line for each variant, with means and intervals, and what differs."""
        return tables(self)

    def json(self) -> dict[str, Any]:
        """Return means, differences and their intervals as plain values."""
        return figures(self)

    def summary(self) -> str:
        """Say what was compared."""
        seeds = len(next(iter(self.measured.values())))
        return f"{self.task}, {len(self.variants)} variants, {seeds} seeds each"

    def to_html(self, path: str | Path, *, explorer: str | None = None) -> Path:
        """Write a page with tables and curves; raises `MachineError` where that cannot be.

        `explorer`: where `regard show` serves the variants side by side, so that each has a link into it.
        """
        return write_page(self, path, explorer)

    def save(self) -> list[Path]:
        """Write results.json, results.csv, summary.json and pictures beside the runs; returns their paths."""
        return write_report(self)


def compare(
    task: str,
    vary: Mapping[str, Sequence[Any]],
    *,
    seeds: int = 5,
    savepath: str | Path = COMPARISONS,
    on: Backend | None = None,
    progress: bool = True,
    **flags: Unpack[AnyFlags],
) -> Comparison:
    """Train `task` with every combination of the values in `vary`, over `seeds` seeds each, and test it.

    `vary`: from a flag of `regard train` to its values. `flags`: those that all variants share. Everything is
    kept under `savepath`, and measured once. `on`: where trainings run, by default on this machine; `Ray` and
    `Slurm` send them to a cluster. Raises `InputError` before anything is trained where a variant cannot be.
    """
    check_range("seeds", seeds, 1, 1000)
    variants = make_variants(vary)
    name = find_task(task).name
    folder = Path(savepath) / name
    found = measure_grid(task, variants, seeds, folder, dict(flags), on=on or Local(), progress=progress)
    return Comparison(name, folder, variants, found)
