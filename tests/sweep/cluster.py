"""What stands in for a cluster in tests: trainings in this process, which can be lost at a checkpoint."""

from pathlib import Path
from typing import Any

import pytest

from regard.sweep.job import Job, make_job
from regard.training import Checkpoint, RunFolder, make_config, trainer

CHECKPOINT = 10
"""Steps between two checkpoints, where `short_checkpoints` has been called."""


class LostError(Exception):
    """The end of a machine."""


def job(folder: Path, task: str = "counting", **flags: Any) -> Job:
    """A small training."""
    return make_job(make_config(task, {"steps": 30, "hidden": 4, "batchsize": 8, **flags}), folder)


def short_checkpoints(patch: pytest.MonkeyPatch) -> None:
    """Have trainings save every ten steps."""
    patch.setattr(trainer, "CHECKPOINT_EVERY", CHECKPOINT)


def lose_at(step: int, patch: pytest.MonkeyPatch) -> None:
    """Have a training in this process end with `LostError` when it has saved what it is at `step`."""
    write = Checkpoint.save_training

    def last(self: Checkpoint, folder: RunFolder) -> None:
        write(self, folder)
        if self.step == step:
            raise LostError

    patch.setattr(Checkpoint, "save_training", last)
