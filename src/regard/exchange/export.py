"""Handing a trained model to another program."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from regard.errors import unknown
from regard.exchange.ctranslate2 import export_ctranslate2
from regard.exchange.exportable import Exportable

Program = Literal["ctranslate2"]
PROGRAMS: dict[str, Callable[[Exportable, Path], Path]] = {"ctranslate2": export_ctranslate2}
"""What writes a run for each program."""


def export(run: Exportable, folder: str | Path | None = None, *, to: Program = "ctranslate2") -> Path:
    """Write a run's model for another program into a new folder, and return it.

    `folder` None: one named for the program, in the run's. Raises `InputError` where the program cannot run such
    a model, the folder exists, or the program's extra is not installed; `MachineError` where the disk refuses.
    """
    if to not in PROGRAMS:
        raise unknown("program", to, PROGRAMS)
    return PROGRAMS[to](run, run.folder / to if folder is None else Path(folder))
