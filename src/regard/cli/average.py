"""`regard average RUN`: average the kept models of a run."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

from regard.cli.parsing import read_command
from regard.cli.run_flags import RunFlags
from regard.runs.averaging import average


@dataclass(frozen=True, kw_only=True)
class AverageFlags:
    """Average the parameters of the models that a run kept during training (regard train --keep), and save
    the mean as a new run. RUN: a task's name, or the folder of a run."""

    output: Path | None = None
    """Folder of the new run. Default: the run's folder with the suffix -averaged."""
    overwrite: bool = False
    """Replace an existing run."""
    storage: RunFlags = field(default_factory=RunFlags)


def run(argv: list[str]) -> None:
    [name], flags = read_command(AverageFlags, argv, "regard average RUN", example="translation")
    averaged = average(flags.storage.load(name), flags.output, overwrite=flags.overwrite)
    steps = ", ".join(f"{step:,}" for step in averaged.config.averaged)
    sys.stdout.write(f"Averaged the models after {steps} steps. The run is in {averaged.folder}\n")
