"""What a comparison found: tables for people, JSON and CSV for programs, curves."""

import csv
import dataclasses
import io
import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from regard.io import write_file
from regard.sweep.grid import Measurements, Variant
from regard.sweep.statistics import LEVEL, Interval, differences, mean
from regard.viz.hypertext import Links, Part, Plot, page_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUANTITIES: dict[str, tuple[str, Callable[[float], str]]] = {
    "bleu": ("BLEU", "{:.2f}".format),
    "exact_match": ("exact match", "{:.2%}".format),
    "steps_to_99": ("steps to 99 %", "{:.0f}".format),
    "seconds": ("seconds", "{:.1f}".format),
    "parameters": ("parameters", "{:,.0f}".format),
    "relevance": ("attention on relevant", "{:.1%}".format),
    "uniform": ("uniform", "{:.1%}".format),
    "alignment_error": ("alignment error", "{:.1%}".format),
}
"""Columns of the table: the name of each quantity, and how it is written."""
SHARES = {"exact_match", "relevance", "uniform", "alignment_error"}
"""Those that are from 0 to 1, and so are their intervals."""


def format_mean(values: Sequence[float], form: Callable[[float], str], *, share: bool = False) -> str:
    """Write the mean and, where the values differ, its 95 % interval; of a `share` from 0 to 1."""
    return format_interval(mean(values, share=share), form) if values else ""


def format_interval(found: Interval, form: Callable[[float], str]) -> str:
    """Write a value, and its interval where that is wider than what is written."""
    middle = form(found.value)
    if found.low is None or found.high is None or form(found.low) == form(found.high):
        return middle
    return f"{middle} ({form(found.low)} to {form(found.high)})"


def tables(comparison: Measurements) -> RenderableType:
    """Return the tables: a line for each variant; and exact match by the last flag, where two or more vary."""
    seeds = len(next(iter(comparison.measured.values())))
    names = list(comparison.variants[0].varied)
    parts: list[RenderableType] = []
    if len(names) > 1:
        parts += [_by_last(comparison), ""]
    shown = [each for each in QUANTITIES if any(comparison.values(v, each) for v in comparison.variants)]
    title = f"{comparison.task}: mean (95 % interval) over {seeds} seeds{_tokenizers(comparison)}"
    table = _table(title, *names, *(QUANTITIES[each][0] for each in shown))
    for variant in comparison.variants:
        cells = {
            each: format_mean(comparison.values(variant, each), QUANTITIES[each][1], share=each in SHARES)
            for each in shown
        }
        reached = len(comparison.values(variant, "steps_to_99"))
        if "steps_to_99" in cells and reached < seeds:
            cells["steps_to_99"] = f"{cells['steps_to_99']} on {reached} of {seeds}".strip()
        table.add_row(*map(str, variant.varied.values()), *cells.values())
    return Group(*parts, table, *_differences(comparison))


def _tokenizers(comparison: Measurements) -> str:
    """Say which tokenizer BLEU was worked out with, or that it was not the same for all."""
    found = sorted(
        {str(each.bleu_tokenizer) for some in comparison.measured.values() for each in some} - {"None"}
    )
    if len(found) > 1:
        return f"; BLEU is not comparable, its tokenizers are {', '.join(found)}"
    return f"; BLEU by tokenizer {found[0]}" if found else ""


def main_quantity(comparison: Measurements) -> str:
    """Return what variants are compared by: BLEU, where there is one, or else exact match."""
    return "bleu" if any(comparison.values(each, "bleu") for each in comparison.variants) else "exact_match"


def _differences(comparison: Measurements) -> list[RenderableType]:
    """Say which variants differ, and which are not shown to."""
    quantity = main_quantity(comparison)
    name, form = QUANTITIES[quantity]
    found = differences(comparison, quantity)
    if not found:
        return []
    title = f"Differences in {name} (95 % intervals that hold for all {len(found)} at once)"
    table = _table(title if len(found) > 1 else f"Difference in {name} (95 % interval)", "", "", "")
    table.show_header = False
    for each in found:
        verdict = "different" if each.shown else "not shown to differ"
        if each.interval.low is None:
            verdict = "one seed cannot say"
        table.add_row(f"{each.one.name} less {each.other.name}", format_interval(each.interval, form), verdict)
    return ["", table]


def _by_last(comparison: Measurements) -> Table:
    """Return exact match with a row for each variant of all flags but the last, whose values are columns."""
    *names, last = comparison.variants[0].varied
    columns = (f"{last}={value}" for value in _values_of(comparison, last))
    table = _table(f"Exact match by {last}", *names, *columns)
    for others, variants in _series(comparison).items():
        form = QUANTITIES["exact_match"][1]
        cells = [format_mean(comparison.values(each, "exact_match"), form, share=True) for each in variants]
        table.add_row(*map(str, others), *cells)
    return table


def _table(title: str, *columns: str) -> Table:
    return Table(*columns, box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")


def _values_of(comparison: Measurements, flag: str) -> list[Any]:
    return list(dict.fromkeys(variant.varied[flag] for variant in comparison.variants))


def _series(comparison: Measurements) -> dict[tuple[Any, ...], list[Variant]]:
    """Group variants that differ in the last flag only, by the values of the others."""
    series: dict[tuple[Any, ...], list[Variant]] = {}
    for variant in comparison.variants:
        series.setdefault(tuple(variant.varied.values())[:-1], []).append(variant)
    return series


def write_report(comparison: Measurements) -> list[Path]:
    """Write results.json and results.csv (a line for each run), summary.json (means, differences and their
    intervals), curves.png (learning curves) and values.png (by the last flag) beside the runs; returns their
    paths."""
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
    """Write a page with the tables and the curves, which opens offline; `explorer`: where `regard show` serves
    the variants side by side, so that each has a link into it."""
    table = tables(comparison)
    assert isinstance(table, Group)
    runs = [
        (f"{variant.name or comparison.task}, seed {seed}", f"regard show {folder}")
        for variant in comparison.variants
        for seed, folder in enumerate(comparison.folders(variant))
    ]
    shown = Table("run", "to look inside", title="Every run", title_justify="left", box=None)
    for name, command in runs:
        shown.add_row(Text(name), Text(command))
    parts: list[Part] = [
        table,
        Plot(
            lambda: learning_curves(comparison, "svg"), "Learning curves: exact match and loss by training step"
        ),
        Plot(lambda: curves(comparison, "svg"), "Exact match by the last flag, with intervals over the seeds"),
        shown,
    ]
    if explorer is not None and len(runs) > 1:
        parts.append(_links(comparison, explorer))
    write_file(Path(path), page_of(f"Comparison: {comparison.task}", parts).encode())
    return Path(path)


def _links(comparison: Measurements, explorer: str) -> Links:
    """Return links to the first run alone, and with each of the others beside it: the first of every variant, and
    the other seeds of its own, which show how much is chance."""
    runs = [(variant, 0) for variant in comparison.variants]
    runs += [(comparison.variants[0], seed) for seed in range(1, len(comparison.folders(comparison.variants[0])))]
    names = [f"{variant.name or comparison.task}, seed {seed}" for variant, seed in runs]
    folders = [shlex.quote(str(comparison.folders(variant)[seed])) for variant, seed in runs]
    title = f"In the explorer, while this runs: regard show {folders[0]} --beside {' '.join(folders[1:])}"
    beside = [
        (f"{names[0]} | {name}", f"{explorer}#beside=model-{number}") for number, name in enumerate(names[1:])
    ]
    return Links(title, [(names[0], explorer), *beside])


def figures(comparison: Measurements) -> dict[str, Any]:
    """Return means and differences with their intervals, as JSON has them."""
    means = [
        {
            **variant.varied,
            **{
                quantity: dataclasses.asdict(mean(values, share=quantity in SHARES))
                for quantity in QUANTITIES
                if (values := comparison.values(variant, quantity))
            },
        }
        for variant in comparison.variants
    ]
    quantity = main_quantity(comparison)
    found = [
        {
            "one": each.one.name,
            "other": each.other.name,
            **dataclasses.asdict(each.interval),
            "different": each.shown,
        }
        for each in differences(comparison, quantity)
    ]
    tokenizers = {
        variant: [each.bleu_tokenizer for each in some] for variant, some in comparison.measured.items()
    }
    told = {"bleu_tokenizers": tokenizers} if quantity == "bleu" else {}
    return {"task": comparison.task, "level": LEVEL, "means": means, "differences": {quantity: found}, **told}


def learning_curves(comparison: Measurements, format: str) -> bytes:
    """Draw exact match and loss of training batches over the steps: the mean of all seeds, smoothed, and a band
    of its 95 % interval."""
    figure = _empty_figure(11, 4.2)
    for axes, quantity in zip(figure.subplots(1, 2), ("exact_match", "loss"), strict=True):
        for variant in comparison.variants:
            lines = comparison.metrics(variant)
            steps = sorted(set.intersection(*({line["step"] for line in each} for each in lines)))
            values = np.array([[line[quantity] for line in each if line["step"] in set(steps)] for each in lines])
            smooth = _smoothed(values)
            (line,) = axes.plot(steps, smooth.mean(0), label=variant.name or comparison.task)
            if len(lines) > 1:
                found = [mean(column, share=quantity in SHARES) for column in smooth.T.tolist()]
                low, high = [each.low or 0.0 for each in found], [each.high or 0.0 for each in found]
                axes.fill_between(steps, low, high, alpha=0.2, color=line.get_color(), linewidth=0)
        axes.set(xlabel="training step", ylabel=QUANTITIES.get(quantity, (quantity,))[0])
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylim(-0.02, 1.02)
    figure.axes[1].set_yscale("log")
    figure.axes[0].legend(fontsize=8)
    return _drawn(figure, format)


SMOOTHED = 10
"""Lines of metrics that a point of a learning curve is the mean of, those before it included."""


def _empty_figure(width: float, height: float) -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _drawn(figure: "Figure", format: str) -> bytes:
    from regard.viz.picture import figure_bytes

    return figure_bytes(figure, format)


def _smoothed(values: np.ndarray) -> np.ndarray:
    """Return the running mean of each row."""
    sums = np.cumsum(values, axis=1)
    sums[:, SMOOTHED:] -= sums[:, :-SMOOTHED].copy()
    return sums / np.minimum(np.arange(values.shape[1]) + 1, SMOOTHED)


def curves(comparison: Measurements, format: str) -> bytes:
    """Draw exact match over the values of the last flag, a line and a band over the seeds for each series."""
    last = list(comparison.variants[0].varied)[-1]
    figure = _empty_figure(7, 4.5)
    axes = figure.subplots()
    values = _values_of(comparison, last)
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    places = values if numeric else list(range(len(values)))
    for others, variants in _series(comparison).items():
        shares = [comparison.values(each, "exact_match") for each in variants]
        found = [mean(each, share=True) for each in shares]
        middle = [each.value for each in found]
        (line,) = axes.plot(places, middle, marker="o", label=", ".join(map(str, others)) or comparison.task)
        low = [each.value if each.low is None else each.low for each in found]
        high = [each.value if each.high is None else each.high for each in found]
        axes.fill_between(places, low, high, alpha=0.2, color=line.get_color())
    axes.set(xlabel=last, ylabel="exact match (mean, 95 % interval)", ylim=(-0.02, 1.02))
    axes.set_xticks(places, [str(value) for value in values])
    axes.legend()
    axes.grid(alpha=0.3)
    return _drawn(figure, format)
