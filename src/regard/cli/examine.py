"""`regard examine RUN`: ask whether a run's attention means anything."""

from __future__ import annotations

import shutil
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.parsing import parse_of_run
from regard.cli.terminal import print_table
from regard.io import check_writable
from regard.runs import SAVEPATH, load

if TYPE_CHECKING:
    from regard.runs import AnyRun


PROG = "regard examine"
DESCRIPTION = (
    "Ask whether the attention of a run means anything: is it on what the answer depends on, does it rank the "
    "inputs as gradients and ablation do, and does the model need it? Prints tables and words, and saves all as "
    "examined.json in the run's folder. RUN: a task's name, or a run's folder."
)
EXPLORER = "http://127.0.0.1:8137/"
"""Where `regard show` serves, unless told otherwise."""
WIDTH = 110
"""Columns at most: fewer where the terminal has fewer."""


@dataclass(frozen=True, kw_only=True)
class ExamineFlags:
    """All flags of the command."""

    samples: int = 200
    """Unseen samples to ask about (2 or more; intervals need 50)."""
    html: Path | None = None
    """File that the report is written to as a page: tables, plots, words, and links into the explorer."""
    explorer: str = EXPLORER
    """Where `regard show` serves the run: what the page's links lead to."""
    seed: int = 0
    """Random seed of the samples (0 or more)."""
    savepath: Path = Path(SAVEPATH)
    """Folder of runs."""
    trust_code: bool = False
    """Run the code of its own that the run names (task, model, score), which nobody has trained with here."""
    trust_edited: bool = False
    """Use the run also where its files were edited or mixed; what differs is said."""


def run(argv: list[str]) -> None:
    """Examine as `argv` asks, print and save what is found."""
    name, flags = parse_of_run(ExamineFlags(), argv, prog=PROG, description=DESCRIPTION)
    run: AnyRun = load(
        name, savepath=flags.savepath, trust_code=flags.trust_code, trust_edited=flags.trust_edited
    )
    if flags.html is not None:
        check_writable(flags.html)
    found = run.examine(samples=flags.samples, seed=flags.seed)
    width = min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
    print_table(found.table(), width)
    sys.stdout.write("\n")
    for each in found.sentences:
        sys.stdout.write(textwrap.fill(each, width, subsequent_indent="  ") + "\n")
    sys.stdout.write(f"\nSaved {found.save(run.folder / 'examined.json')}\n")
    if flags.html is not None:
        sys.stdout.write(f"Saved {found.to_html(flags.html, explorer=flags.explorer)}\n")
