"""Stopping in good order: Ctrl-C, SIGTERM and SIGHUP wait for the end of a step."""

import math
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ECHO = 2.0
"""Seconds for which further signals count as the first one: who stops a group of processes often does it twice,
as torchrun does, which passes on the Ctrl-C that the terminal sent to all."""


SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while training, after the step was finished and saved."""


@contextmanager
def stopping() -> Iterator[list[int]]:
    """Collect the first of `SIGNALS` in a list instead of dying of it; one that comes later than `ECHO`
    seconds after it acts as usual.

    Only the main thread may handle signals; elsewhere the list stays empty.
    """
    stopped: list[int] = []
    before: dict[int, object] = {}
    first = math.inf  # until it is known when: another signal may come while the first one is being noted

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if not stopped:
            stopped.append(number)
            first = time.monotonic()
        elif time.monotonic() > first + ECHO:
            put_back()
            signal.raise_signal(number)

    def put_back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    try:
        for number in SIGNALS:
            if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` has it
                before[number] = signal.signal(number, note)
    except ValueError:  # not the main thread
        before.clear()
    try:
        yield stopped
    finally:
        put_back()


def exit_by_signal(number: int) -> None:
    """End as a process does that was sent this signal."""
    if number == signal.SIGINT:
        raise Interrupted
    sys.exit(128 + number)
