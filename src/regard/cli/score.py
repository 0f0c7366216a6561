"""`regard score RUN`: compute the log-probability of sentence pairs."""

import math
import sys
from dataclasses import dataclass, field
from pathlib import Path

from regard.cli.lines import numbered_chunks, open_lines, read_line
from regard.cli.parsing import read_command
from regard.cli.run_flags import RunFlags
from regard.cli.terminal import print_message
from regard.data.unknown_tokens import UnknownCount
from regard.data.vocabulary import is_blank
from regard.runs.sequence_run import SequenceRun


@dataclass(frozen=True, kw_only=True)
class ScoreFlags:
    """Compute the log-probability (nats) of each target given its source. Each line of input gives one line
    of output, in order: the log-probability, a tab, and the mean log-probability per token. Input lines have
    the form source, tab, target, and come from --input or standard input. A line that cannot be scored gives
    nan, with a warning on standard error."""

    input: Path | None = None
    """File of pairs, one per line, source and target separated by a tab, in UTF-8. Default: standard input."""
    lenient: bool = False
    """Replace invalid UTF-8 and zero bytes by the unknown symbol, instead of stopping."""
    batchsize: int = 64
    """Number of pairs per batch."""
    storage: RunFlags = field(default_factory=RunFlags)


def run(argv: list[str]) -> None:
    """Score the pairs."""
    [name], flags = read_command(ScoreFlags, argv, "regard score RUN", example="translation")
    run = flags.storage.load_translator(name)
    run.score([], batchsize=flags.batchsize)  # checks the option before lines are read
    unknown_source, unknown_target = UnknownCount(), UnknownCount()
    with open_lines(flags.input, lenient=flags.lenient) as file:
        for chunk in numbered_chunks(file):
            pairs = [_read_pair(run, line, number) for number, line in chunk]
            for source, target in filter(None, pairs):
                unknown_source.add(run.task.source_vocabulary.encode(source))
                unknown_target.add(run.task.target_vocabulary.encode(target))
            scores = iter(run.score([pair for pair in pairs if pair is not None], batchsize=flags.batchsize))
            for pair in pairs:
                score = None if pair is None else next(scores)
                total, mean = (math.nan, math.nan) if score is None else (score.log_probability, score.per_token)
                sys.stdout.write(f"{total:.4f}\t{mean:.4f}\n")
            sys.stdout.flush()
    for side, count in (("sources", unknown_source), ("targets", unknown_target)):
        if warning := count.warning(f"the {side}"):
            print_message(f"warning: {warning}")


def _read_pair(run: SequenceRun, line: bytes, number: int) -> tuple[str, str] | None:
    """Return the source and target of a line, or print a warning and return None if the line cannot be scored."""
    source, tab, target = read_line(line, number).partition("\t")
    if not tab:
        print_message(f"line {number} has no tab between source and target")
        return None
    if (reason := run.too_long(source)) is not None:
        print_message(f"line {number} {reason}")
        return None
    if is_blank(source):
        print_message(f"line {number} has a blank source, whose answer is always empty: the pair has no score")
        return None
    if is_blank(target):
        print_message(f"line {number} has a blank target: the pair gets the score of an empty answer")
    return source, target
