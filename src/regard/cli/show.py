"""`regard show RUN`: the explorer, a page on which one types an input and sees what a run attends to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.parsing import parse_of_run
from regard.errors import InputError
from regard.fast.memory import keep_memory
from regard.runs import SAVEPATH, load
from regard.server import check_port, show

if TYPE_CHECKING:
    from regard.runs import AnyRun


PROG = "regard show"
DESCRIPTION = (
    "Open a page on which you type an input and see prediction, truth and attention at once, switch heads off, "
    "and change weights. RUN: a task's name, or a run's folder. Needs the extra serve. Ctrl-C ends it."
)


@dataclass(frozen=True, kw_only=True)
class ShowFlags:
    """All flags of the command."""

    port: int | None = None
    """Port of the page, 1 to 65535. None: 8137, or another one where that is taken."""
    host: str = "127.0.0.1"
    """Address to listen on. Others than this machine can reach the page only if you name another one, such as
    0.0.0.0, and only by the address with a token that is printed: REGARD_TOKEN, or one that is drawn."""
    browser: bool = True
    """Open the page in a browser."""
    beside: tuple[str, ...] = ()
    """Other runs that answer the same inputs, to be looked at beside it: tasks' names, or runs' folders."""
    savepath: Path = Path(SAVEPATH)
    """Folder of runs."""
    trust_code: bool = False
    """Run the code of its own that the run names (task, model, score), which nobody has trained with here."""
    trust_edited: bool = False
    """Use the run also where its files were edited or mixed; what differs is said."""


def run(argv: list[str]) -> None:
    """Serve the page until interrupted."""
    name, flags = parse_of_run(ShowFlags(), argv, prog=PROG, description=DESCRIPTION)
    check_port(flags.port)
    keep_memory()
    shown: AnyRun = load(
        name, savepath=flags.savepath, trust_code=flags.trust_code, trust_edited=flags.trust_edited
    )
    beside = [
        load(each, savepath=flags.savepath, trust_code=flags.trust_code, trust_edited=flags.trust_edited)
        for each in flags.beside
    ]
    for each in (shown, *beside):
        each.about()  # which refuses an examination that was edited, before anything is served
    _check_beside(shown, beside)
    show(shown, port=flags.port, host=flags.host, browser=flags.browser, beside=beside)
    raise KeyboardInterrupt  # for only Ctrl-C comes back from there


def _check_beside(shown: AnyRun, beside: list[AnyRun]) -> None:
    """Refuse runs that cannot answer what the shown one is asked."""
    try:
        sample = shown.draw(seed=0)
    except InputError:  # of a text that is not there: nobody knows what it will be asked
        return
    for each in beside:
        try:
            each.check(sample)
        except InputError as error:
            raise InputError(
                f"{each.where!r} cannot stand beside {shown.where!r}, of which {sample!r} is a sample: {error}"
            ) from None
