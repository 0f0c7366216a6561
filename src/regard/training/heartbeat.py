"""Whether all processes of a training live: one that hangs would let the others wait for ever.

Each process counts up a number of its own in the store that they share, from a thread. The first process watches
all others, and the second one the first. A process that has been stopped, or whose machine has gone, no longer
counts: who sees it says so in one line and ends, and torchrun then ends the rest, or starts all anew.
"""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

EVERY = 2.0
"""Seconds between two beats."""
LIMIT = 15.0
"""Seconds without a beat after which a process counts as hanging."""


@contextmanager
def watched(rank: int, size: int, meeting: str) -> Iterator[None]:
    """Beat, and watch the others' beats, while the block runs; `meeting` names this start of all processes."""
    # A connection of its own: the one of the process group may be waiting for something.
    store = PrefixStore(
        f"regard/heartbeat/{meeting}",
        TCPStore(
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
            is_master=False,
            timeout=timedelta(seconds=LIMIT),
        ),
    )
    others = [other for other in range(size) if other != rank] if rank == 0 else [0] if rank == 1 else []
    done = threading.Event()
    threading.Thread(target=_beat, args=(store, rank, others, done), daemon=True).start()
    try:
        yield
    finally:
        done.set()
        store.set(str(rank), "done")


def _beat(store: Store, rank: int, others: list[int], done: threading.Event) -> None:
    seen = {other: ("", time.monotonic()) for other in others}
    beats = 0
    try:
        while not done.wait(EVERY):
            beats += 1
            store.set(str(rank), str(beats))
            for other in others:
                last, since = seen[other]
                now = store.get(str(other)).decode() if store.check([str(other)]) else ""
                if now != last:
                    seen[other] = (now, time.monotonic())
                elif now != "done" and time.monotonic() > since + LIMIT:
                    _end(f"process {other} hangs: it has given no sign of life for {LIMIT:.0f} s")
    except RuntimeError as error:  # DistError among them: the store has gone, with the process that keeps it
        if not done.is_set():
            _end(f"process {rank} has lost the others: {str(error).splitlines()[0]}")


def _end(message: str) -> None:
    sys.stderr.write(f"regard: {message}\n")
    sys.stderr.flush()
    os._exit(1)
