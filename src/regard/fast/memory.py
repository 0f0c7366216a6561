"""Memory settings of the C library and of oneDNN.

Replaces the defaults of glibc and oneDNN.
Gain: a translation training of 400 steps with R-Drop runs at 1.03 to 1.24 times the speed
  (docs/dev/benchmarks.md,
  "The pace of a long training"); a step of Signal 2 spent 1.9 of 7.9 ms on pages that the system had taken back
  ("The primer's tasks").
The fast path is not used outside of Linux with glibc, or with `REGARD_REFERENCE=1`. Huge pages are not used if
  the system counts reserved addresses as used memory.
"""

import ctypes
import functools
import mmap
import os
import sys
from pathlib import Path

from regard.fast import enabled

MALLOPT_TRIM_THRESHOLD, MALLOPT_TOP_PAD, MALLOPT_MMAP_THRESHOLD, MALLOPT_MMAP_MAX = -1, -2, -3, -4
"""Parameters of mallopt(3)."""
MMAPS = 65_536
"""Largest number of blocks that glibc maps separately by default."""
CACHES, KERNELS = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"), 128
"""Environment variables with the number of kernels that oneDNN, and PyTorch's code around it, cache. A step of a
Transformer needs about forty."""
OVERCOMMIT, STRICT = Path("/proc/sys/vm/overcommit_memory"), "2"
"""File with the overcommit mode of Linux, and the mode in which addresses count as used memory."""


def keep_memory() -> None:
    """Make the C library keep freed memory for the next step, in huge pages, instead of returning it.

    A training step of a Transformer allocates and frees hundreds of megabytes. If that memory went back to the
    system, each page would cost a page fault and be zeroed again. Batches of all shapes scatter kept memory over
    gigabytes, where address translation is slow with pages of 4 KB (benchmarks/huge_pages.py). Searches have the
    same pattern with less memory. No memory is returned until the process ends.

    oneDNN, which PyTorch uses for bfloat16 products, compiles a kernel for each shape of matrices. By default,
    oneDNN caches a thousand kernels of 0.7 MB each, scattered over the heap: most of the memory of a training. A
    cache of a hundred kernels is as fast, since most shapes recur only an epoch later. oneDNN reads the limit at
    its first product.

    >>> keep_memory()
    """
    if not enabled():
        return
    for name in CACHES:
        os.environ.setdefault(name, str(KERNELS))
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(MALLOPT_MMAP_THRESHOLD, 32 << 20)  # the largest value that it accepts
        mallopt(MALLOPT_TRIM_THRESHOLD, -1)
        mallopt(MALLOPT_TOP_PAD, 64 << 20)
        _grow_in_huge_pages()


@functools.cache
def _grow_in_huge_pages() -> None:
    """Reserve addresses of half the machine's memory for the heap, and request huge pages there.

    A block of that size moves the end of the heap, and is freed immediately; the process writes to none of its
    pages. If the system counts reserved addresses as used memory, or if its mode is unknown, the heap stays
    unchanged.
    """
    if not OVERCOMMIT.exists() or OVERCOMMIT.read_text().strip() == STRICT:
        return
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    libc.mallopt(MALLOPT_MMAP_MAX, 0)
    block = libc.malloc(ctypes.c_size_t(size))
    libc.mallopt(MALLOPT_MMAP_MAX, MMAPS)
    if block:  # null where a limit on addresses forbids it
        begin = -(-block // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (block + size) // mmap.PAGESIZE * mmap.PAGESIZE
        libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_HUGEPAGE)
        libc.free(ctypes.c_void_p(block))
