"""Interfaces of a conversion: the programs, and the runs that can be exported."""

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
        """Return pairs of source and target not used in training; raises `InputError` if there are none."""


ExportableVocabulary = SubwordVocabulary | SentencePieceVocabulary | BpeCodesVocabulary
"""Vocabularies that other programs can read."""


def get_transformer(
    run: Exportable, program: str
) -> tuple[Transformer, TransformerConfig, ExportableVocabulary, ExportableVocabulary]:
    """Return a run's Transformer, its config, and its source and target vocabulary.

    Raises `InputError` for other models, for vocabularies that were not learned from text, and for pruned heads.
    """
    model: Any = run.model
    config: Any = run.config.model
    source, target = run.task.source_vocabulary, run.task.target_vocabulary
    supported = isinstance(model, Transformer) and isinstance(config, TransformerConfig)
    if (
        not supported
        or not isinstance(source, ExportableVocabulary)
        or not isinstance(target, ExportableVocabulary)
    ):
        raise InputError(f"run {str(run.folder)!r} is not a Transformer for translation: {program} cannot run it")
    if run.config.kept_heads or any(layer.heads != config.heads for layer in attention_layers(model).values()):
        raise InputError(
            f"run {str(run.folder)!r} is pruned: {program} needs the same number of heads in every layer"
        )
    return model, config, source, target
