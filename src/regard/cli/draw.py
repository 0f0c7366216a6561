"""`regard draw RUN`: the architecture of a run as a picture."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.parsing import parse_of_run
from regard.cli.screen import open_on_screen
from regard.runs import SAVEPATH, draw_model, load
from regard.viz import check_extension

if TYPE_CHECKING:
    from regard.runs import AnyRun


PROG = "regard draw"
DESCRIPTION = (
    "Draw the model of a run as it works on one input: boxes, arrows, shapes and numbers of parameters, "
    "attention marked. RUN: a task's name, or a run's folder."
)


@dataclass(frozen=True, kw_only=True)
class DrawFlags:
    """All flags of the command."""

    input: str | None = None
    """What the model works on. None: an input that is drawn."""
    plot: str = "model.svg"
    """File of the picture: .svg, .png or .pdf, or .html for a page. It is opened where there is a screen."""
    savepath: Path = Path(SAVEPATH)
    """Folder of runs."""
    trust_code: bool = False
    """Run the code of its own that the run names (task, model, score), which nobody has trained with here."""
    trust_edited: bool = False
    """Use the run also where its files were edited or mixed; what differs is said."""


def run(argv: list[str]) -> None:
    """Draw as `argv` asks, and say where the picture is."""
    name, flags = parse_of_run(DrawFlags(), argv, prog=PROG, description=DESCRIPTION)
    check_extension(Path(flags.plot))
    drawn: AnyRun = load(
        name, savepath=flags.savepath, trust_code=flags.trust_code, trust_edited=flags.trust_edited
    )
    path = draw_model(drawn, flags.plot, input=flags.input)
    sys.stdout.write(f"Saved {path}\n")
    open_on_screen(path)
