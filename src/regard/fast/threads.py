"""Batches of a search side by side, each in a thread of its own.

What one step multiplies is small: threads that share a product spend much of their time waiting for each other,
threads that each have a batch do not.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import torch

from regard.attention import attention_layers
from regard.models import Seq2Seq

Batch = TypeVar("Batch")
Found = TypeVar("Found")


def map_in_threads(model: Seq2Seq, search: Callable[[Batch], Found], batches: Sequence[Batch]) -> list[Found]:
    """Return what `search`, with the model, finds of each batch, in their order, on as many cores as PyTorch may
    use.

    Raises what `search` raises; batches that have not begun are left out then.
    """
    cores = torch.get_num_threads()
    threads = min(cores, len(batches)) if _serves_many(model) else 1
    if threads < 2:
        return [search(batch) for batch in batches]
    share = partial(torch.set_num_threads, cores // threads)
    try:
        with ThreadPoolExecutor(threads, "search", initializer=share) as pool:
            # Where one raises, this takes back those that wait.
            return list(pool.map(search, batches))
    finally:
        # The number is each thread's own, but one that begins later takes over what was last said.
        torch.set_num_threads(cores)


def _serves_many(model: Seq2Seq) -> bool:
    """Whether threads may call a model at once.

    On a CPU, for a GPU does one thing after the other; without autocast, which a thread begins without; and where
    nobody records its layers or changes their weights, which goes by the order of calls.
    """
    if next(model.parameters()).device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return False
    return all(layer.hook is None for layer in attention_layers(model).values())
