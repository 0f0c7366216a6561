"""Signals during training: Ctrl-C, SIGTERM and SIGHUP take effect after the current training step."""

import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

DEBOUNCE = 2.0
"""Time in seconds during which repeated signals are treated as one signal. A process often receives a signal
twice, because the terminal sends Ctrl-C to all processes, and torchrun sends it again."""
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Interrupted(KeyboardInterrupt):
    """Raised by Ctrl-C during training, after the current step has been finished and saved."""


class Terminated(SystemExit):
    """Another signal than Ctrl-C stopped a training run, which is saved; the exit status is 128 + its number."""


@contextmanager
def delay_signals() -> Iterator[list[int]]:
    """Yield a list that receives the first of `SIGNALS` instead of ending the process.

    A signal that arrives more than `DEBOUNCE` seconds later has its usual effect. Only the main thread can
    handle signals. In other threads, the list is always empty.
    """
    received: list[int] = []
    handlers: dict[int, object] = {}
    first = math.inf  # unknown: a second signal may arrive while the first signal is handled

    def receive(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if not received:
            received.append(number)
            first = time.monotonic()
        elif time.monotonic() > first + DEBOUNCE:
            restore()
            signal.raise_signal(number)

    def restore() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    try:
        for number in SIGNALS:
            if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:  # `nohup` ignores SIGHUP
                handlers[number] = signal.signal(number, receive)
    except ValueError:  # not the main thread
        handlers.clear()
    try:
        yield received
    finally:
        restore()


def exit_by_signal(number: int) -> None:
    if number == signal.SIGINT:
        raise Interrupted
    raise Terminated(128 + number)
