"""Compare variants of a training run over several seeds: train missing runs, test them, and report
differences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.console import RenderableType

from regard.arguments import Limits, public
from regard.result import Result
from regard.sweep.backends import Backend
from regard.sweep.grid import Measurements, make_variants, measure_grid
from regard.sweep.local import Local
from regard.sweep.report import figures, tables, write_page, write_report
from regard.tasks.all_tasks import find_task

COMPARISONS = "comparisons"


@public
@dataclass(frozen=True, repr=False)
class Comparison(Measurements, Result):
    """The measurements of every variant and seed, with tables and files."""

    def table(self) -> RenderableType:
        return tables(self)

    def json(self) -> dict[str, Any]:
        return figures(self)

    def summary(self) -> str:
        seeds = len(next(iter(self.measured.values())))
        return f"{self.task}, {len(self.variants)} variants, {seeds} seeds each"

    def to_html(self, path: str | Path, *, explorer: str | None = None) -> Path:
        """Write a page with tables and curves, and return its path.

        `explorer`: the address at which `regard show` serves the variants, used for links from the page. Raises
        `MachineError` if the file cannot be written.
        """
        return write_page(self, path, explorer)

    def save(self) -> list[Path]:
        """Write results.json, results.csv, summary.json and plots to the folder of the runs, and return their
        paths."""
        return write_report(self)


@public
def compare(
    task: str,
    vary: Mapping[str, Sequence[Any]],
    *,
    seeds: Annotated[int, Limits(1, 1000)] = 5,
    savepath: str | Path = COMPARISONS,
    on: Backend | None = None,
    progress: bool = True,
    **flags: Any,
) -> Comparison:
    """Train and test `task` with every combination of the values in `vary`, with `seeds` seeds for each
    combination.

    `vary`: maps flags of `regard train` to lists of values. `flags`: flags that all variants share. `savepath`:
    the folder of runs and measurements. Existing measurements are reused. `on`: the backend. The default is
    this machine; `Ray` and `Slurm` use a cluster.

    >>> comparison = regard.compare("counting", {"score": ["dot", "additive"]}, steps=200)    # doctest: +SKIP
    >>> print(comparison)    # doctest: +SKIP

    Raises `InputError` before any training starts if a variant is invalid.
    """
    variants = make_variants(vary)
    name = find_task(task).name
    folder = Path(savepath) / name
    measured = measure_grid(task, variants, seeds, folder, dict(flags), on=on or Local(), progress=progress)
    return Comparison(name, folder, variants, measured)
