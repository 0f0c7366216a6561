"""Helpers for cluster tests: small trainings in this process that can be lost at a checkpoint."""

from pathlib import Path
from typing import Any

import pytest

from regard.sweep.job import Job, make_job
from regard.training import RunFolder, loop, make_config

CHECKPOINT = 10
"""Steps between two checkpoints after `short_checkpoints`."""


class LostError(Exception):
    """A machine is lost."""


def job(folder: Path, task: str = "counting", **flags: Any) -> Job:
    """Return a small training."""
    return make_job(make_config(task, {"steps": 30, "hidden": 4, "batchsize": 8, **flags}), folder)


def short_checkpoints(patch: pytest.MonkeyPatch) -> None:
    """Make trainings save every ten steps."""
    patch.setattr(loop, "CHECKPOINT_EVERY", CHECKPOINT)


def lose_at(step: int, patch: pytest.MonkeyPatch) -> None:
    """Make a training in this process raise `LostError` after it has saved its state at `step`."""
    write = RunFolder.write_trainer

    def write_and_fail(self: RunFolder, at: int, tensors: dict[str, Any]) -> None:
        write(self, at, tensors)
        if at == step:
            raise LostError

    patch.setattr(RunFolder, "write_trainer", write_and_fail)
