"""Memory settings of the C library and of oneDNN.

Replaces the defaults of glibc and oneDNN.
Gain: training a translation model for 400 steps with R-Drop is 1.03 to 1.24 times as fast
  (docs/dev/benchmarks.md, "The pace of a long training"); a training step of Signal 2 spent 1.9 of 7.9 ms on
  pages that had been returned to the system ("The primer's tasks").
The fast path is used only on Linux with glibc, and not with `REGARD_REFERENCE=1`. Huge pages are not used if
  the system counts reserved addresses as used memory.
"""

import ctypes
import functools
import mmap
import os
import sys
from pathlib import Path

from regard.arguments import public
from regard.fast import enabled

MALLOPT_TRIM_THRESHOLD, MALLOPT_TOP_PAD, MALLOPT_MMAP_THRESHOLD, MALLOPT_MMAP_MAX = -1, -2, -3, -4
"""Parameters of mallopt(3)."""
MMAPS = 65_536  # Default of glibc for the largest number of separately mapped blocks
CACHES, KERNELS = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"), 128
"""Environment variables for the number of kernels that oneDNN and PyTorch cache. A training step of a
Transformer needs about forty kernels."""
OVERCOMMIT, STRICT = Path("/proc/sys/vm/overcommit_memory"), "2"
"""File that contains the overcommit mode of Linux, and the mode in which reserved addresses count as used memory."""


@public
def keep_memory() -> None:
    """Make the C library retain freed memory in huge pages instead of returning it to the system.

    A training step of a Transformer allocates and frees hundreds of megabytes. If this memory were returned to the
    system, each page would cost a page fault and be zeroed again. Batches of different shapes scatter retained memory
    over gigabytes, where address translation is slow with pages of 4 KB (benchmarks/huge_pages.py). Searches have the
    same pattern with less memory. No memory is returned until the process ends.

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
        _grow_in_huge_pages()


@functools.cache
def _grow_in_huge_pages() -> None:
    """Reserve addresses for half of the machine's memory for the heap, and request huge pages for these addresses.

    Allocating a block of this size moves the end of the heap. The block is freed immediately, and no page is
    written. The heap is not changed if the system counts reserved addresses as used memory, or if the
    overcommit mode is unknown.
    """
    if not OVERCOMMIT.exists() or OVERCOMMIT.read_text().strip() == STRICT:
        return
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    libc.mallopt(MALLOPT_MMAP_MAX, 0)
    block = libc.malloc(ctypes.c_size_t(size))
    libc.mallopt(MALLOPT_MMAP_MAX, MMAPS)
    if block:  # null if a limit on addresses prevents the allocation
        begin = -(-block // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (block + size) // mmap.PAGESIZE * mmap.PAGESIZE
        libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_HUGEPAGE)
        libc.free(ctypes.c_void_p(block))
