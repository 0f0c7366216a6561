"""`regard clean SOURCE TARGET`: filter sentence pairs that are not translations."""

import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.parsing import check_needed, parse
from regard.data.cleaning import CleaningRules, clean_corpus
from regard.errors import InputError, check_range, check_share

if TYPE_CHECKING:
    from regard.data.cleaning import PairScorer

PROG = "regard clean"
USAGE = f"{PROG} SOURCE TARGET"
DESCRIPTION = (
    "Filter a parallel corpus. Plausible translations are written to a new folder. The file dropped.tsv "
    "in this folder lists the dropped pairs with line numbers and reasons. The corpus is a source and a target "
    "file with one sentence per line, or one file of tab-separated pairs. Files may be compressed (.gz)."
)


@dataclass(frozen=True, kw_only=True)
class CleanFlags:
    """Flags of the command."""

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


def run(argv: list[str]) -> None:
    """Filter the corpus and print a summary."""
    count = next((index for index, word in enumerate(argv) if word.startswith("-")), len(argv))
    files, words = argv[:count], argv[count:]
    flags = parse(CleanFlags(), words, prog=USAGE, description=DESCRIPTION)
    if not files:
        raise InputError(
            f"the corpus is missing: name a source and a target file first, as in `{PROG} train.de train.en`"
        )
    check_needed(flags, {"min_score": "runs", "batchsize": "runs"})
    check_share("min_score", flags.min_score)
    check_range("batchsize", flags.batchsize, 1, 10**6)
    report = clean_corpus(
        files,
        flags.savepath,
        flags.rules,
        scoring=_make_scorer(flags),
        min_score=flags.min_score,
        lenient=flags.lenient,
    )
    sys.stdout.write(f"{report}\n")


def _make_scorer(flags: CleanFlags) -> "PairScorer | None":
    """Return a function that scores pairs with `flags.runs`, or None if there are no runs."""
    if not flags.runs:
        return None
    if len(flags.runs) > 2:
        raise InputError(
            f"{len(flags.runs)} runs: give one from source to target, and optionally one from target to source"
        )
    from regard.runs.cross_entropy_filter import dual_scores
    from regard.runs.loading import load_translator

    paths = map(Path, flags.runs)
    loaded = [
        load_translator(
            path.name, savepath=path.parent, trust_code=flags.trust_code, trust_edited=flags.trust_edited
        )
        for path in paths
    ]
    backward = loaded[1] if len(loaded) > 1 else None
    return partial(dual_scores, forward=loaded[0], backward=backward, batchsize=flags.batchsize)
