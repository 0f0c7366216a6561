"""`regard bench`: how often explanation methods are right on models whose answer is known."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from regard.cli.parsing import read_command
from regard.cli.terminal import print_table, resumable, save_files
from regard.io import check_writable
from regard_lab.bench.bench import SAVEPATH, SEEDS, bench
from regard_lab.bench.page import write_bench_page

WIDEST = 160  # characters of a line of the tables


@dataclass(frozen=True, kw_only=True)
class BenchFlags:
    """Measure explanation methods on models whose answer is known: programs compiled to weights, traps,
    programs that Transformers were trained to follow, and Regard's tasks. The table has the area under the
    ROC curve of each method on each model, for inputs, heads and edges, with 95 % intervals over seeds.
    Results are stored one by one: a repeated command continues where it stopped."""

    methods: str = "all"
    """Methods, separated by commas: all, names (see regard.attribute, also captum:CLASS), or your own as FILE.py
    or module:function, which is imported. The oracle and a random ranking are always included."""
    models: str | None = None
    """Models, separated by commas: all, compiled, trap, trained-in, learned, names, or KIND/NAME."""
    seeds: int = SEEDS
    """Number of seeds of training; for compiled models and traps, of their unneeded heads and inputs."""
    quick: bool = False
    """Use 10 inputs instead of 40, and unless --models is given only five of 18 trained models. With five seeds,
    this takes about 15 minutes of CPU time instead of an estimated two hours."""
    json: Path | None = None
    """Write all numbers to this JSON file."""
    html: Path | None = None
    """Write a page with all tables to this HTML file, and pages of the failures to a folder beside it."""
    savepath: Path = Path(SAVEPATH)
    """Directory of the trained models and of the results."""


def run_bench(argv: list[str]) -> None:
    _, flags = read_command(BenchFlags, argv, "regard bench")
    check_writable(flags.json, flags.html)
    with resumable():
        result = bench(
            flags.methods, models=flags.models, seeds=flags.seeds, quick=flags.quick, savepath=flags.savepath
        )
    print_table(result.table(), WIDEST)
    save_files(result.json(), flags.json, flags.html, partial(write_bench_page, result))
