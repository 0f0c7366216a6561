"""What all conversions share: the parts of a run that an export needs, and the forms of imported models.

Every import reads the program's files, checks its settings, and maps the names of its parameters to an
`ImportedModel`. `import_model` writes the run and compares both programs. An export reverses the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from regard.attention.layer import attention_layers
from regard.attention.multihead import MultiHeadAttention
from regard.convert.exportable import Exportable
from regard.data.imported_tokenizers import ImportedTokenizer, SentencePieceVocabulary
from regard.data.subwords import RESERVED, SubwordVocabulary
from regard.errors import InputError
from regard.models.base import ModelConfig
from regard.models.transformer import Transformer, TransformerConfig

if TYPE_CHECKING:
    from torch import Tensor, nn

    from regard.data.batch import PairBatch
    from regard.data.vocabulary import Vocabulary

ExportableVocabulary = SubwordVocabulary | SentencePieceVocabulary
"""Vocabulary classes that other programs can read."""


class ExportParts(NamedTuple):
    """The parts of a run that an export needs."""

    model: Transformer
    config: TransformerConfig
    source: ExportableVocabulary
    target: ExportableVocabulary


def get_transformer(run: Exportable, program: str) -> ExportParts:
    """Return a run's Transformer, its config, and its source and target vocabulary. Raises `InputError` for
    other models, for vocabularies that were not learned from text, and for pruned heads."""
    model: Any = run.model
    config: Any = run.config.model
    vocabularies: Any = run.task.source_vocabulary, run.task.target_vocabulary
    readable = all(isinstance(vocabulary, ExportableVocabulary) for vocabulary in vocabularies)
    if not (isinstance(model, Transformer) and isinstance(config, TransformerConfig) and readable):
        raise InputError(f"run {str(run.folder)!r} is not a Transformer for translation: {program} cannot run it")
    if run.config.kept_heads or any(layer.heads != config.heads for layer in attention_layers(model).values()):
        raise InputError(f"run {str(run.folder)!r} is pruned: {program} needs the same number of heads in every layer")
    check_attention(model, config.attention, program)
    if config.norm == "none":
        raise InputError(f"norm none is not supported by {program}: train with --norm layer")
    if any(layer.groups != layer.heads for layer in _multi_head(model)):
        raise InputError(f"attention {config.attention} is not supported by {program}: each head needs its own keys")
    return ExportParts(model, config, *vocabularies)


def check_attention(model: nn.Module, attention: str, program: str) -> None:
    """Raise `InputError` for a mechanism that other programs do not compute. `attention`: the flag. Layers with
    another score are left to the check of the flag `score`."""
    if attention != ModelConfig.attention and not all(layer.standard for layer in _multi_head(model)):
        raise InputError(
            f"attention {attention} is not supported by {program}, which computes the softmax of scaled dot "
            f"products: train without --attention"
        )


def _multi_head(model: nn.Module) -> list[MultiHeadAttention]:
    return [layer for layer in model.modules() if isinstance(layer, MultiHeadAttention)]


def token_names(vocabulary: Vocabulary) -> list[str]:
    """Return the tokens of a vocabulary by the names in exported files, special symbols first."""
    return [*RESERVED, *vocabulary.symbols[len(RESERVED) :]]


class ForcedOutput(NamedTuple):
    """Output of a program for forced targets. Values at steps after the end of a target are undefined."""

    log_probabilities: Tensor  # (B, Tt), natural logarithms of the probabilities of the target tokens
    logits: Tensor | None = None  # (B, Tt, V), or None if the program does not provide them
    weights: Mapping[str, Tensor] | None = None
    """(B, H, Tq, Tk) by layer name as in `regard.record`, or None if the program does not provide them."""


class ConvertedModel(Protocol):
    """A converted model, opened in its program. All token indices are those of the run's vocabularies."""

    @property
    def program(self) -> str:
        """Name of the program's Python package."""

    @property
    def missing(self) -> Mapping[str, str]:
        """Reason for each field of the certificate that the program does not provide."""

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize texts with the program's own tokenizer, without the end of sequence."""

    def force(self, batch: PairBatch) -> ForcedOutput:
        """Run the model on a batch with forced targets."""

    def translate(self, source: Tensor, *, beam: int, most: int) -> list[list[int]]:
        """Translate sources (B, Ts) to at most about `most` tokens, without end symbol or length penalty."""


class ImportedModel(NamedTuple):
    """A model of another program, converted to Regard's configs, vocabularies and parameters."""

    flags: dict[str, Any]  # Flags of task and model
    vocabularies: tuple[ExportableVocabulary, ExportableVocabulary] | tuple[ImportedTokenizer]
    """Source and target vocabulary, or the tokenizer of a language model."""
    parameters: Mapping[str, Tensor]  # Tensors by Regard's parameter names
    open: Callable[[Any], Any]
    """Open the model in its original program, for comparison with the run: a `ConvertedModel`, or for a language
    model a `ConvertedLanguageModel`."""
    task: str = "translation"  # Name of the task of the run


def check_supported(name: str, value: Any, choices: Iterable[str]) -> None:
    """Raise `InputError` if Regard's Transformer does not support a setting."""
    if value not in choices:
        raise InputError(f"{name} {value} is not supported: choose {', '.join(choices)}")
