"""`regard check FILE.py [EXERCISE]`: check a learner's implementation."""

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
    "Check your solutions to the exercises: attention, layers, a Transformer, decoding searches, a training "
    "loop. FILE.py has one function or class per exercise, named after the exercise. EXERCISE names the "
    "exercise that FILE.py solves, if the function or class has another name. The code runs in a separate "
    "process. Incorrect answers are compared with the answers of common mistakes. Exit status: 0 if all answers "
    "are correct, 1 otherwise."
)
WIDTH = 110


@dataclass(frozen=True, kw_only=True)
class CheckFlags:
    """Flags of the command."""

    stubs: Path | None = None
    """Write a template for each exercise to this folder, without checking any code."""
    json: Path | None = None
    """Also write the report to this JSON file."""


def run(argv: list[str]) -> None:
    """Check the file and print the report. Exits with status 1 if an answer is incorrect."""
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
            f"the file name is missing: give a file, as in `{PROG} attention.py`, or write templates with "
            f"--stubs DIR"
        )
    report = check(words[0], words[1] if len(words) > 1 else None)
    print_table(report.table(), WIDTH)
    if flags.json is not None:
        write_json(flags.json, report.json(), allow_nan=False)
    if not report.right:
        sys.exit(1)
