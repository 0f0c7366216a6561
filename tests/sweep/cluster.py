"""What stands in for a cluster in tests: trainings in this process, which can be lost at a checkpoint."""

from pathlib import Path
from typing import Any

import pytest

from regard.sweep.job import Job, make_job
from regard.training import RunFolder, loop, make_config

CHECKPOINT = 10
"""Steps between two checkpoints, where `short_checkpoints` has been called."""


class LostError(Exception):
    """The end of a machine."""


def job(folder: Path, task: str = "counting", **flags: Any) -> Job:
    """A small training."""
    return make_job(make_config(task, {"steps": 30, "hidden": 4, "batchsize": 8, **flags}), folder)


def short_checkpoints(patch: pytest.MonkeyPatch) -> None:
    """Have trainings save every ten steps."""
    patch.setattr(loop, "CHECKPOINT_EVERY", CHECKPOINT)


def lose_at(step: int, patch: pytest.MonkeyPatch) -> None:
    """Have a training in this process end with `LostError` when it has saved what it is at `step`."""
    write = RunFolder.write_trainer

    def last(self: RunFolder, at: int, tensors: dict[str, Any]) -> None:
        write(self, at, tensors)
        if at == step:
            raise LostError

    patch.setattr(RunFolder, "write_trainer", last)
