"""Memory settings of the C library and of oneDNN.

Replaces the defaults of glibc and oneDNN.
Gain: training Signal 2 takes 1.5 times as long without it (docs/dev/benchmarks.md, "Fast paths").
The fast path is used only on Linux with glibc, and not with `REGARD_REFERENCE=1`.
"""

import ctypes
import os
import sys

from regard.arguments import public
from regard.fast import enabled

MALLOPT_TRIM_THRESHOLD, MALLOPT_TOP_PAD, MALLOPT_MMAP_THRESHOLD = -1, -2, -3
"""Parameters of mallopt(3)."""
CACHES, KERNELS = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"), 128
"""Environment variables for the number of kernels that oneDNN and PyTorch cache. A training step of a
Transformer needs about forty kernels."""


@public
def keep_memory() -> None:
    """Make the C library retain freed memory instead of returning it to the system.

    If the memory of a step were returned to the system, each page would cost a page fault and be zeroed again. No
    memory is returned until the process ends.

    oneDNN, which PyTorch uses for bfloat16 products, compiles a kernel for each shape of matrices. By default,
    oneDNN caches a thousand kernels of 0.7 MB each, which are most of the memory of a training run. A cache of
    a hundred kernels is equally fast, because most shapes recur only in the next epoch. oneDNN reads the limit
    when it computes its first product.
    """
    if not enabled():
        return
    for name in CACHES:
        os.environ.setdefault(name, str(KERNELS))
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(MALLOPT_MMAP_THRESHOLD, 32 << 20)  # the largest value that glibc accepts
        mallopt(MALLOPT_TRIM_THRESHOLD, -1)
        mallopt(MALLOPT_TOP_PAD, 64 << 20)
