"""`regard draw RUN`: draw the architecture of a run."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

from regard.cli.parsing import parse_of_run
from regard.cli.run_flags import RunFlags
from regard.cli.terminal import open_on_screen
from regard.runs import draw_model
from regard.viz import check_extension

PROG = "regard draw"
DESCRIPTION = (
    "Draw the architecture of a run's model: layers, connections, tensor shapes and parameter counts, with the "
    "attention layers highlighted. RUN: a task's name, or the folder of a run."
)


@dataclass(frozen=True, kw_only=True)
class DrawFlags:
    """Flags of the command."""

    input: str | None = None
    """Input to trace through the model. Default: a random sample of the task."""
    plot: str = "model.svg"
    """Output file: .svg, .png or .pdf, or .html for a page. The file is opened if a display is available."""
    storage: RunFlags = field(default_factory=RunFlags)


def run(argv: list[str]) -> None:
    """Draw the model and print the path of the picture."""
    name, flags = parse_of_run(DrawFlags(), argv, prog=PROG, description=DESCRIPTION)
    check_extension(Path(flags.plot))
    path = draw_model(flags.storage.load(name), flags.plot, input=flags.input)
    sys.stdout.write(f"Saved {path}\n")
    open_on_screen(path)
