"""Flags that choose the machines of a sweep: this machine, a Ray cluster, or a Slurm cluster."""

from dataclasses import dataclass, fields
from typing import Literal

from regard.errors import InputError
from regard.sweep.job import Backend
from regard.sweep.processes import Local
from regard.sweep.ray import Ray
from regard.sweep.slurm import Slurm

MACHINES: dict[str, type[Local | Ray | Slurm]] = {"here": Local, "ray": Ray, "slurm": Slurm}


@dataclass(frozen=True, kw_only=True)
class MachineFlags:
    """Flags of all commands that train on several machines."""

    on: Literal["here", "ray", "slurm"] = "here"
    """Machines that run the training jobs: here (in parallel on the cores of this machine), a Ray cluster, or a
    Slurm cluster. The machines of a cluster must share the disk of --savepath."""
    address: str | None = None
    """For ray: host:port of the head node. Default: $RAY_ADDRESS, or the cluster of this machine."""
    cpus: int | None = None
    """For ray and slurm: number of cores and threads per training job. Default: 1."""
    memory: int | None = None
    """For slurm: memory per training job, in GB. Default: 4."""
    time: int | None = None
    """For slurm: minutes until an unfinished training job saves its state and is queued again. Default: 60."""
    partition: str | None = None
    """For slurm: partition. Default: the cluster's default."""


OPTIONS = tuple(field.name for field in fields(MachineFlags) if field.name != "on")
"""Names of the flags that configure the machines."""


def make_backend(flags: MachineFlags) -> Backend:
    """Return the machines that run the training jobs. Raises `InputError` for a flag that applies only to other
    machines."""
    chosen = MACHINES[flags.on]
    accepted = {field.name for field in fields(chosen)}
    options = {name: value for name in OPTIONS if (value := getattr(flags, name)) is not None}
    for name in options:
        if name not in accepted:
            alternatives = " or ".join(
                on for on, kind in MACHINES.items() if name in {field.name for field in fields(kind)}
            )
            raise InputError(
                f"--{name} does not apply to --on {flags.on}: leave it out, or give --on {alternatives}"
            )
    return chosen(**options)
