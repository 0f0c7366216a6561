"""`regard positions`: plot sinusoidal positional encodings, or those that a run has learned."""

import sys
from dataclasses import dataclass, field

from regard.cli.parsing import parse, with_empty_value
from regard.cli.run_flags import RunFlags
from regard.cli.terminal import open_on_screen
from regard.runs import plot_positions


@dataclass(frozen=True, kw_only=True)
class PositionsFlags:
    """Flags of the command."""

    run: str | None = None
    """Run whose learned positions are plotted: a task's name, or the folder of a run. Default: sinusoidal
    positions."""
    width: int = 64
    """Width of the sinusoidal positions."""
    length: int = 100
    """Number of sinusoidal positions."""
    plot: str = "positions.png"
    """Output file: .png, .svg or .pdf. Opened if a display is available."""
    storage: RunFlags = field(default_factory=RunFlags)


def run(argv: list[str]) -> None:
    """Plot the positions and print the path of the picture."""
    flags = parse(
        PositionsFlags(),
        with_empty_value(argv, "--plot"),
        prog="regard positions",
        description="Plot positional encodings: each dimension by position, and the similarity of all pairs.",
    )
    path = plot_positions(
        flags.plot or PositionsFlags.plot,
        run=flags.run,
        width=flags.width,
        length=flags.length,
        savepath=flags.storage.savepath,
        trust_code=flags.storage.trust_code,
        trust_edited=flags.storage.trust_edited,
    )
    sys.stdout.write(f"Saved {path}\n")
    open_on_screen(path)
