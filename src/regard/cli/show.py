"""`regard show RUN`: open the explorer, an interactive page of a run's attention."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.parsing import read_command
from regard.cli.run_flags import RunFlags
from regard.errors import InputError
from regard.fast.memory import keep_memory
from regard.server.serve import check_port, show

if TYPE_CHECKING:
    from regard.runs.run_types import AnyRun


@dataclass(frozen=True, kw_only=True)
class ShowFlags:
    """Open a page that shows the prediction, the true answer and the attention for any input that you type.
    On the page you can disable heads and change weights. RUN: a task's name, or the folder of a run. Needs
    the extra serve. Stop with Ctrl-C."""

    port: int | None = None
    """Port of the page, 1 to 65535. Default: 8137, or a free port if 8137 is in use."""
    host: str = "127.0.0.1"
    """Address to listen on. By default only this machine can open the page. With another address, such as
    0.0.0.0, other machines need the printed URL, which contains a token: REGARD_TOKEN, or a random one."""
    browser: bool = True
    """Open the page in a browser."""
    compare_with: tuple[str, ...] = ()
    """Additional runs that accept the same inputs, shown side by side: names of tasks, or folders of runs."""
    live: Path | None = None
    """Write one HTML file that computes the attention for typed inputs without a server. Supported are query,
    Transformer and recurrent models with up to 1 million parameters on synthetic tasks."""
    storage: RunFlags = field(default_factory=RunFlags)


def run(argv: list[str]) -> None:
    """Serve the page until interrupted."""
    [name], flags = read_command(ShowFlags, argv, "regard show RUN")
    check_port(flags.port)
    if flags.live is not None and flags.compare_with:
        raise InputError("--live writes a page for only one run: leave out --compare_with")
    keep_memory()
    shown = flags.storage.load(name)
    if flags.live is not None:
        from regard.server.live_page import write_live_page  # slow to import, and not needed to show a run

        sys.stdout.write(f"The page is in {write_live_page(shown, flags.live)}\n")
        return
    others = [flags.storage.load(other) for other in flags.compare_with]
    for loaded in (shown, *others):
        loaded.about()  # refuses an edited examination before the server starts
    _check_same_inputs(shown, others)
    show(shown, port=flags.port, host=flags.host, browser=flags.browser, beside=others)
    raise KeyboardInterrupt  # the server returns only after Ctrl-C


def _check_same_inputs(shown: AnyRun, others: list[AnyRun]) -> None:
    """Raise `InputError` if another run does not accept a sample of the shown run's task."""
    try:
        sample = shown.draw(seed=0)
    except InputError:  # the task's text is missing, so there is no sample to check with
        return
    for other in others:
        try:
            other.check(sample)
        except InputError as error:
            raise InputError(
                f"{other.where!r} does not accept {sample!r}, a sample of {shown.where!r}: {error}"
            ) from None
