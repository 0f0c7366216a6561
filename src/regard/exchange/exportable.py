"""What can be handed to another program: runs from sequence to sequence are such."""

from pathlib import Path
from typing import Protocol

from regard.models import Seq2Seq
from regard.tasks import SequenceTask
from regard.training import RunConfig


class Exportable(Protocol):
    """A trained model with its task and config."""

    @property
    def folder(self) -> Path:
        """Where it is kept."""

    @property
    def config(self) -> RunConfig:
        """What decided it."""

    @property
    def task(self) -> SequenceTask:
        """Its task, which has the vocabularies."""

    @property
    def model(self) -> Seq2Seq:
        """The model itself."""
