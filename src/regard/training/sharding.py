"""Models that do not fit: parameters, gradients, moments and average split between the processes.

The splitting is PyTorch's FSDP2, layer by layer, and its distributed checkpoints (DCP) load on another number of
processes than they were saved by. Only to be validated and to be kept for use is the averaged model put
together, on the first process.

    trainer/step-N/    a checkpoint: a folder to which each process writes its part, as safetensors, for DCP's own
                       format is unpickled
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

from regard.attention import DecoderLayer, EncoderLayer
from regard.errors import InputError
from regard.io import refuse_links, remove_quietly
from regard.training.distributed import SINGLE_PROCESS, DistributedContext
from regard.training.objective import Objective
from regard.training.run_folder import RunFolder
from regard.training.sealing import check_checkpoint, seal_checkpoint
from regard.training.state import TrainingState


def shard(objective: Objective[Any, Any], context: DistributedContext) -> None:
    """Split the parameters of a model, with its loss, between the processes.

    Raises `InputError` where there are none.
    """
    if not torch.distributed.is_initialized():
        raise InputError("sharded needs processes to split the model between: start it with torchrun")
    mesh = init_device_mesh(context.device.type, (context.size,))
    for module in objective.model.modules():
        if isinstance(module, EncoderLayer | DecoderLayer):
            fully_shard(module, mesh=mesh)
            if isinstance(module, DecoderLayer):
                register_fsdp_forward_method(module, "project")
    fully_shard(objective, mesh=mesh)


@dataclass
class ShardedState(TrainingState):
    """A training whose tensors are split between the processes."""

    replica: nn.Module | None = field(kw_only=True)
    """The model in one piece, to validate and keep; None in all processes but the first."""

    @contextmanager
    def averaged(self) -> Iterator[nn.Module]:
        """In the first process the model in one piece, with the average for its parameters; all processes have to
        ask for it."""
        into = {} if self.replica is None else self.replica.state_dict()
        with torch.no_grad():
            for name, value in (self.model.state_dict() | self.average).items():
                whole = _whole(value)  # one at a time, for together they may not fit
                if into:
                    into[name].copy_(whole)
        yield self.model if self.replica is None else self.replica.eval()

    def initial(self) -> dict[str, Tensor]:
        """Return the parameters before the first step, in one piece; in the first process alone."""
        assert self.replica is not None
        return self.replica.state_dict()

    def begin(self, folder: RunFolder) -> None:
        """Write the first files of a new run, from the first process alone: a model to use."""
        folder.write_model(0, self.initial())

    def save(self, folder: RunFolder, context: DistributedContext = SINGLE_PROCESS, *, use: bool = True) -> None:
        """Write a checkpoint, each process its part; `use`: these are the parameters to use from now on."""
        if use:
            with self.averaged() as model:
                if context.first:
                    folder.write_model(self.step, model.state_dict())
        target = folder.path / "trainer" / f"step-{self.step}"
        refuse_links(target.parent)
        # All processes write into one folder, whose name each can tell.
        building = target.with_name(f".{target.name}")
        if context.first:
            remove_quietly(building)
        context.wait()
        writer = HuggingFaceStorageWriter(str(building), save_distributed=True)
        save(self.trainer_tensors(), storage_writer=writer)
        context.wait()
        seal_checkpoint(folder, building, context.rank, context.size)
        context.wait()
        if context.first:
            remove_quietly(target)
            building.rename(target)
            for older in _checkpoints(folder)[:-1]:
                remove_quietly(older)
        context.wait()

    def restore(self, folder: RunFolder) -> None:
        """Take up the latest checkpoint; raises `InputError` where there is none or it does not fit."""
        found = _checkpoints(folder)
        if not found:
            raise InputError(f"run {str(folder.path)!r} is incomplete: the state of its training is missing")
        check_checkpoint(folder, found[-1], torch.distributed.get_rank(), torch.distributed.get_world_size())
        tensors = self.trainer_tensors()
        try:
            load(tensors, storage_reader=HuggingFaceStorageReader(str(found[-1])))
        except (CheckpointException, RuntimeError, ValueError, OSError) as error:
            raise InputError(f"run {str(folder.path)!r} is damaged: {found[-1].name} does not load") from error
        self.step = int(found[-1].name.removeprefix("step-"))
        self.load_trainer_tensors(tensors)


def _whole(tensor: Tensor) -> Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).cpu()


def _checkpoints(folder: RunFolder) -> list[Path]:
    """Return the checkpoints, oldest first."""
    found = [path for path in folder.path.glob("trainer/step-*") if path.is_dir()]
    return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))
