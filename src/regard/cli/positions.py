"""`regard positions`: draw the paper's sinusoidal positions, or those that a run has learned."""

import sys
from dataclasses import dataclass
from pathlib import Path

from regard.cli.parsing import parse, with_empty_value
from regard.cli.terminal import open_on_screen
from regard.runs import SAVEPATH, plot_positions


@dataclass(frozen=True, kw_only=True)
class PositionsFlags:
    """All flags of the command."""

    run: str | None = None
    """Draw the positions that this run learned: a task's name, or a run's folder. None: the sinusoidal ones."""
    width: int = 64
    """Width of sinusoidal positions."""
    length: int = 100
    """How many sinusoidal positions."""
    plot: str = "positions.png"
    """File of the picture: .png, .svg or .pdf. It is opened where there is a screen."""
    savepath: Path = Path(SAVEPATH)
    """Folder of runs."""
    trust_code: bool = False
    """Run the code of its own that the run names (task, model, score), which nobody has trained with here."""
    trust_edited: bool = False
    """Use the run also where its files were edited or mixed; what differs is said."""


def run(argv: list[str]) -> None:
    """Draw as `argv` asks, and say where the picture is."""
    flags = parse(
        PositionsFlags(),
        with_empty_value(argv, "--plot"),
        prog="regard positions",
        description="Draw positions: their waves, and how alike each two of them are.",
    )
    path = plot_positions(
        flags.plot or PositionsFlags.plot,
        run=flags.run,
        width=flags.width,
        length=flags.length,
        savepath=flags.savepath,
        trust_code=flags.trust_code,
        trust_edited=flags.trust_edited,
    )
    sys.stdout.write(f"Saved {path}\n")
    open_on_screen(path)
