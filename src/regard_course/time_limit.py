"""The time limit of a learner's code, which depends on the machine and on progress. The code may replace the functions
that the limit needs, so they are looked up before."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

from regard_course.translated import say

TOTAL = 5
"""The limit holds for the time since the last progress. The whole time may be this many times as long."""
WALL = 4
"""Limit of the time in which the code waits, for example in `time.sleep`, relative to the processor time."""
COUNT, USUAL_SECONDS = 1_000_000, 0.04
"""Largest number to which `measure_slowness` counts, and the processor time on the machine of the limits."""
_process_time, _thread_time, _monotonic = time.process_time, time.thread_time, time.monotonic
_open, _read, _close = os.open, os.read, os.close
_signal = signal.signal
_setitimer: Any = getattr(signal, "setitimer", None)  # Windows has none, and imports this file too
_state: dict[str, Any] = {"active": False, "progress": (0.0, 0.0)}
"""Whether the limit may stop the code, and the times of the last progress (see `_times`)."""


class StopError(BaseException):
    """Stops the learner's code. It is no `Exception`, so that handlers in the code do not catch it."""


def format_limit(seconds: float) -> str:
    """Return a time limit as text.

    >>> format_limit(20.0)
    '20 seconds'
    """
    return say("1 second") if seconds == 1 else say("{0} seconds", f"{seconds:g}")


def measure_slowness() -> float:
    begin, number = _thread_time(), 0
    while number < COUNT:
        number += 1
    return max(1.0, (_thread_time() - begin) / USUAL_SECONDS)


def _times() -> tuple[float, float]:
    """Return the processor time of the process, and the time of the clock in which the code could run. Linux
    counts the time in which a thread waits for a processor, because other processes use it."""
    waited = 0.0
    try:
        descriptor = _open("/proc/self/schedstat", os.O_RDONLY)
        waited = int(_read(descriptor, 200).split()[1]) / 1e9
        _close(descriptor)
    except (OSError, ValueError, IndexError):  # other systems, and some containers
        pass
    return _process_time(), _monotonic() - waited


def report_progress() -> None:
    """Restart the limit, after a step that cannot be repeated without end."""
    _state["progress"] = _times()


def stop_timer() -> None:
    _state["active"] = False


def start_timer(seconds: float, alive: Callable[[], None] = lambda: None) -> None:
    """Stop the code after this much processor time without progress, or `WALL` times as much waiting. On a slow
    machine the limit is longer. `alive` is called each time that the code may go on."""
    begin = _times()

    def stop(number: int, frame: Any) -> None:
        if not _state["active"]:
            return
        slowness = measure_slowness()
        now, limit = _times(), seconds * slowness
        limits = limit, WALL * limit
        since = [now[index] - _state["progress"][index] for index in (0, 1)]
        whole = [now[index] - begin[index] for index in (0, 1)]
        rests = [min(limits[index] - since[index], TOTAL * limits[index] - whole[index]) for index in (0, 1)]
        if min(rests) > 0:
            alive()
            _setitimer(signal.ITIMER_PROF, max(rests[0], 0.01))
            _setitimer(signal.ITIMER_REAL, max(min(rests[1], WALL * seconds), 0.01))
            return
        stop_timer()
        stands = any(since[index] >= limits[index] for index in (0, 1))
        words = say("is there an endless loop?") if stands else say("its steps go on, so do less work")
        slow = say(" (times {0} on this slow machine)", f"{slowness:.1f}") if slowness >= 1.5 else ""
        shown = format_limit(seconds if stands else TOTAL * seconds)
        raise StopError(say("did not end within {0}{1}: {2}", shown, slow, words))

    _state.update(active=True, progress=begin)
    _signal(signal.SIGPROF, stop)
    _signal(signal.SIGALRM, stop)
    _setitimer(signal.ITIMER_PROF, seconds)
    _setitimer(signal.ITIMER_REAL, WALL * seconds)
