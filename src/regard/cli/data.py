"""Commands on tasks and data: `regard tasks`, `regard data` and `regard clean`."""

import shlex
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from regard.arguments import Limits
from regard.cli.parsing import check_needed, read_command
from regard.cli.terminal import print_table
from regard.data.cleaning import CleaningRules, PairScorer, clean_corpus
from regard.data.datasets import DATA_SETS, fetch
from regard.data.parallel import check_files
from regard.errors import InputError, check_range
from regard.result import plain_table

PREFIXES = {"train": "train", "valid": "val", "test": "test"}  # File name prefix of each part of a data set


@dataclass(frozen=True)
class TasksFlags:
    """List the tasks, with an example of each."""


def run_tasks(argv: list[str]) -> None:
    read_command(TasksFlags, argv, "regard tasks")
    from regard.tasks.all_tasks import list_tasks  # imports PyTorch

    rows = ((example.task, example.summary, f"'{example.input}'", example.answer) for example in list_tasks())
    print_table(plain_table(("task", "summary", "example", "answer"), rows, header_style="bold"))


@dataclass(frozen=True, kw_only=True)
class DataFlags:
    """Download a data set and verify its checksums. Existing files with the correct checksum are not
    downloaded again."""

    languages: tuple[str, ...] = ()
    """Language codes of source and target, such as: de en. Default: de en; multi30k also has fr and cs."""
    savepath: Path = Path("data")
    """Directory of the data sets. Each data set is stored in a subfolder with its name."""
    lenient: bool = False
    """Accept files with different numbers of lines, or with invalid UTF-8."""
    url: str | None = None
    """Address of a mirror to download the same files from."""


def run_data(argv: list[str]) -> None:
    [name], flags = read_command(DataFlags, argv, "regard data DATA_SET", example="multi30k", choices=DATA_SETS)
    paths = fetch(name, flags.savepath, languages=flags.languages, url=flags.url)
    words: list[str] = []
    for part, prefix in PREFIXES.items():
        files = [str(path) for path in paths if path.name.startswith(prefix)]
        if not flags.lenient:
            check_files(files)
        words += [f"--{part}", *files]
    sys.stdout.write(f"All {len(paths)} files exist. Train on them with\n")
    sys.stdout.write(f"regard train translation {shlex.join(words)}\n")


@dataclass(frozen=True, kw_only=True)
class CleanFlags:
    """Filter a parallel corpus. Plausible translations are written to a new folder. The file dropped.tsv in this
    folder lists the dropped pairs with line numbers and reasons. CORPUS: a source and a target file with one
    sentence per line, or one file of tab-separated pairs. Files may be compressed (.gz)."""

    rules: CleaningRules = field(default_factory=CleaningRules)
    runs: tuple[str, ...] = ()
    """Paths of one or two runs that score the pairs, such as: models/translation. The first run translates
    source to target. The second run translates target to source. With two runs, the score combines both
    cross-entropies (dual cross-entropy), from 0 to 1."""
    min_score: float = 0.005
    """Drop pairs whose score is lower than this value."""
    batchsize: int = 64
    """Number of pairs per batch."""
    lenient: bool = False
    """Drop lines with invalid UTF-8 and lines without a counterpart, instead of stopping."""
    savepath: Path = Path("cleaned")
    """New folder for the filtered corpus."""
    trust_code: bool = False
    """Execute the custom code of the runs (task, model, score). Read that code first."""
    trust_edited: bool = False
    """Use a run even if its files were edited or come from different runs. The differences are printed."""


def run_clean(argv: list[str]) -> None:
    files, flags = read_command(CleanFlags, argv, "regard clean CORPUS...", example="train.de train.en")
    check_needed(flags, {"min_score": "runs", "batchsize": "runs"})
    Limits(0, 1).check("min_score", flags.min_score)
    check_range("batchsize", flags.batchsize, 1, 10**6)
    scoring: PairScorer | None = None
    if len(flags.runs) > 2:
        raise InputError(
            f"{len(flags.runs)} runs: give one from source to target, and optionally one from target to source"
        )
    if flags.runs:
        from regard.runs.cross_entropy_filter import dual_scores
        from regard.runs.loading import load_translator

        trusted = {"trust_code": flags.trust_code, "trust_edited": flags.trust_edited}
        paths = map(Path, flags.runs)
        forward, *others = (load_translator(path.name, savepath=path.parent, **trusted) for path in paths)
        backward = others[0] if others else None
        scoring = partial(dual_scores, forward=forward, backward=backward, batchsize=flags.batchsize)
    report = clean_corpus(
        files, flags.savepath, flags.rules, scoring=scoring, min_score=flags.min_score, lenient=flags.lenient
    )
    sys.stdout.write(f"{report}\n")
