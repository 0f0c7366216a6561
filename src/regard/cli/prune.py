"""`regard prune RUN`: a smaller run without the heads that matter least."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.parsing import parse_of_run
from regard.cli.terminal import print_table
from regard.runs import SAVEPATH, load, prune

if TYPE_CHECKING:
    from regard.runs import AnyRun


PROG = "regard prune"
DESCRIPTION = (
    "Take the least important heads out of a run, say what that costs, and save what is left as a run of its "
    "own. RUN: a task's name, or a run's folder."
)


@dataclass(frozen=True, kw_only=True)
class PruneFlags:
    """All flags of the command."""

    heads: int = 1
    """Heads to take out, one after the other; every layer keeps one at least."""
    output: Path | None = None
    """Folder of the smaller run. None: that of the run, with -pruned at its end."""
    overwrite: bool = False
    """Replace the run that is there."""
    seed: int = 0
    """Random seed of the unseen samples (0 or more)."""
    savepath: Path = Path(SAVEPATH)
    """Folder of runs."""
    trust_code: bool = False
    """Run the code of its own that the run names (task, model, score), which nobody has trained with here."""
    trust_edited: bool = False
    """Use the run also where its files were edited or mixed; what differs is said."""


def run(argv: list[str]) -> None:
    """Prune as `argv` asks, and say what it cost."""
    name, flags = parse_of_run(PruneFlags(), argv, prog=PROG, description=DESCRIPTION)
    whole: AnyRun = load(
        name, savepath=flags.savepath, trust_code=flags.trust_code, trust_edited=flags.trust_edited
    )
    found = prune(whole, flags.heads, flags.output, seed=flags.seed, overwrite=flags.overwrite)
    print_table(found.table(), 110)
    sys.stdout.write(f"The smaller run is in {found.run.folder}\n")
