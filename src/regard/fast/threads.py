"""Number of threads in a training run or an examination, and parallel batches in a search.

Replaces PyTorch's default, which uses all cores for each matrix product.
Gain: in two simultaneous training runs of Signal 2 on two cores, a step takes 4.2 ms with one thread per run,
  and 13 ms with two threads per run (docs/dev/benchmarks.md, "The primer's tasks").
In training, the fast path is not used if the user sets the number of threads, or for models with more than
  200,000 parameters. In a search, the fast path is not used on a GPU, under autocast, or while attention is
  recorded or changed. `REGARD_REFERENCE=1` disables both fast paths.

Threads that share a small matrix product spend much of their time waiting for each other.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import torch
from torch import nn

from regard.fast import enabled
from regard.fast.forks import Batch, Output, can_fork, map_in_forks
from regard.machine import available_cores

SMALL = 200_000
"""Largest number of parameters of a model that is trained with one thread."""


@contextmanager
def limit_threads(model: nn.Module) -> Iterator[None]:
    """Use one thread in the block if the model is small, and restore the number of threads afterwards.

    The number is not changed if the user has set it by OMP_NUM_THREADS, MKL_NUM_THREADS or
    `torch.set_num_threads`.
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
    """Return PyTorch's possible defaults: the number of logical cores, or half of this number if each core has
    two threads."""
    cores = available_cores()
    return cores, cores // 2


def map_batches(model: nn.Module, search: Callable[[Batch], Output], batches: Sequence[Batch]) -> list[Output]:
    """Return the results of `search` for the batches, in order.

    The batches run in parallel on the cores that PyTorch may use, in forks or in threads. `search` calls the
    model. An error in `search` cancels the waiting batches and is raised.
    """
    cores = torch.get_num_threads()
    threads = min(cores, len(batches))
    if threads < 2 or not _parallel(model):
        return [search(batch) for batch in batches]
    if threads == cores and can_fork(model):
        return map_in_forks(search, batches, cores)
    set_share = partial(torch.set_num_threads, cores // threads)
    try:
        with ThreadPoolExecutor(threads, "search", initializer=set_share) as pool:
            # `map` cancels the waiting batches when a batch raises an error.
            return list(pool.map(search, batches))
    finally:
        # PyTorch stores the number of threads per thread. A new thread inherits the number that was set last.
        torch.set_num_threads(cores)


def _parallel(model: nn.Module) -> bool:
    """Return whether several batches may run simultaneously.

    Returns False on a GPU, which runs operations one after another; under autocast, which new threads do not
    inherit; and in a recording, because records depend on the order of calls.
    """
    if next(model.parameters()).device.type != "cpu" or torch.is_autocast_enabled("cpu") or not enabled():
        return False
    return all(getattr(module, "hook", None) is None for module in model.modules())
