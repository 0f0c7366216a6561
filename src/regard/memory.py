"""Settings of the C library that keep freed memory in the process."""

import ctypes
import functools
import mmap
import os
import sys
from pathlib import Path

MALLOPT_TRIM_THRESHOLD, MALLOPT_TOP_PAD, MALLOPT_MMAP_THRESHOLD, MALLOPT_MMAP_MAX = -1, -2, -3, -4
"""Parameters of mallopt(3)."""
MMAPS = 65_536
"""glibc's default limit of blocks that are mapped one by one."""
CACHES, KERNELS = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"), 128
"""The variables for the number of kernels that oneDNN and PyTorch's wrapper of it cache, and the number. A step
of a Transformer needs about forty."""
OVERCOMMIT, STRICT = Path("/proc/sys/vm/overcommit_memory"), "2"
"""The file in which Linux reports whether reserved addresses count as used memory, and the value for yes."""


def keep_memory() -> None:
    """Keep freed memory in the process for the next step, in huge pages. Acts on Linux with glibc only.

    A training step of a Transformer allocates and frees hundreds of megabytes. If they return to the system, each
    page costs a fault and is filled with zeros when it comes back. Batches of various shapes also scatter the
    heap over gigabytes, where address translation is slow with pages of 4 KB (benchmarks/pace.py). The same
    holds, with less memory, for a search. The memory returns to the system when the process ends.

    oneDNN, which multiplies bfloat16 matrices, compiles a kernel of 0.7 MB for each shape and caches a thousand
    of them across the heap. A hundred are as fast, since most shapes recur only an epoch later. oneDNN reads the
    limit at its first product.
    """
    for name in CACHES:
        os.environ.setdefault(name, str(KERNELS))
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(MALLOPT_MMAP_THRESHOLD, 32 << 20)  # glibc's maximum
        mallopt(MALLOPT_TRIM_THRESHOLD, -1)
        mallopt(MALLOPT_TOP_PAD, 64 << 20)
        _reserve_huge_pages()


@functools.cache
def _reserve_huge_pages() -> None:
    """Reserve addresses for the heap, half the size of the machine's memory, and request huge pages for them.

    Allocating a block of that size moves the end of the heap. The block is freed at once, and no page of it is
    touched. If reserved addresses count as used memory, or that is unknown, nothing is done.
    """
    if not OVERCOMMIT.exists() or OVERCOMMIT.read_text().strip() == STRICT:
        return
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    libc.mallopt(MALLOPT_MMAP_MAX, 0)
    block = libc.malloc(ctypes.c_size_t(size))
    libc.mallopt(MALLOPT_MMAP_MAX, MMAPS)
    if block:  # None if the process has a limit of addresses
        begin = -(-block // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (block + size) // mmap.PAGESIZE * mmap.PAGESIZE
        libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_HUGEPAGE)
        libc.free(ctypes.c_void_p(block))
