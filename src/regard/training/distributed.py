"""Processes of a training run: a single process, or the processes started by `torchrun`.

Each batch is split between the processes by rows, and the losses and gradients of all processes are summed. The result
of training is therefore the same for any number of processes, except for the order of additions and the dropout masks.
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

from regard.data.batch import PairBatch, copy_to
from regard.errors import InputError, MachineError
from regard.io import hold_lock
from regard.tasks.batch import Batch, TokenBatch

AnyBatch = TypeVar("AnyBatch", bound=Batch | PairBatch | TokenBatch)
CPU = torch.device("cpu")
TIMEOUT = timedelta(days=1)
"""Longest time that a process waits for the other processes. One process prepares the corpus for all processes,
which can take hours. If a process fails, torchrun stops the other processes immediately."""


@dataclass(frozen=True)
class DistributedContext:
    """Rank of this process, number of processes, and device."""

    rank: int = 0
    size: int = 1
    device: torch.device = CPU
    restarted: bool = False  # Whether torchrun has restarted the processes after a failure (`--max-restarts`)
    launch: Any = None  # Store of torchrun that persists when processes are restarted; None if unavailable

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, batch: AnyBatch) -> tuple[AnyBatch, Tensor | None]:
        """Return the rows of this process on its device, and for a GPU `outputs`, which the host finds in its copy."""
        rows = cast(AnyBatch, batch.share(self.rank, self.size))
        if self.device == CPU:  # batches are created on the CPU
            return rows, None
        (outputs,) = copy_to(self.device, rows.outputs)
        return cast(AnyBatch, rows.to(self.device)), outputs

    def total(self, value: Tensor) -> Tensor:
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def agree(self, number: float) -> float:
        """Return the value of `number` in the first process."""
        if self.size == 1:
            return number
        shared = torch.tensor([number], dtype=torch.float64, device=self.device)
        dist.broadcast(shared, 0)
        return shared.item()

    def note_created(self, folder: Path) -> None:
        """Record in the store of torchrun that this launch created a run, for processes that are restarted later."""
        if self.launch is not None:
            self.launch.set(str(folder.resolve()), "created")

    def has_created(self, folder: Path, *, unknown: bool) -> bool:
        """Return whether this launch of torchrun created a run before the processes were restarted.

        A run with equal flags may also be the result of an earlier launch. Each launch therefore records its
        runs in the store of torchrun. `unknown`: result if the store is unavailable.
        """
        if self.launch is None:
            return unknown
        return bool(self.launch.check([str(folder.resolve())]))

    @contextmanager
    def first_before_others(self) -> Iterator[None]:
        """Run a block in the first process, then in the other processes, which reuse the files of the first process."""
        if not self.first:
            self.wait()
        yield
        if self.first:
            self.wait()

    def wait(self) -> None:
        if self.size > 1:
            dist.barrier()

    def lock(self, folder: Path) -> AbstractContextManager[None]:
        """Lock a folder for this training run. Raises `InputError` if another training run has locked the folder."""
        return hold_lock(folder) if self.first else nullcontext()


SINGLE_PROCESS = DistributedContext()


@contextmanager
def join_processes(*, gpu: bool, sharded: bool = False) -> Iterator[DistributedContext]:
    """Join the processes started by `torchrun`. Without torchrun, yield a single process.

    `gpu`: use one GPU per process, if available. Raises `InputError` for `sharded` without torchrun, and
    `MachineError` if another process ends early.
    """
    gpu = gpu and torch.cuda.is_available()
    if "WORLD_SIZE" not in os.environ:
        if sharded:
            raise InputError("sharded splits the model between processes: start training with torchrun")
        yield DistributedContext(device=torch.device("cuda" if gpu else "cpu"))
        return
    device = CPU
    if gpu:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    store, rank, size = next(rendezvous("env://", timeout=TIMEOUT))
    # Restarted processes share the store of the earlier processes, and must not use the addresses of these processes.
    prefix_store: Any = vars(dist)["PrefixStore"]  # not a public name of torch.distributed
    # The store of torchrun persists after the processes. With an etcd rendezvous, the first process owns the store.
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
                f"process {rank} of {size} lost the connection to another process, because that process ended"
            ) from error
        raise
    finally:
        dist.destroy_process_group()
