"""Compare variants of a training run over several seeds: train missing runs, test them, and report differences."""

import csv
import dataclasses
import io
import itertools
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from regard.arguments import Limits, public
from regard.attention.mechanism import Mechanism
from regard.errors import InputError
from regard.io import refuse_links, write_file
from regard.progress import counting_bar, print_status
from regard.result import Result, percent, plain_table, to_plain
from regard.statistics import (
    LEVEL,
    Interval,
    describe_range,
    format_interval,
    holm,
    permutation_p,
    range_confidence,
    seed_range,
    shift_interval,
    smallest_group,
)
from regard.sweep.backends import Backend, Local, say_reused
from regard.sweep.job import Job, Measured, make_job
from regard.tasks.all_tasks import find_task
from regard.training.config import make_config
from regard.training.run_folder import RunFolder
from regard.viz.report_page import Links, Part, Plot, render_page

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# A grid of variants and seeds. Each cell is trained and tested once, on one or several machines.
#
#     DIR/TASK/VARIANT/seed-N/TASK/          the run
#     DIR/TASK/VARIANT/seed-N/measured.json  its measurement
#
# Cells with a measurement are not trained again. Interrupted training runs are resumed.


@public
@dataclass(frozen=True)
class Variant:
    """One combination of the varied flags and their values."""

    varied: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The flags as text, for example `pooling=last,max_len=20`."""
        return ",".join(f"{name}={value}" for name, value in self.varied.items())


@public
@dataclass(frozen=True, repr=False)
class Comparison(Result):
    """The measurements of every variant and seed, with tables and files."""

    task: str
    folder: Path
    variants: list[Variant]
    measured: dict[str, list[Measured]]
    """For each variant name, one measurement per seed."""

    def values(self, variant: Variant, quantity: str) -> list[float]:
        """Return one quantity for each seed, without missing values."""
        values = (getattr(measured, quantity) for measured in self.measured[variant.name])
        return [value for value in values if value is not None]

    def metrics(self, variant: Variant) -> list[list[dict[str, Any]]]:
        """Return the training metrics of each seed. Raises `InputError` if metrics are missing."""
        return [RunFolder(run).known_metrics() for run in self.folders(variant)]

    def folders(self, variant: Variant) -> list[Path]:
        return [self.folder / folder_name(variant) / f"seed-{seed}" / self.task for seed in range(self.seeds)]

    @property
    def seeds(self) -> int:
        """Number of seeds of each variant."""
        return len(next(iter(self.measured.values())))

    def summary(self) -> str:
        return f"{self.task}, {len(self.variants)} variants, {self.seeds} seeds each"

    def table(self) -> Group:
        """Return a table with one row for each variant. If several flags vary, another has exact match by the last."""
        seeds = self.seeds
        names = list(self.variants[0].varied)
        parts: list[RenderableType] = []
        if len(names) > 1:
            # The values of the last flag are columns, all other combinations rows.
            *others, last = names
            form = QUANTITIES["exact_match"][1]
            series = (
                (*map(str, values), *(format_mean(self.values(variant, "exact_match"), form) for variant in variants))
                for values, variants in _series(self).items()
            )
            columns = (f"{last}={value}" for value in _flag_values(self, last))
            parts += [plain_table((*others, *columns), series, f"Exact match by {last}"), ""]
        shown = [name for name in QUANTITIES if any(self.values(v, name) for v in self.variants)]
        title = f"{self.task}: mean (range) over {seeds} seeds{_tokenizers(self)}"
        rows = []
        for variant in self.variants:
            cells = {name: format_mean(self.values(variant, name), QUANTITIES[name][1]) for name in shown}
            reached = len(self.values(variant, "steps_to_99"))
            if "steps_to_99" in cells and reached < seeds:
                cells["steps_to_99"] = f"{cells['steps_to_99']} on {reached} of {seeds}".strip()
            rows.append((*map(str, variant.varied.values()), *cells.values()))
        table = plain_table((*names, *(QUANTITIES[name][0] for name in shown)), rows, title)
        return Group(*parts, table, Text(describe_range(seeds), style="dim"), *_differences(self))

    def json(self) -> dict[str, Any]:
        """Return means with the range of the seeds, and differences with their intervals, as JSON values."""
        means = [
            {
                **variant.varied,
                **{
                    quantity: {**to_plain(seed_range(values)), "median_confidence": range_confidence(len(values))}
                    for quantity in QUANTITIES
                    if (values := self.values(variant, quantity))
                },
            }
            for variant in self.variants
        ]
        quantity = main_quantity(self)
        contrasts = [
            {
                "one": contrast.one.name,
                "other": contrast.other.name,
                **dataclasses.asdict(contrast.interval),
                "p_value": contrast.p_value,
                "different": contrast.shown,
                "verdict": contrast.verdict,
            }
            for contrast in differences(self, quantity)
        ]
        tokenizers = {variant: [seed.bleu_tokenizer for seed in seeds] for variant, seeds in self.measured.items()}
        extra = {"bleu_tokenizers": tokenizers} if quantity == "bleu" else {}
        return {"task": self.task, "level": LEVEL, "means": means, "differences": {quantity: contrasts}, **extra}

    def save(self) -> list[Path]:
        """Write all report files to the folder of the runs, and return their paths.

        results.json and results.csv have one line for each run. summary.json has means, ranges and differences with
        intervals. curves.png shows the learning curves, and values.png shows BLEU or exact match by the last flag.
        """
        from regard.viz.figure import figure_bytes  # matplotlib is slow to import

        lines = [
            {"task": self.task, **variant.varied, "seed": seed, **dataclasses.asdict(measured)}
            for variant in self.variants
            for seed, measured in enumerate(self.measured[variant.name])
        ]
        table = io.StringIO()
        writer = csv.DictWriter(table, lines[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
        contents = {
            "results.json": (json.dumps(lines, indent=1) + "\n").encode(),
            "results.csv": table.getvalue().encode(),
            "summary.json": (json.dumps(self.json(), indent=1) + "\n").encode(),
            "curves.png": figure_bytes(learning_curves(self, 11), "png"),
            "values.png": figure_bytes(draw_values(self, 7), "png"),
        }
        earlier = self.folder / "results.json"
        if earlier.exists() and earlier.read_bytes() != contents[earlier.name]:
            print_status(f"replaced the earlier report in {self.folder} (another savepath keeps both)", show=True)
        for name, content in contents.items():
            write_file(self.folder / name, content)
        return [self.folder / name for name in contents]

    def to_html(self, path: str | Path, *, explorer: str | None = None) -> Path:
        """Write a page with tables and curves that works offline, and return its path.

        `explorer`: the address at which `regard show` serves the variants, used for links from the page.
        """
        runs = [
            (f"{variant.name or self.task}, seed {seed}", f"regard show {folder}")
            for variant in self.variants
            for seed, folder in enumerate(self.folders(variant))
        ]
        shown = plain_table(("run", "command to view it"), [map(Text, pair) for pair in runs], "All runs")
        name = QUANTITIES[main_quantity(self)][0]
        parts: list[Part] = [
            Plot(partial(draw_values, self), f"{name} by the last flag, with the range of the seeds"),
            Plot(partial(learning_curves, self), "Learning curves: exact match and loss by training step"),
            self.table(),
        ]
        if explorer is not None and len(runs) > 1:
            parts += _links(self, explorer)
        parts.append(shown)
        write_file(Path(path), render_page(f"Comparison: {self.task}", parts).encode())
        return Path(path)


def make_variants(vary: Mapping[str, Sequence[Any]]) -> list[Variant]:
    """Return all combinations of values. The last flag varies fastest.

    >>> [variant.name for variant in make_variants({"a": [1, 2], "b": ["x"]})]
    ['a=1,b=x', 'a=2,b=x']

    Raises `InputError` for a flag without values or with repeated values.
    """
    for name, values in vary.items():
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise InputError(f"vary {name}={values!r} is not a list of values: give a list such as [{values!r}]")
        if not values or len(set(values)) < len(values):
            raise InputError(f"vary {name}={','.join(map(str, values))}: give at least one value, and each value once")
    return [Variant(dict(zip(vary, values, strict=True))) for values in product(*vary.values())]


def folder_name(variant: Variant) -> str:
    return "".join(c if c.isalnum() or c in "=,._-" else "-" for c in variant.name) or "all"


# Differences between variants over seeds, and whether they are shown.
#
# A verdict is "different" only if the permutation test, which holds for every distribution, rejects (Holm's
# correction for the number of pairs). Each difference has an interval of the shift from ranks, widened so that all
# intervals hold at once with 95 % confidence (Bonferroni).

MAX_PAIRS = 15  # Number of pairs above which each variant is compared only with the first variant
Verdict = Literal["different", "not shown to differ", "too few seeds"]


@public
@dataclass(frozen=True, kw_only=True)
class Contrast:
    """The shift from variant `other` to variant `one`."""

    one: Variant
    other: Variant
    interval: Interval
    """Median of the differences between seeds of both variants, and the interval of `shift_interval`."""
    seeds: int
    """Number of seeds of the variant with fewer seeds."""
    p_value: float
    """P-value of the permutation test, corrected for the number of pairs."""
    pairs: int
    """Number of pairs that are compared at once."""

    @property
    def verdict(self) -> Verdict:
        """What the seeds show; see the module."""
        if self.p_value <= 1 - LEVEL:
            return "different"
        return "too few seeds" if self.seeds < smallest_group(self.pairs) else "not shown to differ"

    @property
    def shown(self) -> bool:
        """Whether a difference is shown for every distribution of the seeds."""
        return self.verdict == "different"


def differences(comparison: Comparison, quantity: str) -> list[Contrast]:
    """Return the differences of a quantity between all pairs of variants.

    With more than `MAX_PAIRS` pairs, only differences from the first variant are returned. Variants need values.
    """
    values = {variant.name: comparison.values(variant, quantity) for variant in comparison.variants}
    variants = [variant for variant in comparison.variants if values[variant.name]]
    pairs = list(itertools.combinations(variants, 2))
    if len(pairs) > MAX_PAIRS:
        pairs = [(variants[0], variant) for variant in variants[1:]]
    level = 1 - (1 - LEVEL) / max(len(pairs), 1)
    samples = [(values[first.name], values[second.name]) for first, second in pairs]
    return [
        Contrast(
            one=one,
            other=other,
            interval=shift_interval(*groups, level),
            seeds=min(map(len, groups)),
            p_value=p_value,
            pairs=len(pairs),
        )
        for (one, other), groups, p_value in zip(
            pairs, samples, holm([permutation_p(*groups) for groups in samples]), strict=True
        )
    ]


# Reports of a comparison: tables, JSON, CSV, curves and a page.

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


def _tokenizers(comparison: Comparison) -> str:
    known = {str(seed.bleu_tokenizer) for seeds in comparison.measured.values() for seed in seeds}
    tokenizers = sorted(known - {"None"})
    if len(tokenizers) > 1:
        return f"; BLEU is not comparable, because its tokenizers are {', '.join(tokenizers)}"
    return f"; BLEU with tokenizer {tokenizers[0]}" if tokenizers else ""


def main_quantity(comparison: Comparison) -> str:
    """Return the quantity by which variants are compared: BLEU if it was measured, else exact match."""
    return "bleu" if any(comparison.values(variant, "bleu") for variant in comparison.variants) else "exact_match"


def _differences(comparison: Comparison) -> list[RenderableType]:
    quantity = main_quantity(comparison)
    name, form = QUANTITIES[quantity]
    contrasts = differences(comparison, quantity)
    if not contrasts:
        return []
    title = f"Differences in {name} (95 % intervals that hold for all {len(contrasts)} at once)"
    title = title if len(contrasts) > 1 else f"Difference in {name} (95 % interval)"
    rows = (
        (f"{each.one.name} minus {each.other.name}", format_interval(each.interval, form), each.verdict)
        for each in contrasts
    )
    table = plain_table(("", "", ""), rows, title, show_header=False)
    pairs, note = len(contrasts), "different: by an exact permutation test with Holm's correction"
    if min(contrast.seeds for contrast in contrasts) < (least := smallest_group(pairs)):
        note += f", which needs {least} seeds for {pairs} pair{'s' * (pairs > 1)}"
    note += ". Values and intervals are of the shift between variants (median difference, ranks)."
    mechanisms = {str(variant.varied.get("attention", "softmax")) for variant in comparison.variants}
    placed = sorted(text for text in mechanisms if Mechanism.parse(text).position)
    if 0 < len(placed) < len(mechanisms):
        note += f" Not only the part differs: {', '.join(placed)} replace the positions that the others have."
    return ["", table, Text(note, style="dim")]


def _flag_values(comparison: Comparison, flag: str) -> list[Any]:
    return list(dict.fromkeys(variant.varied[flag] for variant in comparison.variants))


def _series(comparison: Comparison) -> dict[tuple[Any, ...], list[Variant]]:
    series: dict[tuple[Any, ...], list[Variant]] = {}
    for variant in comparison.variants:
        series.setdefault(tuple(variant.varied.values())[:-1], []).append(variant)
    return series


def _links(comparison: Comparison, explorer: str) -> list[Part]:
    """Return the command that serves the runs, and links to the first run, alone and side by side with other runs.

    The other runs are the first seed of every variant, and other seeds of the first, for the random variation.
    """
    runs = [(variant, 0) for variant in comparison.variants]
    runs += [(comparison.variants[0], seed) for seed in range(1, len(comparison.folders(comparison.variants[0])))]
    names = [f"{variant.name or comparison.task}, seed {seed}" for variant, seed in runs]
    folders = [shlex.quote(str(comparison.folders(variant)[seed])) for variant, seed in runs]
    command = f"regard show {folders[0]} --compare_with {' '.join(folders[1:])}"
    comparisons = [
        (f"{names[0]} | {name}", f"{explorer}#beside=model-{number}") for number, name in enumerate(names[1:])
    ]
    return [
        f"The links work while this command runs: {command}",
        Links("In the explorer", [(names[0], explorer), *comparisons]),
    ]


def learning_curves(comparison: Comparison, width: float) -> "Figure":
    """Draw exact match and loss of training batches over the steps.

    Each line is the smoothed mean over the seeds, with a band for their range.
    """
    from regard.viz.plots import make_panels  # matplotlib is slow to import

    figure, panels = make_panels(2, width, 3.4)
    for axes, quantity in zip(panels, ("exact_match", "loss"), strict=True):
        for variant in comparison.variants:
            lines = comparison.metrics(variant)
            shared = set.intersection(*({line["step"] for line in seed} for seed in lines))
            steps = sorted(shared)
            values = np.array([[line[quantity] for line in seed if line["step"] in shared] for seed in lines])
            sums = np.cumsum(values, axis=1)
            sums[:, WINDOW:] -= sums[:, :-WINDOW].copy()
            smooth = sums / np.minimum(np.arange(values.shape[1]) + 1, WINDOW)
            intervals = [seed_range(column) for column in smooth.T.tolist()]
            _plot_band(axes, steps, intervals, label=variant.name or comparison.task)
        axes.set(xlabel="training step", ylabel=QUANTITIES.get(quantity, (quantity,))[0])
        axes.grid(alpha=0.3)
    panels[0].set_ylim(-0.02, max(0.1, min(1.02, panels[0].get_ylim()[1])))
    low, high = panels[1].get_ylim()
    panels[1].set_yscale("log" if high > 10 * low > 0 else "linear")
    if 1 < len(comparison.variants) <= MOST_LABELS:
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=max(int(width // 2.9), 1))
    return figure


MOST_LABELS = 20
"""Number of lines of a plot up to which it has a legend. A longer legend leaves no space for the lines."""
WINDOW = 10
"""Number of metrics lines that are averaged for a point of a learning curve: the point's line and earlier lines."""


def _plot_band(axes: "Axes", positions: Sequence[float], intervals: Sequence[Interval], **style: Any) -> None:
    (line,) = axes.plot(positions, [interval.value for interval in intervals], **style)
    low = [interval.value if interval.low is None else interval.low for interval in intervals]
    high = [interval.value if interval.high is None else interval.high for interval in intervals]
    axes.fill_between(positions, low, high, alpha=0.2, color=line.get_color(), linewidth=0)


def draw_values(comparison: Comparison, width: float) -> "Figure":
    """Draw BLEU or exact match by the last flag: the mean and range of the seeds, as a line with a band for numbers,
    as points with bars for categories, which have no order."""
    from regard.viz.plots import ValueInterval, draw_rows, make_panels

    last, quantity = list(comparison.variants[0].varied)[-1], main_quantity(comparison)
    values, unit = _flag_values(comparison, last), f"{QUANTITIES[quantity][0]} (mean, range of the seeds)"
    means = {
        ", ".join(map(str, others)) or comparison.task: [
            (variant.varied[last], seed_range(comparison.values(variant, quantity)))
            for variant in variants
            if comparison.values(variant, quantity)
        ]
        for others, variants in _series(comparison).items()
    }
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        rows = {
            label: [ValueInterval.of(f"{last}={value}", mean) for value, mean in points]
            for label, points in means.items()
        }
        return draw_rows(rows, width, unit)
    figure, [axes] = make_panels(1, width, 3.4)
    for label, points in means.items():
        _plot_band(axes, [value for value, _ in points], [mean for _, mean in points], marker="o", label=label)
    axes.set(xlabel=last, ylabel=unit)
    axes.set_xticks(values, [str(value) for value in values])
    if 1 < len(means) <= MOST_LABELS:
        figure.legend(loc="outside upper left", ncols=max(int(width // 2.4), 1))
    axes.grid(alpha=0.3)
    return figure


COMPARISONS = "comparisons"


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
    """Train and test `task` with every combination of the values in `vary`, with `seeds` seeds for each combination.

    `vary`: maps flags of `regard train` to lists of values. `flags`: flags that all variants share. `savepath`: the
    folder of runs and measurements. Existing measurements are reused. `on`: the backend. The default is this machine;
    `Ray` and `Slurm` use a cluster.

    >>> comparison = regard.compare("counting", {"score": ["dot", "additive"]}, steps=200)    # doctest: +SKIP
    >>> print(comparison)    # doctest: +SKIP

    Raises `InputError` before any training starts if a variant is invalid.
    """
    variants = make_variants(vary)
    folder, jobs = Path(savepath) / find_task(task).name, list[Job]()
    for variant in variants:
        for seed in range(seeds):
            config = make_config(task, {**flags, **variant.varied, "seed": seed})
            task_config: Any = config.task
            if not config.task_class.draws and task_config.text("test") is None:
                raise InputError(f"{config.name} has no test text: give a text with --test")
            jobs.append(make_job(config, folder / folder_name(variant) / f"seed-{seed}"))
    for job in jobs:
        refuse_links(job.folder, below=folder.parent)
    measurements = {job.folder: job.read() for job in jobs}
    missing = [job for job in jobs if measurements[job.folder] is None]
    done = len(jobs) - len(missing)
    say_reused(done, len(jobs), folder, show=progress)
    folders = {folder for job in missing for folder in (job.folder, *list(job.folder.parents)[:3])}
    new = [folder for folder in folders if not folder.exists()]
    if missing:
        try:
            with counting_bar("compare", done, len(jobs), show=progress) as advance:
                for job, result in (on or Local()).run(missing, partial(print_status, show=progress)):
                    measurements[job.folder] = result
                    advance()
        finally:  # processes that stop at the same time leave shared folders empty
            for path in sorted(new, key=lambda path: len(path.parts), reverse=True):
                with suppress(OSError):  # not empty, or absent
                    path.rmdir()
    measured = [measurement for job in jobs if (measurement := measurements[job.folder]) is not None]
    by_variant = {variant.name: measured[index * seeds :][:seeds] for index, variant in enumerate(variants)}
    return Comparison(folder.name, folder, variants, by_variant)
