"""`regard clean SOURCE TARGET`: leave out of a corpus what is no translation."""

import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.parsing import parse
from regard.data.cleaning_rules import CleaningRules
from regard.errors import InputError, check_range, check_share

if TYPE_CHECKING:
    from regard.data.cleaning import PairScorer

PROG = "regard clean"
USAGE = f"{PROG} SOURCE TARGET"
DESCRIPTION = (
    "Write the pairs of a corpus that may be translations of each other into a new folder, and those that are "
    "not, each with its line and the reason, into dropped.tsv there. The corpus is a source and a target file "
    "with a line for each sentence, or one file of tab-separated pairs; plain or .gz."
)


@dataclass(frozen=True, kw_only=True)
class CleanFlags:
    """All flags of the command."""

    rules: CleaningRules = field(default_factory=CleaningRules)
    runs: tuple[str, ...] = ()
    """One or two runs that score the pairs, by their paths, such as: models/translation. The first translates
    source to target, the second back: then the score is that of both (dual cross-entropy), from 0 to 1."""
    min_score: float = 0.005
    """Score below which a pair is dropped."""
    batchsize: int = 64
    """Pairs that go through a run at once."""
    lenient: bool = False
    """Drop the broken lines of files that have not as many lines, or are not UTF-8, instead of stopping."""
    savepath: Path = Path("cleaned")
    """Folder that is made for what is kept."""
    trust_code: bool = False
    """Run the code of its own that a run names (task, model, score), which nobody has trained with here."""
    trust_edited: bool = False
    """Use a run also where its files were edited or mixed; what differs is said."""


def run(argv: list[str]) -> None:
    """Clean as `argv` asks."""
    count = next((place for place, word in enumerate(argv) if word.startswith("-")), len(argv))
    files, words = argv[:count], argv[count:]
    flags = parse(CleanFlags(), words, prog=USAGE, description=DESCRIPTION)
    if not files:
        raise InputError(f"no text: name a source and a target file first, as in `{PROG} train.de train.en`")
    from regard.data.cleaning import clean_corpus

    check_share("min_score", flags.min_score)
    check_range("batchsize", flags.batchsize, 1, 10**6)
    found = clean_corpus(
        files,
        flags.savepath,
        flags.rules,
        scoring=_scoring(flags),
        min_score=flags.min_score,
        lenient=flags.lenient,
    )
    sys.stdout.write(f"{found}\n")


def _scoring(flags: CleanFlags) -> "PairScorer | None":
    """Return what scores pairs by the runs that are given; None where none are."""
    if not flags.runs:
        return None
    if len(flags.runs) > 2:
        raise InputError(f"{len(flags.runs)} runs: give one from source to target, and perhaps one back")
    from regard.runs import load_translator
    from regard.runs.dual import dual_scores

    paths = [Path(each) for each in flags.runs]
    loaded = [
        load_translator(
            each.name, savepath=each.parent, trust_code=flags.trust_code, trust_edited=flags.trust_edited
        )
        for each in paths
    ]
    backward = loaded[1] if len(loaded) > 1 else None
    return partial(dual_scores, forward=loaded[0], backward=backward, batchsize=flags.batchsize)
