"""The flags of a training with their types, for editors and type checkers: `regard.train("counting", steps=...)`.

Each class has the fields of the dataclasses that it is named for, where their defaults and explanations stand; a
test holds them against each other.
"""

from pathlib import Path
from typing import Literal, TypedDict

Paths = str | Path | tuple[str | Path, ...] | list[str] | list[Path]
Numbers = float | tuple[float, ...] | list[float]


class LoadFlags(TypedDict, total=False):
    """Of loading a run."""

    savepath: str | Path
    trust_code: bool
    trust_edited: bool


class WhereFlags(LoadFlags, total=False):
    """Of where a run is kept, what it begins from, and what becomes of one that is there."""

    start_from: str | Path | None
    resume: bool
    overwrite: bool
    progress: bool


class CommonFlags(TypedDict, total=False):
    """Of every training."""

    steps: int
    lr: float | None
    seed: int
    snapshots: int
    freeze: Paths


class SampledFlags(CommonFlags, total=False):
    """Of trainings on tasks that draw their samples."""

    batchsize: int


class LetterFlags(TypedDict, total=False):
    """Of the primer's tasks, and of those that reorder a sequence."""

    max_len: int
    vocab_size: int


class RecallFlags(LetterFlags, total=False):
    """Of Recall."""

    pairs: int


class DatesFlags(TypedDict, total=False):
    """Of Dates."""

    locales: str


class TextFlags(LetterFlags, total=False):
    """Of translation."""

    train: Paths
    weights: Numbers
    valid: Paths
    test: Paths
    hub: str | None
    languages: Paths
    guide: str | None
    tokenizer: Literal["bpe", "unigram", "words", "characters", "sentencepiece", "codes"]
    joint: bool
    lowercase: bool
    bleu_tokenize: str | None
    strict: bool
    lenient: bool


class QueryFlags(SampledFlags, total=False):
    """Of a query model and its training."""

    hidden: int
    enc_layers: int
    multihead: bool
    heads: int
    pos_enc: bool
    positions: str
    layer: str
    score: str
    self_att: bool
    recipe: Literal["regard", "seed"]
    vary_len: bool


class PoolingFlags(SampledFlags, total=False):
    """Of a pooling classifier and its training."""

    hidden: int
    enc_layers: int
    cell: Literal["lstm", "gru"]
    pooling: Literal["attention", "last", "max", "mean"]
    score: str
    vary_len: bool


class RecurrentModelFlags(TypedDict, total=False):
    """Of a recurrent encoder-decoder."""

    hidden: int
    enc_hidden: int | None
    bidirectional: bool
    start: Literal["last", "zero"]
    embedding: int
    enc_layers: int
    cell: Literal["lstm", "gru"]
    score: str
    score_width: int | None
    context: Literal["cell", "output", "both"]
    query: Literal["previous", "current"] | None
    input_feeding: bool
    dropout: float


class TransformerModelFlags(TypedDict, total=False):
    """Of a Transformer."""

    hidden: int
    heads: int
    enc_layers: int
    dec_layers: int
    inner: int
    positions: str
    layer: str
    score: str
    pre_norm: bool
    norm_epsilon: float
    activation: Literal["relu", "gelu", "swish"]
    bias: bool
    tied: bool
    output_bias: bool
    dropout: float


class RecurrentFlags(RecurrentModelFlags, SampledFlags, total=False):
    """Of a recurrent encoder-decoder and its training on a task that draws its samples."""

    teacher_forcing: float


class TransformerFlags(TransformerModelFlags, SampledFlags, total=False):
    """Of a Transformer and its training on a task that draws its samples."""


class TranslationTrainingFlags(CommonFlags, total=False):
    """Of trainings on parallel text."""

    tokens: int
    batchsize: int
    accumulate: int
    schedule: Literal["one_cycle", "inverse_sqrt"]
    warmup: float
    label_smoothing: float
    merge_dropout: float
    r_drop: float
    guide_weight: float
    average: float
    clip: float
    precision: Literal["auto", "bfloat16", "float32"]
    validate_every: int
    patience: int
    compile: bool
    sharded: bool
    tensorboard: bool


class CountQueryFlags(WhereFlags, LetterFlags, QueryFlags, total=False):
    """Of a query model on one of the primer's tasks."""


class CountPoolingFlags(WhereFlags, LetterFlags, PoolingFlags, total=False):
    """Of a pooling classifier on one of the primer's tasks."""


class RecallQueryFlags(WhereFlags, RecallFlags, QueryFlags, total=False):
    """Of a query model on Recall."""


class RecallPoolingFlags(WhereFlags, RecallFlags, PoolingFlags, total=False):
    """Of a pooling classifier on Recall."""


class ReorderRecurrentFlags(WhereFlags, LetterFlags, RecurrentFlags, total=False):
    """Of a recurrent model on Copy, Reverse or Sort."""


class ReorderTransformerFlags(WhereFlags, LetterFlags, TransformerFlags, total=False):
    """Of a Transformer on Copy, Reverse or Sort."""


class DatesRecurrentFlags(WhereFlags, DatesFlags, RecurrentFlags, total=False):
    """Of a recurrent model on Dates."""


class DatesTransformerFlags(WhereFlags, DatesFlags, TransformerFlags, total=False):
    """Of a Transformer on Dates."""


class PhrasesRecurrentFlags(WhereFlags, RecurrentFlags, total=False):
    """Of a recurrent model on Phrases."""


class PhrasesTransformerFlags(WhereFlags, TransformerFlags, total=False):
    """Of a Transformer on Phrases."""


class TranslationRecurrentFlags(
    WhereFlags, TextFlags, RecurrentModelFlags, TranslationTrainingFlags, total=False
):
    """Of a recurrent model on parallel text."""


class TranslationFlags(WhereFlags, TextFlags, TransformerModelFlags, TranslationTrainingFlags, total=False):
    """Of a Transformer on parallel text."""

    preset: Literal["tiny", "tiny-r-drop", "marian", "small", "base", "big"] | None


class AnyFlags(TranslationTrainingFlags, total=False):
    """Every flag there is, for a task whose name is not known to a type checker."""

    max_len: int
    vocab_size: int
    pairs: int
    locales: str
    train: Paths
    weights: Numbers
    valid: Paths
    test: Paths
    hub: str | None
    languages: Paths
    guide: str | None
    tokenizer: str
    joint: bool
    lowercase: bool
    bleu_tokenize: str | None
    strict: bool
    lenient: bool
    model: str
    preset: str | None
    hidden: int
    enc_hidden: int | None
    bidirectional: bool
    start: str
    embedding: int
    enc_layers: int
    dec_layers: int
    inner: int
    multihead: bool
    heads: int
    pos_enc: bool
    score: str
    score_width: int | None
    self_att: bool
    cell: str
    pooling: str
    context: str
    query: str | None
    input_feeding: bool
    positions: str
    layer: str
    pre_norm: bool
    norm_epsilon: float
    activation: str
    bias: bool
    tied: bool
    output_bias: bool
    dropout: float
    recipe: str
    vary_len: bool
    teacher_forcing: float


class AnyTrainFlags(WhereFlags, AnyFlags, total=False):
    """Every flag there is, and where the run is kept."""
