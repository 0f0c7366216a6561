"""`regard timeline RUN...`: when the heads of a model form, over its snapshots and over seeds."""

import shutil
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

from regard.cli.parsing import read_command
from regard.cli.run_flags import RunFlags
from regard.cli.terminal import print_table
from regard.interpret.formation import THRESHOLD
from regard.io.writing import check_writable, write_json
from regard.runs.head_timeline import SAMPLE_COUNT, timeline

MAX_WIDTH = 120
"""Maximum number of columns of the report."""


@dataclass(frozen=True, kw_only=True)
class TimelineFlags:
    """Follow every head through the snapshots of one or more runs that differ only in their seed. Which role
    does it take (previous token, duplicate token, induction, first token, ...), at which training step, and
    in which order do roles form? RUN: the folder of a run with snapshots (regard train ... --snapshots 50),
    or a task's name."""

    samples: int = SAMPLE_COUNT
    """Number of samples on which every snapshot is measured (2 or more)."""
    threshold: float = THRESHOLD
    """Score from which a head has a role (above 0, below 1). 0: uniform attention; 1: attention to only the
    role's keys."""
    html: Path | None = None
    """Write a page to this HTML file: strips of roles and heads, the loss, and the tables."""
    json: Path | None = None
    """Write all measurements, by run, snapshot and head, to this JSON file."""
    seed: int = 0
    """Random seed of the samples (0 or more)."""
    storage: RunFlags = field(default_factory=RunFlags)


def run(argv: list[str]) -> None:
    """Measure the runs, then print the timeline and write the files."""
    names, flags = read_command(
        TimelineFlags, argv, "regard timeline RUN...", example="seed0/induction seed1/induction"
    )
    for path in (flags.html, flags.json):
        if path is not None:
            check_writable(path)
    result = timeline(
        names,
        samples=flags.samples,
        threshold=flags.threshold,
        seed=flags.seed,
        **vars(flags.storage),
    )
    width = (
        min(MAX_WIDTH, shutil.get_terminal_size((MAX_WIDTH, 24)).columns) if sys.stdout.isatty() else MAX_WIDTH
    )
    for sentence in result.sentences:
        sys.stdout.write(textwrap.fill(sentence, width, subsequent_indent="  ") + "\n")
    for table in (result.role_table(), result.order_table()):
        sys.stdout.write("\n")
        print_table(table, width)
    sys.stdout.write("\n")
    for note in result.notes:
        sys.stdout.write(textwrap.fill(note, width, subsequent_indent="  ") + "\n")
    if flags.json is not None:
        write_json(flags.json, result.json())
        sys.stdout.write(f"Saved {flags.json}\n")
    if flags.html is not None:
        sys.stdout.write(f"Saved {result.to_html(flags.html)}\n")
