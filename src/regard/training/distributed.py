"""Processes of one training: a single process, or the processes that `torchrun` started.

Each batch is split between the processes by rows, and their losses and gradients are summed. A training therefore
gives the same result on any number of processes, except for the order of additions and for the dropout masks.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from regard.data import PairBatch
from regard.errors import MachineError
from regard.io import hold_lock
from regard.tasks import Batch, TokenBatch

AnyBatch = TypeVar("AnyBatch", bound=Batch | PairBatch | TokenBatch)
CPU = torch.device("cpu")
TIMEOUT = timedelta(days=1)
"""Longest time that a process waits for the other processes. One process prepares the corpus for all processes,
which can take hours. If a process fails, torchrun stops the other processes at once."""


@dataclass(frozen=True)
class DistributedContext:
    """Rank of this process, number of processes, and device."""

    rank: int = 0
    size: int = 1
    device: torch.device = CPU
    restarted: bool = False
    """Whether torchrun started the processes again after a failure (`--max-restarts`)."""
    launch: Any = None
    """Store of torchrun that outlives restarted processes; None without torchrun, and if torchrun has no such
    store."""

    @property
    def first(self) -> bool:
        """Whether this process writes files and messages."""
        return self.rank == 0

    def share(self, batch: AnyBatch) -> AnyBatch:
        """Return this process's rows of a batch, on its device."""
        if self.size == 1 and self.device == CPU:  # batches are drawn there
            return batch
        return cast(AnyBatch, batch.share(self.rank, self.size).to(self.device))

    def total(self, value: Tensor) -> Tensor:
        """Return the sum of a tensor over all processes."""
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def agree(self, number: float) -> float:
        """Return, in every process, the value that the first process passes."""
        if self.size == 1:
            return number
        shared = torch.tensor([number], dtype=torch.float64, device=self.device)
        dist.broadcast(shared, 0)
        return shared.item()

    def note_created(self, folder: Path) -> None:
        """Record in torchrun's store that this launch created a run, for processes that torchrun restarts."""
        if self.launch is not None:
            self.launch.set(str(folder.resolve()), "created")

    def has_created(self, folder: Path, *, unknown: bool) -> bool:
        """Return whether this launch of torchrun created a run before the processes were restarted.

        A run with equal flags may also come from an earlier launch, so each launch records its runs in torchrun's
        store. `unknown`: the result if torchrun has no such store.
        """
        if self.launch is None:
            return unknown
        return bool(self.launch.check([str(folder.resolve())]))

    @contextmanager
    def first_before_others(self) -> Iterator[None]:
        """Run a block in the first process, then in the other processes, which reuse the files of the first."""
        if not self.first:
            self.wait()
        yield
        if self.first:
            self.wait()

    def wait(self) -> None:
        """Wait for all processes."""
        if self.size > 1:
            dist.barrier()

    def lock(self, folder: Path) -> AbstractContextManager[None]:
        """Lock a folder against processes of other trainings; raises `InputError` if another one has locked
        it."""
        return hold_lock(folder) if self.first else nullcontext()


SINGLE_PROCESS = DistributedContext()


@contextmanager
def join_processes(*, gpu: bool) -> Iterator[DistributedContext]:
    """Join the processes that `torchrun` started; without torchrun, yield a single process.

    `gpu`: use one GPU per process, if there are any. Raises `MachineError` if another process ends early.
    """
    gpu = gpu and torch.cuda.is_available()
    if "WORLD_SIZE" not in os.environ:
        yield DistributedContext(device=torch.device("cuda" if gpu else "cpu"))
        return
    device = CPU
    if gpu:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    store, rank, size = next(rendezvous("env://", timeout=TIMEOUT))
    # Restarted processes share the store of the earlier processes, and must not find those processes' addresses
    # there.
    prefix_store: Any = vars(dist)["PrefixStore"]  # torch.distributed has it, and does not list it
    # torchrun's own store outlives the processes. With an etcd rendezvous, the first process has the store.
    outlives = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    launch = prefix_store("regard/created", store) if outlives else None
    store = prefix_store(f"regard/{restarts}", store)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    try:
        yield DistributedContext(rank, size, device, restarts > 0, launch)
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            raise MachineError(
                f"process {rank} of {size} lost the connection to another process, which ended"
            ) from error
        raise
    finally:
        dist.destroy_process_group()
