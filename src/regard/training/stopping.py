"""Stopping in good order: Ctrl-C and SIGTERM wait for the end of a step."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while training, after the step was finished and saved."""


@contextmanager
def stopping() -> Iterator[list[int]]:
    """Collect the first SIGINT or SIGTERM in a list instead of dying of it; the second one acts as usual.

    Only the main thread may handle signals; elsewhere the list stays empty.
    """
    stopped: list[int] = []
    before: dict[int, object] = {}

    def note(number: int, frame: FrameType | None) -> None:
        stopped.append(number)
        put_back()

    def put_back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, note)
    except ValueError:  # not the main thread
        before.clear()
    try:
        yield stopped
    finally:
        put_back()


def stop_as_usual(number: int) -> None:
    """End as a process does that was sent this signal."""
    if number == signal.SIGINT:
        raise Interrupted
    sys.exit(128 + number)
