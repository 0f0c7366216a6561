"""What a comparison found: tables for people, JSON and CSV for programs, curves."""

import csv
import dataclasses
import io
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.table import Table

from regard.comparison.grid import Comparison, Variant
from regard.files import write_atomically
from regard.inspection.picture import figure_bytes

QUANTITIES: dict[str, tuple[str, Callable[[float], str]]] = {
    "bleu": ("BLEU", "{:.2f}".format),
    "exact_match": ("exact match", "{:.2%}".format),
    "steps_to_99": ("steps to 99 %", "{:.0f}".format),
    "parameters": ("parameters", "{:,.0f}".format),
    "relevance": ("attention on relevant", "{:.1%}".format),
    "uniform": ("uniform", "{:.1%}".format),
    "alignment_error": ("alignment error", "{:.1%}".format),
}
"""Columns of the table: the name of each quantity, and how it is written."""


def spread(values: Sequence[float], form: Callable[[float], str]) -> str:
    """Write the median and, where they differ, the least and the largest."""
    if not values:
        return ""
    middle = form(statistics.median(values))
    if form(min(values)) == form(max(values)):
        return middle
    return f"{middle} ({form(min(values))} to {form(max(values))})"


def summary(comparison: Comparison) -> RenderableType:
    """Return the tables: a line for each variant; and exact match by the last flag, where two or more vary."""
    seeds = len(next(iter(comparison.measured.values())))
    names = list(comparison.variants[0].varied)
    tables: list[RenderableType] = []
    if len(names) > 1:
        tables += [_by_last(comparison), ""]
    shown = [each for each in QUANTITIES if any(comparison.values(v, each) for v in comparison.variants)]
    title = f"{comparison.task}: median (least to largest) over {seeds} seeds"
    table = _table(title, *names, *(QUANTITIES[each][0] for each in shown))
    for variant in comparison.variants:
        cells = {each: spread(comparison.values(variant, each), QUANTITIES[each][1]) for each in shown}
        reached = len(comparison.values(variant, "steps_to_99"))
        if "steps_to_99" in cells and reached < seeds:
            cells["steps_to_99"] = f"{cells['steps_to_99']} on {reached} of {seeds}".strip()
        table.add_row(*map(str, variant.varied.values()), *cells.values())
    return Group(*tables, table)


def _by_last(comparison: Comparison) -> Table:
    """Return exact match with a row for each variant of all flags but the last, whose values are columns."""
    *names, last = comparison.variants[0].varied
    columns = (f"{last}={value}" for value in _values_of(comparison, last))
    table = _table(f"Exact match by {last}", *names, *columns)
    for others, variants in _series(comparison).items():
        form = QUANTITIES["exact_match"][1]
        cells = [spread(comparison.values(each, "exact_match"), form) for each in variants]
        table.add_row(*map(str, others), *cells)
    return table


def _table(title: str, *columns: str) -> Table:
    return Table(*columns, box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")


def _values_of(comparison: Comparison, flag: str) -> list[Any]:
    return list(dict.fromkeys(variant.varied[flag] for variant in comparison.variants))


def _series(comparison: Comparison) -> dict[tuple[Any, ...], list[Variant]]:
    """Group variants that differ in the last flag only, by the values of the others."""
    series: dict[tuple[Any, ...], list[Variant]] = {}
    for variant in comparison.variants:
        series.setdefault(tuple(variant.varied.values())[:-1], []).append(variant)
    return series


def write_report(comparison: Comparison) -> list[Path]:
    """Write results.json, results.csv and curves.png beside the runs; returns their paths."""
    lines = [
        {"task": comparison.task, **variant.varied, "seed": seed, **dataclasses.asdict(measured)}
        for variant in comparison.variants
        for seed, measured in enumerate(comparison.measured[variant.name])
    ]
    table = io.StringIO()
    writer = csv.DictWriter(table, lines[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    contents = {
        "results.json": (json.dumps(lines, indent=1) + "\n").encode(),
        "results.csv": table.getvalue().encode(),
        "curves.png": curves(comparison, "png"),
    }
    for name, content in contents.items():
        write_atomically(comparison.folder / name, content)
    return [comparison.folder / name for name in contents]


def curves(comparison: Comparison, format: str) -> bytes:
    """Draw exact match over the values of the last flag, a line and a band over the seeds for each series."""
    last = list(comparison.variants[0].varied)[-1]
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    values = _values_of(comparison, last)
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    places = values if numeric else list(range(len(values)))
    for others, variants in _series(comparison).items():
        shares = [comparison.values(each, "exact_match") for each in variants]
        middle = [statistics.median(each) for each in shares]
        (line,) = axes.plot(places, middle, marker="o", label=", ".join(map(str, others)) or comparison.task)
        least, most = [min(each) for each in shares], [max(each) for each in shares]
        axes.fill_between(places, least, most, alpha=0.2, color=line.get_color())
    axes.set(xlabel=last, ylabel="exact match (median, least to largest)", ylim=(-0.02, 1.02))
    axes.set_xticks(places, [str(value) for value in values])
    axes.legend()
    axes.grid(alpha=0.3)
    return figure_bytes(figure, format)
