"""What can be handed to another program: runs from sequence to sequence are such."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from regard.attention import attention_layers
from regard.data.bpe_codes import BpeCodesVocabulary
from regard.data.sentencepieces import SentencePieceVocabulary
from regard.data.subwords import SubwordVocabulary
from regard.errors import InputError
from regard.models import Transformer, TransformerConfig

if TYPE_CHECKING:
    from regard.interpret import KeptHeads
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
    def step(self) -> int:
        """Training steps behind it."""

    @property
    def task(self) -> SequenceTask:
        """Its task, which has the vocabularies."""

    @property
    def model(self) -> Seq2Seq:
        """The model itself."""

    def kept_heads(self) -> KeptHeads | None:
        """Return the heads to align by; None where nobody has chosen any."""

    def unseen(self, samples: int, seed: int) -> Sequence[Any]:
        """Return pairs of source and target that training has not seen; raises `InputError` where there are
        none."""


Cut = SubwordVocabulary | SentencePieceVocabulary | BpeCodesVocabulary
"""Vocabularies that other programs can be handed."""


def transformer_of(run: Exportable, program: str) -> tuple[Transformer, TransformerConfig, Cut, Cut]:
    """Return a run's Transformer, how it is built, and its vocabularies of source and target.

    Raises `InputError` where it is another model, its vocabularies are not learned ones, or heads were pruned.
    """
    model: Any = run.model
    config: Any = run.config.model
    source, target = run.task.source_vocabulary, run.task.target_vocabulary
    ours = isinstance(model, Transformer) and isinstance(config, TransformerConfig)
    if not ours or not isinstance(source, Cut) or not isinstance(target, Cut):
        raise InputError(f"run {str(run.folder)!r} is no Transformer for translation: {program} cannot run it")
    if run.config.kept_heads or any(layer.heads != config.heads for layer in attention_layers(model).values()):
        raise InputError(f"run {str(run.folder)!r} is pruned: {program} wants as many heads in every layer")
    return model, config, source, target
