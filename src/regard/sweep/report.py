"""Reports of a comparison: tables, JSON, CSV, curves and a page."""

import csv
import dataclasses
import io
import json
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from regard.io.writing import write_file
from regard.result import percent
from regard.statistics import LEVEL, Interval, describe_range, range_confidence, seed_range
from regard.sweep.grid import Measurements, Variant
from regard.sweep.statistics import describe_verdicts, differences
from regard.viz.report_page import Links, Part, Plot, render_page

if TYPE_CHECKING:
    from matplotlib.axes import Axes

QUANTITIES: dict[str, tuple[str, Callable[[float], str]]] = {
    "bleu": ("BLEU", "{:.2f}".format),
    "exact_match": ("exact match", partial(percent, digits=2)),
    "steps_to_99": ("steps to 99 %", "{:.0f}".format),
    "seconds": ("seconds", "{:.1f}".format),
    "parameters": ("parameters", "{:,.0f}".format),
    "relevance": ("attention on relevant", percent),
    "uniform": ("uniform", percent),
    "alignment_error": ("alignment error", percent),
}
"""Columns of the table: the name and the format of each quantity."""


def format_mean(values: Sequence[float], form: Callable[[float], str]) -> str:
    """Format the mean of values, with their range if they differ."""
    return format_interval(seed_range(values), form) if values else ""


def format_interval(interval: Interval, form: Callable[[float], str]) -> str:
    """Format a value, and its interval if the printed digits of its ends differ."""
    value = form(interval.value)
    if interval.low is None or interval.high is None or form(interval.low) == form(interval.high):
        return value
    return f"{value} ({form(interval.low)} to {form(interval.high)})"


def tables(comparison: Measurements) -> RenderableType:
    """Return a table with one row for each variant. If several flags vary, also return a table of exact match by
    the last flag."""
    seeds = len(next(iter(comparison.measured.values())))
    names = list(comparison.variants[0].varied)
    parts: list[RenderableType] = []
    if len(names) > 1:
        parts += [_by_last(comparison), ""]
    shown = [name for name in QUANTITIES if any(comparison.values(v, name) for v in comparison.variants)]
    title = f"{comparison.task}: mean (range) over {seeds} seeds{_tokenizers(comparison)}"
    table = _table(title, *names, *(QUANTITIES[name][0] for name in shown))
    for variant in comparison.variants:
        cells = {name: format_mean(comparison.values(variant, name), QUANTITIES[name][1]) for name in shown}
        reached = len(comparison.values(variant, "steps_to_99"))
        if "steps_to_99" in cells and reached < seeds:
            cells["steps_to_99"] = f"{cells['steps_to_99']} on {reached} of {seeds}".strip()
        table.add_row(*map(str, variant.varied.values()), *cells.values())
    return Group(*parts, table, Text(describe_range(seeds), style="dim"), *_differences(comparison))


def _tokenizers(comparison: Measurements) -> str:
    """Return the tokenizer of BLEU, or a warning if the variants have different tokenizers."""
    tokenizers = sorted(
        {str(seed.bleu_tokenizer) for seeds in comparison.measured.values() for seed in seeds} - {"None"}
    )
    if len(tokenizers) > 1:
        return f"; BLEU is not comparable, because its tokenizers are {', '.join(tokenizers)}"
    return f"; BLEU with tokenizer {tokenizers[0]}" if tokenizers else ""


def main_quantity(comparison: Measurements) -> str:
    """Return the quantity by which variants are compared: BLEU if it was measured, else exact match."""
    return "bleu" if any(comparison.values(variant, "bleu") for variant in comparison.variants) else "exact_match"


def _differences(comparison: Measurements) -> list[RenderableType]:
    """Return a table of the differences between variants."""
    quantity = main_quantity(comparison)
    name, form = QUANTITIES[quantity]
    contrasts = differences(comparison, quantity)
    if not contrasts:
        return []
    title = f"Differences in {name} (95 % intervals that hold for all {len(contrasts)} at once)"
    table = _table(title if len(contrasts) > 1 else f"Difference in {name} (95 % interval)", "", "", "")
    table.show_header = False
    for contrast in contrasts:
        names = f"{contrast.one.name} minus {contrast.other.name}"
        table.add_row(names, format_interval(contrast.interval, form), contrast.verdict)
    return ["", table, Text(describe_verdicts(contrasts), style="dim")]


def _by_last(comparison: Measurements) -> Table:
    """Return a table of exact match: the values of the last flag are columns, all other combinations rows."""
    *names, last = comparison.variants[0].varied
    columns = (f"{last}={value}" for value in _flag_values(comparison, last))
    table = _table(f"Exact match by {last}", *names, *columns)
    for others, variants in _series(comparison).items():
        form = QUANTITIES["exact_match"][1]
        cells = [format_mean(comparison.values(variant, "exact_match"), form) for variant in variants]
        table.add_row(*map(str, others), *cells)
    return table


def _table(title: str, *columns: str) -> Table:
    return Table(*columns, box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")


def _flag_values(comparison: Measurements, flag: str) -> list[Any]:
    return list(dict.fromkeys(variant.varied[flag] for variant in comparison.variants))


def _series(comparison: Measurements) -> dict[tuple[Any, ...], list[Variant]]:
    """Group variants by the values of all flags except the last one."""
    series: dict[tuple[Any, ...], list[Variant]] = {}
    for variant in comparison.variants:
        series.setdefault(tuple(variant.varied.values())[:-1], []).append(variant)
    return series


def write_report(comparison: Measurements) -> list[Path]:
    """Write all report files to the folder of the runs, and return their paths.

    results.json and results.csv have one line for each run. summary.json has means, ranges, differences and their
    intervals. curves.png shows the learning curves, and values.png shows exact match by the last flag.
    """
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
        "summary.json": (json.dumps(figures(comparison), indent=1) + "\n").encode(),
        "curves.png": learning_curves(comparison, "png"),
        "values.png": curves(comparison, "png"),
    }
    for name, content in contents.items():
        write_file(comparison.folder / name, content)
    return [comparison.folder / name for name in contents]


def write_page(comparison: Measurements, path: str | Path, explorer: str | None = None) -> Path:
    """Write a page with tables and curves that works offline, and return its path.

    `explorer`: the address at which `regard show` serves the variants, used for links from the page.
    """
    table = tables(comparison)
    assert isinstance(table, Group)
    runs = [
        (f"{variant.name or comparison.task}, seed {seed}", f"regard show {folder}")
        for variant in comparison.variants
        for seed, folder in enumerate(comparison.folders(variant))
    ]
    shown = Table("run", "command to view it", title="All runs", title_justify="left", box=None)
    for name, command in runs:
        shown.add_row(Text(name), Text(command))
    parts: list[Part] = [
        table,
        Plot(
            lambda: learning_curves(comparison, "svg"), "Learning curves: exact match and loss by training step"
        ),
        Plot(lambda: curves(comparison, "svg"), "Exact match by the last flag, with the range of the seeds"),
        shown,
    ]
    if explorer is not None and len(runs) > 1:
        parts.append(_links(comparison, explorer))
    write_file(Path(path), render_page(f"Comparison: {comparison.task}", parts).encode())
    return Path(path)


def _links(comparison: Measurements, explorer: str) -> Links:
    """Return links to the first run, alone and side by side with other runs.

    The other runs are the first seed of every variant, and the other seeds of the first variant, which show the
    random variation.
    """
    runs = [(variant, 0) for variant in comparison.variants]
    runs += [(comparison.variants[0], seed) for seed in range(1, len(comparison.folders(comparison.variants[0])))]
    names = [f"{variant.name or comparison.task}, seed {seed}" for variant, seed in runs]
    folders = [shlex.quote(str(comparison.folders(variant)[seed])) for variant, seed in runs]
    title = f"In the explorer, served by: regard show {folders[0]} --compare-with {' '.join(folders[1:])}"
    comparisons = [
        (f"{names[0]} | {name}", f"{explorer}#beside=model-{number}") for number, name in enumerate(names[1:])
    ]
    return Links(title, [(names[0], explorer), *comparisons])


def _range_json(values: Sequence[float]) -> dict[str, Any]:
    return {**dataclasses.asdict(seed_range(values)), "median_confidence": range_confidence(len(values))}


def figures(comparison: Measurements) -> dict[str, Any]:
    """Return means with the range of the seeds, and differences with their intervals, as JSON values."""
    means = [
        {
            **variant.varied,
            **{
                quantity: _range_json(values)
                for quantity in QUANTITIES
                if (values := comparison.values(variant, quantity))
            },
        }
        for variant in comparison.variants
    ]
    quantity = main_quantity(comparison)
    contrasts = [
        {
            "one": contrast.one.name,
            "other": contrast.other.name,
            **dataclasses.asdict(contrast.interval),
            "p_value": contrast.p_value,
            "different": contrast.shown,
            "verdict": contrast.verdict,
        }
        for contrast in differences(comparison, quantity)
    ]
    tokenizers = {
        variant: [seed.bleu_tokenizer for seed in seeds] for variant, seeds in comparison.measured.items()
    }
    extra = {"bleu_tokenizers": tokenizers} if quantity == "bleu" else {}
    return {
        "task": comparison.task,
        "level": LEVEL,
        "means": means,
        "differences": {quantity: contrasts},
        **extra,
    }


def learning_curves(comparison: Measurements, format: str) -> bytes:
    """Draw exact match and loss of training batches over the steps.

    Each line is the smoothed mean over the seeds, with a band for their range.
    """
    from regard.viz.figure import figure_bytes
    from regard.viz.matrix_plots import new_figure  # matplotlib is slow to import

    figure = new_figure(11, 4.2)
    for axes, quantity in zip(figure.subplots(1, 2), ("exact_match", "loss"), strict=True):
        for variant in comparison.variants:
            lines = comparison.metrics(variant)
            shared = set.intersection(*({line["step"] for line in seed} for seed in lines))
            steps = sorted(shared)
            values = np.array([[line[quantity] for line in seed if line["step"] in shared] for seed in lines])
            smooth = _running_mean(values)
            intervals = [seed_range(column) for column in smooth.T.tolist()]
            _plot_band(axes, steps, intervals, label=variant.name or comparison.task)
        axes.set(xlabel="training step", ylabel=QUANTITIES.get(quantity, (quantity,))[0])
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylim(-0.02, 1.02)
    figure.axes[1].set_yscale("log")
    if len(comparison.variants) <= MOST_LABELS:
        figure.axes[0].legend(fontsize=8)
    return figure_bytes(figure, format)


MOST_LABELS = 20
"""Number of lines of a plot up to which it has a legend. A longer legend leaves no space for the lines."""
WINDOW = 10
"""Number of metrics lines that are averaged for a point of a learning curve: the point's line and earlier
lines."""


def _plot_band(axes: "Axes", positions: Sequence[float], intervals: Sequence[Interval], **style: Any) -> None:
    """Plot values as a line, with a band from `low` to `high` if there are any."""
    (line,) = axes.plot(positions, [interval.value for interval in intervals], **style)
    low = [interval.value if interval.low is None else interval.low for interval in intervals]
    high = [interval.value if interval.high is None else interval.high for interval in intervals]
    axes.fill_between(positions, low, high, alpha=0.2, color=line.get_color(), linewidth=0)


def _running_mean(values: np.ndarray) -> np.ndarray:
    sums = np.cumsum(values, axis=1)
    sums[:, WINDOW:] -= sums[:, :-WINDOW].copy()
    return sums / np.minimum(np.arange(values.shape[1]) + 1, WINDOW)


def curves(comparison: Measurements, format: str) -> bytes:
    """Draw exact match by the last flag: for each series the mean over the seeds, with a band for their range."""
    from regard.viz.figure import figure_bytes
    from regard.viz.matrix_plots import new_figure

    last = list(comparison.variants[0].varied)[-1]
    figure = new_figure(7, 4.5)
    axes = figure.subplots()
    values = _flag_values(comparison, last)
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    positions = values if numeric else list(range(len(values)))
    for others, variants in _series(comparison).items():
        means = [seed_range(comparison.values(variant, "exact_match")) for variant in variants]
        _plot_band(axes, positions, means, marker="o", label=", ".join(map(str, others)) or comparison.task)
    axes.set(xlabel=last, ylabel="exact match (mean, range of the seeds)", ylim=(-0.02, 1.02))
    axes.set_xticks(positions, [str(value) for value in values])
    if len(_series(comparison)) <= MOST_LABELS:
        axes.legend()
    axes.grid(alpha=0.3)
    return figure_bytes(figure, format)
