"""Memory that stays with the process from one step to the next."""

import ctypes
import functools
import mmap
import os
import sys
from pathlib import Path

MALLOPT_TRIM_THRESHOLD, MALLOPT_TOP_PAD, MALLOPT_MMAP_THRESHOLD, MALLOPT_MMAP_MAX = -1, -2, -3, -4
"""Parameters of mallopt(3)."""
MMAPS = 65_536
"""Blocks that glibc takes from the system one by one, at most, by default."""
CACHES, KERNELS = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"), 128
"""Where oneDNN, and what PyTorch has around it, read how many kernels they keep; a step of a Transformer takes
about forty."""
OVERCOMMIT, STRICT = Path("/proc/sys/vm/overcommit_memory"), "2"
"""Where Linux says whether it counts addresses as memory that is used, and how it says yes."""


def keep_memory() -> None:
    """Have the C library keep what a step frees for the next one, instead of handing it back to the system, and
    in huge pages.

    A training step of a Transformer takes and frees hundreds of megabytes. Each page that comes back from the
    system is a fault and is filled with zeros first; and batches of all shapes scatter what is kept over
    gigabytes, through which a processor finds its way slowly by pages of 4 KB (benchmarks/pace.py). So it is,
    with less memory, in a search. Nothing is handed back until the process ends. Only glibc on Linux knows it.

    oneDNN, by which PyTorch multiplies in bfloat16, compiles a kernel for each shape of matrices, and keeps a
    thousand, of 0.7 MB each, strewn over the heap: in a training most of what the process takes. A hundred are
    as fast, as most shapes come back an epoch later. It asks how many at its first product.
    """
    for name in CACHES:
        os.environ.setdefault(name, str(KERNELS))
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(MALLOPT_MMAP_THRESHOLD, 32 << 20)  # the most it takes
        mallopt(MALLOPT_TRIM_THRESHOLD, -1)
        mallopt(MALLOPT_TOP_PAD, 64 << 20)
        _grow_in_huge_pages()


@functools.cache
def _grow_in_huge_pages() -> None:
    """Let the heap grow by addresses, to half the size of the machine's memory, and ask for huge pages there.

    A block of that size moves the heap's end, and is freed at once; no page of it was touched. Where the system
    counts addresses as memory that is used, or does not say, the heap stays as it is.
    """
    if not OVERCOMMIT.exists() or OVERCOMMIT.read_text().strip() == STRICT:
        return
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    libc.mallopt(MALLOPT_MMAP_MAX, 0)
    block = libc.malloc(ctypes.c_size_t(size))
    libc.mallopt(MALLOPT_MMAP_MAX, MMAPS)
    if block:  # a limit on addresses may forbid it
        begin = -(-block // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (block + size) // mmap.PAGESIZE * mmap.PAGESIZE
        libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_HUGEPAGE)
        libc.free(ctypes.c_void_p(block))
