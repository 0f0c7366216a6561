"""`regard score RUN`: the log-probability of pairs, one line each."""

import math
import sys
from dataclasses import dataclass
from pathlib import Path

from regard.cli.lines import numbered_chunks, open_lines, read_line
from regard.cli.parsing import parse_of_run
from regard.cli.words import say
from regard.data.unknown_tokens import UnknownCount
from regard.data.vocabulary import is_blank
from regard.runs import SAVEPATH, SequenceRun, load_translator

PROG = "regard score"
DESCRIPTION = (
    "Give the log-probability (nats) of each pair's target given its source, and after a tab the mean over its "
    "tokens, one line for each line, in order. The pairs are the lines of --input, or else of standard input: "
    "source, tab, target. A line that cannot be scored gives nan, and is told on standard error."
)


@dataclass(frozen=True, kw_only=True)
class ScoreFlags:
    """All flags of the command."""

    input: Path | None = None
    """File of pairs, one a line, source and target separated by a tab, in UTF-8. None: standard input."""
    lenient: bool = False
    """Read files that are not UTF-8, or have zero bytes, instead of stopping: such characters are unknown."""
    batchsize: int = 64
    """Pairs that go through the model at once."""
    savepath: Path = Path(SAVEPATH)
    """Folder of runs."""
    trust_code: bool = False
    """Run the code of its own that the run names (task, model, score), which nobody has trained with here."""
    trust_edited: bool = False
    """Use the run also where its files were edited or mixed; what differs is said."""


def run(argv: list[str]) -> None:
    """Score as `argv` asks."""
    name, flags = parse_of_run(ScoreFlags(), argv, prog=PROG, description=DESCRIPTION, example="translation")
    run = load_translator(
        name, savepath=flags.savepath, trust_code=flags.trust_code, trust_edited=flags.trust_edited
    )
    unknown = UnknownCount(), UnknownCount()
    with open_lines(flags.input, lenient=flags.lenient) as file:
        for chunk in numbered_chunks(file):
            pairs = [_read(run, line, number) for number, line in chunk]
            for source, target in filter(None, pairs):
                unknown[0].add(run.task.source_vocabulary.encode(source))
                unknown[1].add(run.task.target_vocabulary.encode(target))
            scores = iter(run.score([pair for pair in pairs if pair is not None], batchsize=flags.batchsize))
            for pair in pairs:
                found = None if pair is None else next(scores)
                total, mean = (math.nan, math.nan) if found is None else (found.log_probability, found.per_token)
                sys.stdout.write(f"{total:.4f}\t{mean:.4f}\n")
            sys.stdout.flush()
    for side, count in zip(("sources", "targets"), unknown, strict=True):
        if warning := count.warning(f"the {side}"):
            say(f"warning: {warning}")


def _read(run: SequenceRun, line: bytes, number: int) -> tuple[str, str] | None:
    source, tab, target = read_line(line, number).partition("\t")
    if not tab:
        say(f"line {number} has no tab: it is to separate source and target")
        return None
    if (reason := run.too_long(source)) is not None:
        say(f"line {number} {reason}")
        return None
    if is_blank(source):
        say(f"line {number} has a blank source, whose answer is empty: it has no score")
        return None
    if is_blank(target):
        say(f"line {number} has a blank target: its score is that of an empty answer")
    return source, target
