"""The bench as a page, on which each failure links to the attention of an input on which the method fails."""

from pathlib import Path

from regard.bench.bench_result import BenchResult
from regard.bench.failures import address_of, write_failures
from regard.bench.tables import CAPTION, detail_tables, group_tables
from regard.io import make_folder, write_file
from regard.viz.report_page import Part, render_page

WIDTH = 12
"""Number of models beside each other in a table of the page."""
FAILURES = (
    "A failure links to the attention map of an input on which the method ranks worst, beside the known answer."
)
LIMITS = (
    "These models are small, and their circuits are known because they were planted or because the task defines "
    "the relevant inputs. An input of a program counts as relevant if another token there changes the answer, so "
    "methods that replace tokens measure nearly the same. A method that is right here need not be right on a "
    "large language model; a method that is wrong here should not be trusted there."
)


def write_bench_page(result: BenchResult, path: str | Path) -> Path:
    """Write a page with all tables, and the pages of the failures to a folder beside it. Return the path of the
    page.

    Raises `MachineError` if a file cannot be written.
    """
    path = Path(path)
    folder = path.with_name(f"{path.stem}-failures")
    make_folder(folder)
    addresses = write_failures(result, folder)
    parts: list[Part] = [
        f"{result.summary()}. {CAPTION}",
        FAILURES,
        *group_tables(result.groups, result.methods, WIDTH),
        *detail_tables(
            result.columns, result.methods, WIDTH, lambda column, method: address_of(addresses, column, method)
        ),
        *result.notes,
        LIMITS,
    ]
    write_file(path, render_page("Explanation methods on models whose answer is known", parts).encode())
    return path
