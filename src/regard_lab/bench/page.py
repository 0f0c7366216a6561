"""The bench as a page, on which each failure links to the attention of an input on which the method fails, and as
Markdown tables."""

from pathlib import Path
from statistics import fmean

from regard.arguments import public
from regard.io.writing import make_folder, write_file
from regard.viz.report_page import Part, markdown_table, render_page
from regard_lab.bench.bench_result import BenchResult
from regard_lab.bench.columns import Column
from regard_lab.bench.failures import address_of, write_failures
from regard_lab.bench.methods import ORACLE, RANDOM
from regard_lab.bench.rankings import FAILURE, KNOWN_INPUTS, RIGHT
from regard_lab.bench.tables import CAPTION, detail_tables, group_tables, score_text

WIDTH = 12
"""Number of models beside each other in a table of the page."""
FAILURES = (
    "A failure links to the attention map of the input that the method ranks worst, beside the known answer. A "
    "mean links to the model with the lowest score."
)
LIMITS = (
    "These models are small, and their circuits are known because they were planted or because the task defines "
    "the relevant inputs. An input of a program counts as relevant if another token there changes the answer, so "
    "methods that replace tokens measure nearly the same. A method that is right here need not be right on a "
    "large language model; a method that is wrong here should not be trusted there."
)


@public
def write_bench_page(result: BenchResult, path: str | Path) -> Path:
    """Write a page with all tables, and the pages of the failures to a folder beside it. Return the path of the
    page.

    Raises `MachineError` if a file cannot be written.
    """
    path = Path(path)
    folder = path.with_name(f"{path.stem}-failures")
    make_folder(folder)
    addresses = write_failures(result, folder)

    def link(column: Column, method: str) -> str | None:
        return address_of(addresses, column if column.family != "all" else _worst(result, column, method), method)

    parts: list[Part] = [
        f"{result.summary()}. {CAPTION}",
        FAILURES,
        *group_tables(result.groups, result.methods, WIDTH, link),
        *detail_tables(result.columns, result.methods, WIDTH, link),
        *result.notes,
        LIMITS,
    ]
    write_file(path, render_page("Explanation methods on models whose answer is known", parts).encode())
    return path


def _worst(result: BenchResult, group: Column, method: str) -> Column:
    """Return the column of the model of a group on which a method has the lowest score."""
    members = [
        column
        for column in result.columns
        if (column.kind, column.level) == (group.kind, group.level)
        and method in column.entries
        and group.truth in column.truth.split(", ")
    ]
    return min(members, key=lambda column: column.entries[method].mean)


def write_markdown(result: BenchResult, path: str | Path) -> Path:
    """Write the means over each kind of models, the best method first, and the worst and the best method on each
    trap as Markdown tables. Return the path."""
    parts = [f"{result.summary()}."]
    for level, truth in dict.fromkeys((group.level, group.truth) for group in result.groups):
        groups = [group for group in result.groups if (group.level, group.truth) == (level, truth)]
        rows = {method: [group.entries.get(method) for group in groups] for method in result.methods}
        means = {method: [entry.mean for entry in row if entry is not None] for method, row in rows.items()}
        ranked = sorted(
            (method for method in rows if means[method] and method != ORACLE), key=lambda m: -fmean(means[m])
        )
        cells = [
            [
                f"`{method}`",
                *(score_text(entry, group.models) for entry, group in zip(rows[method], groups, strict=True)),
            ]
            for method in ranked
        ]
        names = [f"{group.kind} ({group.models})" for group in groups]
        parts += [f"## {level}: {truth}", markdown_table(["method", *names], cells)]
    if traps := _trap_rows(result):
        parts += ["## traps", markdown_table(["trap", "fooled", "right"], traps)]
    write_file(Path(path), ("\n\n".join(parts) + "\n").encode())
    return Path(path)


def _trap_rows(result: BenchResult) -> list[list[str]]:
    """Return the methods with the lowest and the highest score, for each trap and kind of truth on which a method
    fails."""
    rows = []
    for column in result.columns:
        scores = {name: entry.mean for name, entry in column.entries.items() if name not in (ORACLE, RANDOM)}
        if column.kind == "trap" and min(scores.values(), default=1.0) < FAILURE:
            ends = (min(scores, key=scores.__getitem__), max(scores, key=scores.__getitem__))
            right = f"`{ends[1]}` {scores[ends[1]]:.2f}" if scores[ends[1]] >= RIGHT else "no measured method"
            name = f"{column.name}, {column.level}" + ("" if column.truth == KNOWN_INPUTS else f" {column.truth}")
            rows.append([name, f"`{ends[0]}` {scores[ends[0]]:.2f}", right])
    return rows
