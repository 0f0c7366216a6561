"""Memory that stays with the process from one step to the next."""

import ctypes
import sys

MALLOPT_TRIM_THRESHOLD, MALLOPT_TOP_PAD, MALLOPT_MMAP_THRESHOLD = -1, -2, -3
"""Parameters of mallopt(3)."""


def keep_memory() -> None:
    """Have the C library keep what a step frees for the next one, instead of handing it back to the system.

    A training step of a Transformer takes and frees hundreds of megabytes, and each page that comes back from
    the system is a fault and is filled with zeros first: a tenth of the time of a step
    (benchmarks/kernels.py). So it is, with less memory, in a search. Holds for the process, up to a gigabyte;
    only glibc knows it, elsewhere nothing happens.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(MALLOPT_MMAP_THRESHOLD, 32 << 20)  # the most it takes
        mallopt(MALLOPT_TRIM_THRESHOLD, 1 << 30)
        mallopt(MALLOPT_TOP_PAD, 64 << 20)
