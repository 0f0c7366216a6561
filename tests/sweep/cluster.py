"""Small training jobs in this process that can be lost at a checkpoint, for tests of clusters and of resuming."""

from pathlib import Path
from typing import Any

import pytest

from regard.sweep.job import Job, make_job
from regard.training import trainer
from regard.training.checkpoint import Checkpoint
from regard.training.config import make_config
from regard.training.run_folder import RunFolder

CHECKPOINT = 10
"""Number of steps between two checkpoints after a call of `short_checkpoints`."""


class LostError(Exception):
    """Raised if a machine is lost."""


def job(folder: Path, task: str = "counting", **flags: Any) -> Job:
    """Return a small training job."""
    return make_job(make_config(task, {"steps": 30, "hidden": 4, "batchsize": 8, **flags}), folder)


def short_checkpoints(patch: pytest.MonkeyPatch) -> None:
    """Make training jobs save their state every ten steps."""
    patch.setattr(trainer, "CHECKPOINT_EVERY", CHECKPOINT)


def lose_at(step: int, patch: pytest.MonkeyPatch) -> None:
    """Make a training job in this process raise `LostError` after it has saved its state at `step`."""
    write = Checkpoint.save

    def write_and_fail(self: Checkpoint, folder: RunFolder) -> None:
        write(self, folder)
        if self.step == step:
            raise LostError

    patch.setattr(Checkpoint, "save", write_and_fail)
