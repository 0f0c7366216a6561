"""`regard examine RUN`: test whether a run's attention is meaningful."""

import shutil
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

from regard.cli.parsing import parse_of_run
from regard.cli.run_flags import RunFlags
from regard.cli.terminal import print_table
from regard.io import check_writable

PROG = "regard examine"
DESCRIPTION = (
    "Test whether the attention of a run is meaningful. Is the attention on the inputs that the answer depends "
    "on? Does the attention rank the inputs in the same order as gradients and ablation? Does the model need its "
    "attention? The result is printed and saved as examined.json in the run's folder. RUN: a task's name, or the "
    "folder of a run."
)
EXPLORER = "http://127.0.0.1:8137/"
"""Default address of `regard show`."""
MAX_WIDTH = 110
"""Maximum width of the report in characters."""


@dataclass(frozen=True, kw_only=True)
class ExamineFlags:
    """Flags of the command."""

    samples: int = 200
    """Number of unseen samples (2 or more; confidence intervals need 50)."""
    html: Path | None = None
    """Write the report to this HTML file: tables, plots, text, and links into the explorer."""
    explorer: str = EXPLORER
    """Address of `regard show` for the links in the HTML report."""
    seed: int = 0
    """Random seed of the samples (0 or more)."""
    storage: RunFlags = field(default_factory=RunFlags)


def run(argv: list[str]) -> None:
    """Examine the run, then print and save the report."""
    name, flags = parse_of_run(ExamineFlags(), argv, prog=PROG, description=DESCRIPTION)
    run = flags.storage.load(name)
    if flags.html is not None:
        check_writable(flags.html)
    examination = run.examine(samples=flags.samples, seed=flags.seed)
    width = min(MAX_WIDTH, shutil.get_terminal_size((MAX_WIDTH, 24)).columns)
    print_table(examination.table(), width)
    sys.stdout.write("\n")
    for sentence in examination.sentences:
        sys.stdout.write(textwrap.fill(sentence, width, subsequent_indent="  ") + "\n")
    sys.stdout.write(f"\nSaved {examination.save(run.folder / 'examined.json')}\n")
    if flags.html is not None:
        sys.stdout.write(f"Saved {examination.to_html(flags.html, explorer=flags.explorer)}\n")
