"""A trained run: its configuration, its task, its model and its metrics."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from regard.training import RunConfig, RunFolder


@dataclass(frozen=True)
class Run:
    """What `regard.train` and `regard.load` return, as one of two kinds: `AnswerRun` or `PairRun`."""

    folder: Path
    config: RunConfig
    step: int
    """Training steps behind the model."""

    @property
    def has_snapshots(self) -> bool:
        """Whether there is something to play back."""
        return bool(RunFolder(self.folder).snapshots)

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """Loss and exact match of the training batch, every 10 steps, as in metrics.jsonl."""
        return RunFolder(self.folder).read_metrics()
