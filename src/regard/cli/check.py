"""`regard check FILE.py [EXERCISE]`: check a learner's own code."""

import sys
from dataclasses import dataclass
from pathlib import Path

from regard.cli.parsing import parse, wants_help
from regard.cli.terminal import print_table
from regard.course import check, write_stubs
from regard.errors import InputError
from regard.io import write_json

PROG = "regard check"
DESCRIPTION = (
    "Check your own code: attention, layers, a Transformer, searches, a training loop. FILE.py has a "
    "function or class "
    "named for each exercise that it answers; EXERCISE says which, where names do not. The code runs "
    "in a process of "
    "its own; wrong answers are compared with those of usual mistakes. Exit status 0: all is right, "
    "1: something is not."
)
WIDTH = 110


@dataclass(frozen=True, kw_only=True)
class CheckFlags:
    """All flags of the command."""

    stubs: Path | None = None
    """Write what to start from, a file for each exercise, into this folder; nothing is checked."""
    json: Path | None = None
    """Write the report to this file too, for programs."""


def run(argv: list[str]) -> None:
    """Check as `argv` asks, and print the report."""
    if wants_help(argv):
        parse(CheckFlags(), ["--help"], prog=f"{PROG} FILE.py [EXERCISE]", description=DESCRIPTION)
    words = (
        [word for word in argv[:2] if not word.startswith("-")] if argv and not argv[0].startswith("-") else []
    )
    flags = parse(CheckFlags(), argv[len(words) :], prog=PROG, description=DESCRIPTION)
    if flags.stubs is not None:
        paths = write_stubs(flags.stubs)
        sys.stdout.write(f"Wrote {len(paths)} stubs into {flags.stubs}; then: regard check {paths[0]}\n")
        return
    if not words:
        raise InputError(
            f"nothing follows: name a file, as in `{PROG} attention.py`, or write stubs by --stubs DIR"
        )
    report = check(words[0], words[1] if len(words) > 1 else None)
    print_table(report.table(), WIDTH)
    if flags.json is not None:
        write_json(flags.json, report.json(), allow_nan=False)
    if not report.right:
        sys.exit(1)
