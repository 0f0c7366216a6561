"""Parallel batches of a search in forks of the process.

Replaces the threads of `regard.fast.threads.map_batches`. Python runs one thread at a time, and the short
  operations of a search leave the other threads waiting.
Gain: greedy search of 1,000 sentences on two cores takes 0.55 to 0.7 of the time of two threads
  (docs/dev/benchmarks.md, "Translation").
Not used where a fork is unsafe: outside of Linux, and beside other threads of Python (notebooks and servers),
  because a fork inherits their locks. Not used for fewer batches than cores, because a fork must not use the
  threads of PyTorch, and not for a model with hooks, because this process would lose what they collect.
"""

import gc
import os
import pickle
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import BinaryIO, Generic, TypeVar

import torch
from torch import nn

from regard.fast.fast_transformer import has_forward_hooks

Batch = TypeVar("Batch")
Output = TypeVar("Output")
INDEX_BYTES = 8


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
