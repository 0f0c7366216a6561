"""Number of threads in a training run or an examination, and parallel batches in a search, in forks of the process.

Replaces PyTorch's default, which uses all cores for each matrix product.
Gain: in two simultaneous training runs of Signal 2 on two cores, a step takes 4.2 ms with one thread per run, and 13 ms
with two ("The primer's tasks" in docs/dev/benchmarks.md). Greedy search of 1,000 sentences on two cores takes 0.55 to
0.7 of the time of two threads in forks ("Translation"): Python runs one thread at a time, and the short operations of a
search leave the other threads waiting. In training, the fast path is not used if the user sets the number of threads,
or for models with more than 200,000 parameters. In a search, it is not used on a GPU, under autocast, or while
attention is recorded or changed. Threads instead of forks are used where a fork is unsafe: outside of Linux, and beside
other threads of Python (notebooks and servers), because a fork inherits their locks; also for fewer batches than cores,
because a fork must not use the threads of PyTorch, and for a model with hooks, because this process would lose what
they collect. `REGARD_REFERENCE=1` disables all of it.
"""

import gc
import os
import pickle
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import BinaryIO, Generic, TypeVar

import torch
from torch import nn

from regard.fast import enabled
from regard.fast.fast_transformer import has_forward_hooks
from regard.machine import available_cores, one_thread

Batch = TypeVar("Batch")
Output = TypeVar("Output")
SMALL = 200_000  # Largest number of parameters of a model that is trained with one thread
INDEX_BYTES = 8


@contextmanager
def limit_threads(model: nn.Module) -> Iterator[None]:
    """Use one thread in the block if the model is small, and restore the number of threads afterwards. The number is
    not changed if the user has set it by OMP_NUM_THREADS, MKL_NUM_THREADS or `torch.set_num_threads`."""
    before = torch.get_num_threads()
    cores = available_cores()
    defaults = cores, cores // 2  # PyTorch uses all logical cores, or half of them with two threads for each core
    by_user = "OMP_NUM_THREADS" in os.environ or "MKL_NUM_THREADS" in os.environ or before not in defaults
    if by_user or not enabled() or sum(parameter.numel() for parameter in model.parameters()) > SMALL:
        yield
        return
    with one_thread():
        yield


def map_batches(model: nn.Module, search: Callable[[Batch], Output], batches: Sequence[Batch]) -> list[Output]:
    """Return the results of `search` for the batches, in order. The batches run in parallel on the cores that
    PyTorch may use, in forks or in threads. `search` calls the model. An error in `search` cancels the waiting
    batches and is raised."""
    cores = torch.get_num_threads()
    threads = min(cores, len(batches))
    # A GPU runs operations one after another, new threads do not inherit autocast, and records depend on the
    # order of calls.
    on_cpu = next(model.parameters()).device.type == "cpu" and not torch.is_autocast_enabled("cpu")
    hooked = any(getattr(module, "hook", None) is not None for module in model.modules())
    if threads < 2 or not on_cpu or hooked or not enabled():
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


def can_fork(model: nn.Module) -> bool:
    """Return whether a fork of this process can compute with the model in place of this process."""
    if sys.platform != "linux" or len(sys._current_frames()) > 1:
        return False
    return not has_forward_hooks(model)


def map_in_forks(function: Callable[[Batch], Output], batches: Sequence[Batch], processes: int) -> list[Output]:
    """Return the results of `function` for the batches, in order, computed by this process and its forks.

    Each of the `processes` takes the next batch from one queue and uses one thread. Results must be picklable.
    Batches that a fork could not compute, for any reason, are computed here at the end, so that their error is
    raised here. Forks end when this process ends.
    """
    threads = torch.get_num_threads()
    # All processes read from one file with one common position, which makes it a queue.
    with os.fdopen(os.memfd_create("batches"), "w+b", buffering=0) as queue:
        queue.write(b"".join(index.to_bytes(INDEX_BYTES, "little") for index in range(len(batches))))
        queue.seek(0)
        forks = [_Fork(function, batches, queue) for _ in range(processes - 1)]
        torch.set_num_threads(1)
        try:
            outputs = {index: function(batches[index]) for index in _take(queue)}
            for fork in forks:
                outputs.update(fork.outputs())
        finally:
            queue.seek(0, os.SEEK_END)
            for fork in forks:
                fork.end()
            torch.set_num_threads(threads)
    return [outputs[index] if index in outputs else function(batch) for index, batch in enumerate(batches)]


def _take(queue: BinaryIO) -> Iterator[int]:
    while taken := queue.read(INDEX_BYTES):
        yield int.from_bytes(taken, "little")


class _Fork(Generic[Output]):
    """A fork of this process that computes batches from a queue."""

    def __init__(self, function: Callable[[Batch], Output], batches: Sequence[Batch], queue: BinaryIO) -> None:
        self.results = os.fdopen(os.memfd_create("results"), "w+b")
        parent = os.getpid()
        with warnings.catch_warnings():
            # Python warns of PyTorch's threads, which the fork does not use.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid:
            return
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            gc.disable()  # a collection would copy the memory that the processes share
            torch.set_num_threads(1)
            outputs = {index: function(batches[index]) for index in _take(queue) if os.getppid() == parent}
            pickle.dump(outputs, self.results)
            self.results.flush()
        except BaseException:
            queue.seek(0, os.SEEK_END)  # the other processes stop, and the parent meets the same error
        finally:
            os._exit(0)

    def outputs(self) -> dict[int, Output]:
        """Wait for the end of the fork, and return its results by the index of the batch; none after an error."""
        os.waitpid(self.pid, 0)
        self.pid = 0
        self.results.seek(0)
        with suppress(EOFError, pickle.UnpicklingError):
            outputs: dict[int, Output] = pickle.load(self.results)
            return outputs
        return {}

    def end(self) -> None:
        """Stop the fork if it has not ended, and release its results."""
        self.results.close()
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
