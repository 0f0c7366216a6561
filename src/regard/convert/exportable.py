"""What an export needs of a run. This module is light: every run on sequences imports it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from regard.interpret.head_selection import KeptHeads
    from regard.models.base import Seq2Seq
    from regard.tasks.pairs import SequenceTask
    from regard.training.config import RunConfig


class Exportable(Protocol):
    """A trained sequence-to-sequence model with its task and config."""

    @property
    def folder(self) -> Path:
        """Folder of the run."""

    @property
    def config(self) -> RunConfig:
        """Configuration of the training."""

    @property
    def step(self) -> int:
        """Number of training steps."""

    @property
    def task(self) -> SequenceTask:
        """Task of the run, with its vocabularies."""

    @property
    def model(self) -> Seq2Seq:
        """The trained model."""

    def kept_heads(self) -> KeptHeads | None:
        """Return the chosen alignment heads; None if there are none."""

    def unseen(self, samples: int, seed: int) -> Sequence[Any]:
        """Return pairs of source and target not used in training; raises `InputError` if there are no such
        pairs."""
