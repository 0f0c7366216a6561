"""`regard learn`: the course, as pages that train, a site that works offline, or notebooks."""

import sys
from dataclasses import dataclass
from pathlib import Path

from regard import course, server
from regard.cli.parsing import parse
from regard.io import write_new

DESCRIPTION = (
    "Open the course: thirteen lessons, from look-ups to a Transformer that translates, each with a run on this "
    "machine. With --site, --notebooks or --stubs nothing is opened, and these are written. Needs the extra "
    "serve."
)


@dataclass(frozen=True, kw_only=True)
class LearnFlags:
    """All flags of the command."""

    site: Path | None = None
    """Write the course into this folder, as pages that open offline, with the views of all runs; those that are
    not there yet are trained first, which takes some minutes."""
    notebooks: Path | None = None
    """Write the lessons into this folder as notebooks."""
    stubs: Path | None = None
    """Write what to start the exercises from into this folder; then: regard check FILE.py."""
    savepath: Path = Path("course")
    """Folder of the lessons' runs."""
    port: int | None = None
    """Port of the page, 1 to 65535. None: 8137, or another one where that is taken."""
    host: str = "127.0.0.1"
    """Address to listen on; see `regard show`."""
    browser: bool = True
    """Open the page in a browser."""


def run(argv: list[str]) -> None:
    """Write what is asked for, or serve the course until interrupted."""
    flags = parse(LearnFlags(), argv, prog="regard learn", description=DESCRIPTION)
    stubs = {} if flags.stubs is None else course.build_stubs(flags.stubs)
    notebooks = {} if flags.notebooks is None else course.build_notebooks(flags.notebooks, flags.savepath)
    if flags.site is not None:
        course.check_site(flags.site)
    write_new({**stubs, **notebooks})  # all or none
    if stubs:
        sys.stdout.write(f"Wrote {len(stubs)} stubs into {flags.stubs}\n")
    if notebooks:
        sys.stdout.write(f"Wrote {len(notebooks)} notebooks into {flags.notebooks}\n")
    if flags.site is not None:
        sys.stdout.write(f"Wrote {len(course.write_site(flags.site, flags.savepath))} files into {flags.site}\n")
    if not (stubs or notebooks or flags.site):
        server.teach(flags.savepath, port=flags.port, host=flags.host, browser=flags.browser)
        raise KeyboardInterrupt  # for only Ctrl-C comes back from there
