"""Number of threads in a training, and batches of a search in parallel.

Replaces PyTorch's default, all cores for each matrix product.
Gain: of two trainings of Signal 2 on two cores, a step takes 4.2 ms with one thread for each training, and 13 ms
with two
  (docs/dev/benchmarks.md, "The primer's tasks").
The fast path is not used if the user sets the number of threads, for models above 200,000 parameters (training);
  on other devices, under autocast, while attention is recorded or changed (search); or with
  `REGARD_REFERENCE=1`.

Threads that share a small matrix product spend much of their time waiting for each other.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import torch
from torch import nn

from regard.fast import enabled

Batch = TypeVar("Batch")
Output = TypeVar("Output")
SMALL = 200_000
"""Largest number of parameters of a model that trains in one thread."""


@contextmanager
def limit_threads(model: nn.Module) -> Iterator[None]:
    """Use one thread in the block if the model is small, and restore the number afterwards.

    The number stays unchanged if the user has set it: by OMP_NUM_THREADS or MKL_NUM_THREADS, or in PyTorch,
    whose default is the number of cores.
    """
    before = torch.get_num_threads()
    by_user = "OMP_NUM_THREADS" in os.environ or "MKL_NUM_THREADS" in os.environ or before not in _defaults()
    if by_user or not enabled() or sum(parameter.numel() for parameter in model.parameters()) > SMALL:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _defaults() -> tuple[int, int]:
    """Return PyTorch's possible defaults: all cores, or half of them if the system counts each core twice."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores, cores // 2


def map_in_threads(model: nn.Module, search: Callable[[Batch], Output], batches: Sequence[Batch]) -> list[Output]:
    """Return `search` of each batch, in order, with the batches in parallel on the cores that PyTorch may use.

    `search` calls the model. An error in `search` is raised, and cancels the batches that have not begun.
    """
    cores = torch.get_num_threads()
    threads = min(cores, len(batches))
    if threads < 2 or not _thread_safe(model):
        return [search(batch) for batch in batches]
    set_share = partial(torch.set_num_threads, cores // threads)
    try:
        with ThreadPoolExecutor(threads, "search", initializer=set_share) as pool:
            # `map` cancels the waiting batches when a batch raises an error.
            return list(pool.map(search, batches))
    finally:
        # Each thread has its own number of threads, but a new thread inherits the number that was set last.
        torch.set_num_threads(cores)


def _thread_safe(model: nn.Module) -> bool:
    """Return whether several threads may call a model at once.

    The answer is no on a GPU, which runs one operation after the other; under autocast, which new threads do not
    inherit; and in a recording, because records depend on the order of calls.
    """
    if next(model.parameters()).device.type != "cpu" or torch.is_autocast_enabled("cpu") or not enabled():
        return False
    return all(getattr(module, "hook", None) is None for module in model.modules())
