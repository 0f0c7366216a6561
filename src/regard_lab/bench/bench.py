"""Measure how often explanation methods are right on models whose answer is known: `regard.bench` and its result.

The value of a method for one seed is the mean over the samples, and for a group the mean over the models. Means
and intervals are taken over the seeds: the seeds of training of learned and trained-in models, and for compiled
models and traps, which have no training, the seeds of their unneeded heads and of the drawn inputs.
"""

import dataclasses
import itertools
import string
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any

from rich.console import Group
from rich.table import Column as HeadingColumn, Table
from rich.text import Text

from regard.arguments import Limits, public
from regard.io import check_folder, is_file, make_folder
from regard.machine import one_thread
from regard.progress import counting_bar
from regard.result import Result, plain_table, to_plain
from regard.statistics import LEVEL, holm, mean_interval
from regard.sweep.backends import run_in_processes, say_reused
from regard_lab.bench.known_models import KnownModelChoice, ResistsError, choose_models
from regard_lab.bench.rankings import (
    ALL,
    FAILURE,
    KNOWN_INPUTS,
    RANDOM,
    AurocScore,
    Cell,
    Choice,
    cell_path,
    choose_methods,
    draw_inputs,
    measure_cell,
    read_or_measure,
    reload_method,
)

# Letters that show which methods differ (compact letter display, Piepho 2004).
#
# Two methods whose difference is shown have no letter in common; all other pairs share a letter.

ALPHABET = string.ascii_lowercase + string.ascii_uppercase


def assign_letters(names: Sequence[str], different: Collection[frozenset[str]]) -> dict[str, str]:
    """Return the letters of each name. `names` from best to worst; `different`: pairs that differ.

    Insert-and-absorb algorithm of Piepho (2004): begin with one set of all names, split each set that contains
    a differing pair, and delete sets that another set contains.

    >>> assign_letters(["best", "middle", "worst"], {frozenset({"best", "worst"})})
    {'best': 'a', 'middle': 'ab', 'worst': 'b'}
    """
    groups: list[frozenset[str]] = [frozenset(names)]
    for pair in sorted(different, key=sorted):
        split = [part for group in groups for part in ([group - {name} for name in pair] if pair <= group else [group])]
        groups = [
            group
            for index, group in enumerate(split)
            if not any(group < other or (group == other and place < index) for place, other in enumerate(split))
        ]
    order = {name: place for place, name in enumerate(names)}
    groups.sort(key=lambda group: sorted(order[name] for name in group))
    symbols = [*ALPHABET, *(f"({number})" for number in range(len(ALPHABET), len(groups)))]
    return {
        name: "".join(symbol for symbol, group in zip(symbols, groups, strict=False) if name in group) for name in names
    }


MIN_SPREAD = 0.01
"""Smallest standard deviation over seeds that a comparison assumes: few seeds can agree by chance."""
Values = Mapping[str, Sequence[float]]  # For each method, one value per seed


@dataclass(frozen=True)
class Entry:
    """The score of one method in one column."""

    mean: float  # Mean AUROC (0 to 1)
    low: float | None  # Lower end of Student's 95 % interval over seeds; None for one seed, and if all seeds agree
    high: float | None
    letters: str  # Two methods without a common letter differ in this column; empty for one seed
    values: list[float]  # The value of each seed
    seconds: float  # Mean CPU time in seconds for one model and one seed
    models: int = 1  # Number of models that the method ranks

    @property
    def fails(self) -> bool:
        return self.mean < FAILURE


@dataclass(frozen=True, kw_only=True)
class Column:
    """The scores of all methods on one model or on a group of models, at one level and for one kind of truth."""

    name: str  # Name of the model, or of the group
    kind: str
    family: str  # Family of the model; "all" for a group
    level: str
    truth: str
    models: int  # Number of models
    entries: dict[str, Entry]


def model_columns(cells: Iterable[Cell]) -> list[Column]:
    """Return one column for each model, level and kind of truth, in the order of the cells. Only seeds that all methods
    have are compared, so that they can be paired."""
    places: dict[tuple[str, ...], dict[str, dict[int, AurocScore]]] = defaultdict(lambda: defaultdict(dict))
    for cell in cells:
        for score in cell.scores:
            place = (cell.model, cell.kind, cell.family, score.level, score.truth)
            places[place][cell.method][cell.seed] = score
    columns = []
    for (model, kind, family, level, truth), methods in places.items():
        seeds = sorted(set.intersection(*map(set, methods.values())))
        values = {method: [fmean(scores[seed].values) for seed in seeds] for method, scores in methods.items()}
        seconds = {method: fmean(score.seconds for score in scores.values()) for method, scores in methods.items()}
        entries = _entries(values, seconds, dict.fromkeys(methods, 1))
        columns.append(
            Column(name=model, kind=kind, family=family, level=level, truth=truth, models=1, entries=entries)
        )
    return columns


def group_columns(columns: Sequence[Column]) -> list[Column]:
    """Return one column for each kind of model, level and kind of truth: means over the models, or over those that a
    method ranks, without a comparison. A merged truth ("needed, used") counts for each of its kinds."""
    members: dict[tuple[str, str, str], list[Column]] = defaultdict(list)
    for column in columns:
        for truth in column.truth.split(", "):
            members[column.kind, column.level, truth].append(column)
    groups = []
    for (kind, level, truth), models in members.items():
        values, seconds, counts = {}, {}, {}
        for method in dict.fromkeys(method for column in models for method in column.entries):
            ranked = [column.entries[method] for column in models if method in column.entries]
            values[method] = [fmean(seed) for seed in zip(*(entry.values for entry in ranked), strict=False)]
            seconds[method] = fmean(entry.seconds for entry in ranked)
            counts[method] = len(ranked)
        entries = _entries(values, seconds, counts)
        groups.append(
            Column(name=kind, kind=kind, family="all", level=level, truth=truth, models=len(models), entries=entries)
        )
    return groups


def _entries(values: Values, seconds: Mapping[str, float], counts: Mapping[str, int]) -> dict[str, Entry]:
    """Return the entry of each method, the best first, with letters for differences that survive Holm. `counts`: number
    of models of each method; only methods with the largest number are compared."""
    ranked = {method: seeds for method, seeds in sorted(values.items(), key=lambda item: -fmean(item[1])) if seeds}
    compared = {method: seeds for method, seeds in ranked.items() if counts[method] == max(counts.values())}
    several = len(next(iter(ranked.values()), [])) > 1
    letters = assign_letters(list(compared), shown_differences(compared)) if several else {}
    entries = {}
    for method, seeds in ranked.items():
        interval = mean_interval(seeds, (0.0, 1.0))
        bounds, shown = (interval.value, interval.low, interval.high), letters.get(method, "")
        entries[method] = Entry(*bounds, shown, list(seeds), seconds[method], counts[method])
    return entries


def shown_differences(values: Values) -> set[frozenset[str]]:
    """Return the pairs of methods whose paired difference over seeds survives the correction of Holm (1979) over
    all pairs, at a family-wise error of 5 %.

    The p-values are Student's, because exact tests of five seeds have none below 1/16. The value of a seed is a
    mean over many samples, so it varies about normally.

    >>> values = {"a": [0.9, 0.91, 0.9], "b": [0.1, 0.12, 0.1], "c": [0.9, 0.9, 0.91]}
    >>> sorted(map(sorted, shown_differences(values)))
    [['a', 'b'], ['b', 'c']]
    """
    from scipy.special import stdtr

    pairs, p_values = list(itertools.combinations(values, 2)), list[float]()
    for first, second in pairs:
        differences = [one - other for one, other in zip(values[first], values[second], strict=True)]
        error = max(stdev(differences), MIN_SPREAD) / len(differences) ** 0.5
        p_values.append(float(2 * stdtr(len(differences) - 1, -abs(fmean(differences)) / error)))  # two-sided
    return {frozenset(pair) for pair, p_value in zip(pairs, holm(p_values), strict=True) if p_value <= 1 - LEVEL}


# The bench as tables for a terminal and for a page.

WIDTH = 4  # Number of models beside each other in a table of a terminal
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
    seconds = {}
    for method in methods:
        # The mean over the models of their CPU time at all levels. Kinds of truth share one ranking.
        times = {(part.kind, part.level): part.entries[method].seconds for part in columns if method in part.entries}
        seconds[method] = sum(times.values()) / max(len({kind for kind, _ in times}), 1)
    parts = [columns[begin : begin + width] for begin in range(0, len(columns), width)]
    return [_table("Means over models", part, methods, link, seconds if part is parts[0] else {}) for part in parts]


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
    title: str, columns: Sequence[Column], methods: Sequence[str], link: CellLink | None, seconds: Mapping[str, float]
) -> Table:
    headings: list[str | Text] = ["method"]
    for column in columns:
        alone = column.models == 1 and column.name != column.kind
        name = column.name if alone else f"{column.kind} ({column.models})"
        truth = "" if column.truth == KNOWN_INPUTS else f": {column.truth}"
        headings.append(Text(f"{name}, {column.level}{truth}" if column.family == "all" else f"{name}{truth}"))
    rows = []
    for method in methods:
        entries = [column.entries.get(method) for column in columns]
        if not any(entries):
            continue
        links = [
            link(column, method) if link and entry else None for column, entry in zip(columns, entries, strict=True)
        ]
        row = [
            entry_text(entry, column.models, address, mark=method != RANDOM)
            for column, entry, address in zip(columns, entries, links, strict=True)
        ]
        rows.append((Text(method), *row, *([Text(f"{seconds[method]:.2f}")] if seconds else [])))
    whole = [HeadingColumn(heading, no_wrap=True) for heading in headings]
    return plain_table([*whole, *(["CPU s"] if seconds else [])], rows, title, header_style="bold")


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


SAVEPATH = "runs/bench"  # Default folder of the bench: trained models and results
SEEDS = 5  # Default number of seeds
SAMPLES, QUICK_SAMPLES = 40, 10  # Number of unseen inputs of each model and seed


@dataclass(frozen=True)
class BenchJob:
    """All methods on one model with one seed."""

    model: KnownModelChoice
    seed: int
    methods: tuple[tuple[str, str], ...]  # text of the choice and name of each method
    samples: int
    folder: Path


@dataclass(frozen=True)
class BenchJobResult:
    """The cells of a job, or the reason why its model is left out."""

    cells: list[Cell]
    resisted: str | None = None
    reused: int = 0  # Number of cells that were stored


@public
def bench(
    methods: Choice | Sequence[Choice] = ALL,
    *,
    models: str | Sequence[str] | None = None,
    seeds: Annotated[int, Limits(1, 1000)] = SEEDS,
    quick: bool = False,
    savepath: str | Path = SAVEPATH,
    progress: bool = True,
) -> BenchResult:
    """Measure explanation methods on models whose answer is known, and return the table.

    `methods`: "all", names of `regard.attribute`, a Python file or `module:function` of a user, or a function
    that takes a trial and returns its scores; the oracle (the truth) and a random ranking are always included.
    `models`: "all", kinds (compiled, trap, trained-in, learned) or names. `seeds`: number of training seeds, and
    of draws of inputs for compiled models and traps. `quick`: fewer inputs and, unless `models` is given, few
    trained models. `savepath`: folder of trained models and results; a repeated call measures only what is
    missing there. Results of functions that are passed as objects are not stored.

    Raises `InputError` for an unknown method or model, and `MachineError` if a process was terminated.

        print(regard.bench("attention,rollout", models="signal"))
    """
    folder, samples = Path(savepath), QUICK_SAMPLES if quick else SAMPLES
    check_folder(folder)
    chosen = choose_methods(methods)
    stored = tuple((method.text, method.name) for method in chosen if method.text is not None)
    jobs = [
        BenchJob(model, seed, stored, samples, folder)
        for model in choose_models(models, quick=quick)
        for seed in range(seeds)
    ]
    make_folder(folder)
    results: dict[BenchJob, BenchJobResult] = {}
    with counting_bar("bench", 0, len(jobs), show=progress) as advance:
        for job, result in run_in_processes(measure_job, jobs):
            own = [method for method in chosen if method.text is None]
            # Methods that are Python objects are measured in this process: another process cannot import them.
            if own and result.resisted is None:
                with one_thread():
                    subjects = draw_inputs(job.model.build(job.seed, folder), samples)
                    cells = [measure_cell(subjects, method) for method in own]
                result = dataclasses.replace(result, cells=result.cells + cells)
            results[job] = result
            advance()
    measured = [cell for job in jobs for cell in results[job].cells]
    say_reused(sum(result.reused for result in results.values()), len(measured), folder, show=progress)
    columns = model_columns(measured)
    return BenchResult(
        methods=[method.name for method in chosen],
        seeds=seeds,
        samples=samples,
        groups=group_columns(columns),
        columns=columns,
        left_out=dict(_left_out(measured)),
        resisted={f"{job.model.name}, seed {job.seed}": why for job in jobs if (why := results[job].resisted)},
        folder=folder,
        cells=measured,
    )


def measure_job(job: BenchJob) -> BenchJobResult:
    """Build or load the model of a job, and measure all methods that are not measured yet."""
    try:
        known = job.model.build(job.seed, job.folder)
    except ResistsError as error:
        return BenchJobResult([], str(error))
    subjects = draw_inputs(known, job.samples)
    methods = [reload_method(text, name) for text, name in job.methods]
    stored = sum(is_file(cell_path(subjects, method, job.folder)) for method in methods)
    return BenchJobResult([read_or_measure(subjects, method, job.folder) for method in methods], reused=stored)


def _left_out(cells: Sequence[Cell]) -> Iterator[tuple[str, list[str]]]:
    """Yield each method with the levels and models that it does not rank, grouped by reason."""
    reasons: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for cell in cells:
        for level, reason in cell.left_out.items():
            reasons[cell.method][f"{level}: {reason}"].add(cell.model)
    for method, models in reasons.items():
        yield method, [f"{reason} ({len(names)} models)" for reason, names in models.items()]
