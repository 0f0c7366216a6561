"""Sharded training (FSDP2): parameters, gradients, moments and averages are split between the processes.

Checkpoints are written by torch.distributed.checkpoint, and can be loaded by a different number of processes.
The whole model is gathered on the first process only for validation and for saving the weights for use.

    trainer/step-N/                  one safetensors file per process
    trainer/step-N/digests-R.json    SHA-256 digests of the files assigned to process R

The files are safetensors files, because torch.distributed.checkpoint would unpickle its default format.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

from regard.attention.blocks import Block, DecoderLayer
from regard.errors import InputError
from regard.io import add_digest, has_valid_digest, list_files, read_json, refuse_links, remove_quietly, write_json
from regard.training.checkpoint import Checkpoint, TrainingState
from regard.training.distributed import SINGLE_PROCESS, DistributedContext
from regard.training.objective import Objective
from regard.training.run_folder import MEND, RunFolder, config_mismatch, file_digest

DIGESTS = "digests"  # Prefix of the names of digest files in a checkpoint


def shard(objective: Objective[Any, Any], context: DistributedContext) -> None:
    """Split the parameters of an objective between the processes. Raises `InputError` without torchrun."""
    if not torch.distributed.is_initialized():
        raise InputError("sharded splits the model between processes: start training with torchrun")
    mesh = init_device_mesh(context.device.type, (context.size,))
    _add_dimensions(objective)
    for module in objective.model.modules():
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
            if isinstance(module, DecoderLayer):
                register_fsdp_forward_method(module, "project")
    fully_shard(objective, mesh=mesh)


def _add_dimensions(module: nn.Module) -> None:
    """Replace parameters without dimensions, such as the gain of `cosine`, by parameters (1) for FSDP2."""
    for part in module.modules():
        for name, parameter in [*part.named_parameters(recurse=False)]:
            if parameter.dim() == 0:
                setattr(part, name, nn.Parameter(parameter.detach().reshape(1)))


@dataclass
class ShardedState(TrainingState):
    """A training state whose tensors are split between the processes."""

    replica: nn.Module | None = field(kw_only=True)
    """The whole model, for validation and saving; None in all processes except the first."""

    @contextmanager
    def averaged(self) -> Iterator[nn.Module]:
        """Yield the whole model with the averaged parameters in the first process. All processes must call it."""
        weights = {} if self.replica is None else self.replica.state_dict()
        with torch.no_grad():
            for name, value in (self.model.state_dict() | self.average).items():
                # One at a time, because all together may not fit in memory.
                whole = (value.full_tensor() if isinstance(value, DTensor) else value).cpu()
                if weights:
                    weights[name].copy_(whole.view_as(weights[name]))  # see `_add_dimensions`
        yield self.model if self.replica is None else self.replica.eval()

    def initial(self) -> dict[str, Tensor]:
        assert self.replica is not None
        return self.replica.state_dict()

    def save_first(self, folder: RunFolder) -> None:
        """Write the initial weights in the first process only, because the others have not yet reached this point."""
        Checkpoint(step=0, weights=self.initial()).save(folder)

    def save(self, folder: RunFolder, context: DistributedContext = SINGLE_PROCESS, *, use: bool = True) -> None:
        """Write a checkpoint, to which each process adds its part. `use`: also replace the weights for use."""
        if use:
            with self.averaged() as model:
                if context.first:
                    Checkpoint(step=self.step, weights=model.state_dict()).save(folder)
        target = folder.path / "trainer" / f"step-{self.step}"
        refuse_links(target.parent)
        # All processes write to one temporary folder, whose name every process can compute.
        building = target.with_name(f".{target.name}")
        if context.first:
            remove_quietly(building)
        context.wait()
        writer = HuggingFaceStorageWriter(str(building), save_distributed=True)
        save(self.tensors(), storage_writer=writer)
        context.wait()
        # By the ending, because another process may be writing its digests to a temporary file.
        weights = [path for path in list_files(building) if path.suffix == ".safetensors"]
        share = weights[context.rank :: context.size]
        digests = {"config": folder.config_text, "files": {path.name: file_digest(path) for path in share}}
        write_json(building / f"{DIGESTS}-{context.rank}.json", add_digest(digests))
        context.wait()
        if context.first:
            remove_quietly(target)
            building.rename(target)
            for older in _checkpoints(folder)[:-1]:
                remove_quietly(older)
        context.wait()

    def restore(self, folder: RunFolder) -> None:
        Checkpoint.load(folder)
        checkpoints = _checkpoints(folder)
        if not checkpoints:
            raise InputError(f"run {str(folder.path)!r} is incomplete: its training state is missing")
        last = checkpoints[-1]
        files = list_files(last)
        tensor_files = [path for path in files if path.suffix != ".json"]
        digests = [
            read_json(path, _Digests, MEND, finite=False) for path in files if path.name.startswith(f"{DIGESTS}-")
        ]
        known = {name: digest for content in digests for name, digest in content.files.items()}
        stored = folder.stored()
        # Each process checks its part of the files.
        own_files = tensor_files[torch.distributed.get_rank() :: torch.distributed.get_world_size()]
        if (
            not all(has_valid_digest(msgspec.to_builtins(content)) for content in digests)
            or known.keys() != {path.name for path in tensor_files}
            or any(known[path.name] != file_digest(path) for path in own_files)
        ):
            folder.refuse_edited(last.name, "the checkpoint's files have changed since they were written")
        elif not folder.trust_edited or has_valid_digest(stored):
            for content in digests:
                if (problem := config_mismatch(content.config, stored, last.name)) is not None:
                    folder.refuse_edited(last.name, problem)
        tensors = self.tensors()
        try:
            load(tensors, storage_reader=HuggingFaceStorageReader(str(last)))
        except (CheckpointException, RuntimeError, ValueError, OSError) as error:
            raise InputError(f"run {str(folder.path)!r} is damaged: {last.name} cannot be loaded") from error
        self.step = int(last.name.removeprefix("step-"))
        self.load_tensors(tensors)


class _Digests(msgspec.Struct, forbid_unknown_fields=True):
    """Content of a digest file."""

    config: str
    files: dict[str, str]  # SHA-256 digests by file name
    digest: str


def _checkpoints(folder: RunFolder) -> list[Path]:
    """Return the checkpoints, oldest first."""
    paths = [path for path in folder.path.glob("trainer/step-*") if path.is_dir()]
    return sorted(paths, key=lambda path: int(path.name.removeprefix("step-")))
