"""What an export needs of a run, and the choices of `regard export` and `regard translate`.

This module imports no other program: every run on sequences imports it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from regard.interpret.alignment import KeptHeads
    from regard.models.base import Seq2Seq
    from regard.tasks.pairs import SequenceTask
    from regard.training.config import RunConfig


Program = Literal["ctranslate2", "huggingface"]  # Programs to export to
EngineName = Literal["auto", "regard", "ctranslate2"]
"""Search engines. auto: CTranslate2 if it is installed and supports the model on this CPU, otherwise Regard's own
search."""
Precision = Literal["float32", "int8"]  # Precision of the weights in the matrix products of CTranslate2


class Exportable(Protocol):
    """A trained sequence-to-sequence model with its task and config, such as a `TranslationRun`."""

    @property
    def folder(self) -> Path: ...
    @property
    def config(self) -> RunConfig: ...
    @property
    def step(self) -> int: ...
    @property
    def task(self) -> SequenceTask: ...
    @property
    def model(self) -> Seq2Seq: ...

    def kept_heads(self) -> KeptHeads | None:
        """Return the chosen alignment heads; None if there are none."""

    def unseen(self, samples: int, seed: int) -> Sequence[Any]:
        """Return pairs of source and target not used in training; raises `InputError` without such pairs."""
