"""`regard prune RUN`: remove the least important heads of a run."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

from regard.cli.parsing import read_command
from regard.cli.run_flags import RunFlags
from regard.cli.terminal import print_table
from regard.runs.pruning import prune


@dataclass(frozen=True, kw_only=True)
class PruneFlags:
    """Remove the least important heads of a run, print the increase in loss, and save the smaller model as a
    new run. RUN: a task's name, or the folder of a run."""

    heads: int = 1
    """Number of heads to remove. Heads are removed one by one. Every layer keeps at least one head."""
    output: Path | None = None
    """Folder of the pruned run. Default: the run's folder with the suffix -pruned."""
    overwrite: bool = False
    """Replace an existing run."""
    seed: int = 0
    """Random seed of the unseen samples (0 or more)."""
    storage: RunFlags = field(default_factory=RunFlags)


def run(argv: list[str]) -> None:
    """Prune the run, and print the increase in loss and the new folder."""
    [name], flags = read_command(PruneFlags, argv, "regard prune RUN")
    full_run = flags.storage.load(name)
    pruning = prune(full_run, flags.heads, flags.output, seed=flags.seed, overwrite=flags.overwrite)
    print_table(pruning.table(), 110)
    sys.stdout.write(f"The pruned run is in {pruning.run.folder}\n")
