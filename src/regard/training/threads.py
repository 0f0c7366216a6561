"""In how many threads a training's products run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

SMALL = 200_000
"""Parameters up to which a model that draws its samples trains in one thread: threads that share products of this
size wait for each other as long as they work (docs/benchmarks.md)."""


@contextmanager
def limit_threads(model: nn.Module) -> Iterator[None]:
    """Train a small model in one thread in the block, and have as many as before after it.

    Whoever has said how many threads is obeyed: by OMP_NUM_THREADS or MKL_NUM_THREADS, or to PyTorch, whose own
    choice is as many as there are cores.
    """
    before = torch.get_num_threads()
    said = "OMP_NUM_THREADS" in os.environ or "MKL_NUM_THREADS" in os.environ or before not in _own_choices()
    if said or sum(parameter.numel() for parameter in model.parameters()) > SMALL:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _own_choices() -> tuple[int, int]:
    """Return how many threads PyTorch may have chosen itself: one for each core, or for every second one where
    the system counts each twice."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores, cores // 2
