"""The processes of one training: one alone, or as many as `torchrun` has started.

Each batch is split between them, row by row; their losses and gradients are summed. So a training is the same,
but for the order of additions and for what dropout drops, on any number of processes.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from regard.data import PairBatch
from regard.errors import MachineError
from regard.io import hold_lock
from regard.tasks import Batch
from regard.training.meeting import meet

AnyBatch = TypeVar("AnyBatch", bound=Batch | PairBatch)
CPU = torch.device("cpu")
PATIENCE = timedelta(days=1)
"""For which processes wait for each other: one prepares the corpus for all, which may take hours. Where another
has failed, torchrun stops them."""


@dataclass(frozen=True)
class World:
    """This process among all."""

    rank: int = 0
    size: int = 1
    device: torch.device = CPU
    meeting: str = ""
    """What names this start of all processes."""
    torchruns: frozenset[str] = frozenset()
    """Those that have started the processes, and start them again where one fails, or machines come or go; empty
    for one process alone."""

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes and tells."""
        return self.rank == 0

    def share(self, batch: AnyBatch) -> AnyBatch:
        """Return this process's rows of a batch, on its device."""
        return cast(AnyBatch, batch.share(self.rank, self.size).to(self.device))

    def total(self, value: Tensor) -> Tensor:
        """Return the sum of a tensor over all processes."""
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def agree(self, number: float) -> float:
        """Return the first process's number."""
        if self.size == 1:
            return number
        shared = torch.tensor([number], dtype=torch.float64, device=self.device)
        dist.broadcast(shared, 0)
        return shared.item()

    @contextmanager
    def one_by_one(self) -> Iterator[None]:
        """Let the first process go through first, so that the others find what it has made."""
        if not self.first:
            self.wait()
        yield
        if self.first:
            self.wait()

    def wait(self) -> None:
        """Wait for all processes."""
        if self.size > 1:
            dist.barrier()

    def alone_in(self, folder: Path) -> AbstractContextManager[None]:
        """Keep all processes of others from changing a folder; raises `InputError` where one is changing it."""
        return hold_lock(folder) if self.first else nullcontext()

    def watched(self) -> AbstractContextManager[None]:
        """End the process where another one hangs; see `heartbeat`."""
        if self.size == 1:
            return nullcontext()
        from regard.training.heartbeat import watched  # needs the parts of torch.distributed

        return watched(self.rank, self.size, self.meeting)


ALONE = World()


@contextmanager
def join_world(*, gpu: bool) -> Iterator[World]:
    """Join the processes that `torchrun` has started; alone without it. `gpu`: on a GPU each, where there are
    any. Raises `MachineError` where one of the others ends before its work is done."""
    gpu = gpu and torch.cuda.is_available()
    if "WORLD_SIZE" not in os.environ:
        yield World(device=torch.device("cuda" if gpu else "cpu"))
        return
    device = CPU
    if gpu:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    store, rank, size = next(rendezvous("env://", timeout=PATIENCE))
    meeting, torchruns = meet(store, rank, PATIENCE)
    # Processes that are started again may get the store of those before them, and must not find their addresses.
    store = PrefixStore(f"regard/{meeting}", store)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
    try:
        yield World(rank, size, device, meeting, torchruns)
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            raise MachineError(f"process {rank} of {size} has lost another one, which has ended") from error
        raise
    finally:
        dist.destroy_process_group()
