"""Training options as frozen dataclasses: steps, learning rate, batches, loss; and the recipes of the optimizer.

The command line is generated from these classes: the docstring after a field is its `--help`. The base class
contains constant values for options of only some subclasses. These constants have no annotation and are
therefore not fields. With these constants, the training loop can read every option from any class.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from regard.arguments import Limits, check_fields
from regard.errors import InputError
from regard.models.base import ModelConfig

Precision = Literal["auto", "bfloat16", "float16", "float32"]
FLOAT32: Precision = "float32"
Decay = Literal["one_cycle", "inverse_sqrt", "constant"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of the optimizer and of the learning rate schedule.

    >>> recipe = Recipe(lr=1.0, encoder_lr=1.0, output_lr=1.0, betas=(0.9, 0.98), warmup=0.5, clip=None)
    >>> [round(recipe.schedule(step, 4), 2) for step in range(4)]
    [0.5, 1.0, 0.75, 0.25]
    """

    lr: Annotated[float, Limits(0, math.inf, "both")]
    """Peak learning rate without encoder layers."""
    encoder_lr: float
    """Peak learning rate with encoder layers."""
    output_lr: float
    """Factor for the learning rate of the output layer."""
    betas: tuple[float, float]
    """Decay rates of Adam for the first and second moments of the gradient."""
    warmup: float | None
    """Fraction of the training steps in which the rate increases; None for a constant rate."""
    clip: float | None
    """Largest norm of the gradient over all parameters; None for no limit."""
    decay: Decay = "one_cycle"
    """Shape of the decay after the warm-up: a cosine to `last` (one_cycle), the inverse square root of the step
    (Vaswani et al. 2017, section 5.3), or none (constant)."""
    last: float = 0.0
    """Fraction of the peak rate that the cosine reaches after the last step."""
    weight_decay: float = 0.0
    """Decay of matrices and embeddings, times the learning rate (Loshchilov and Hutter 2019)."""

    def default_lr(self, model: ModelConfig) -> float:
        return self.encoder_lr if model.enc_layers else self.lr

    def schedule(self, step: int, steps: int) -> float:
        """Return the factor for the peak rate at `step` (counted from 0) of `steps` training steps."""
        if self.warmup is None:
            return 1.0
        rise = self.warmup * steps
        if step + 1 < rise:
            return (step + 1) / rise
        if self.decay == "inverse_sqrt":
            return math.sqrt(max(rise, 1.0) / (step + 1))
        if self.decay == "constant":
            return 1.0
        cosine = (1 + math.cos(math.pi * (step + 1 - rise) / (steps + 1 - rise))) / 2
        return self.last + (1 - self.last) * cosine


def regard_recipe() -> Recipe:
    """Return the recipe that reliably learns the primer's tasks in the primer's number of training steps.

    docs/explanation/results.md compares both recipes over 10 seeds, and measures the effect of each part.
    """
    # The learning rate of the output layer is 8 times as high, because its weights must grow most. Without this
    # factor, or with the usual betas of Adam, exact match on Difference is below 99 % for some seeds
    # (docs/explanation/results.md).
    return Recipe(lr=0.05, encoder_lr=0.005, output_lr=8.0, betas=(0.95, 0.98), warmup=0.2, clip=None)


def seed_recipe() -> Recipe:
    return Recipe(lr=0.01, encoder_lr=0.001, output_lr=1.0, betas=(0.9, 0.999), warmup=None, clip=None)


def recurrent_recipe() -> Recipe:
    return Recipe(lr=0.005, encoder_lr=0.005, output_lr=1.0, betas=(0.9, 0.98), warmup=0.1, clip=1.0)


def transformer_recipe(
    warmup: float = 0.1, clip: float = 1.0, decay: Decay = "one_cycle", weight_decay: float = 0.0
) -> Recipe:
    """Return the recipe of Transformers and of custom models."""
    return Recipe(
        lr=0.002,
        encoder_lr=0.002,
        output_lr=1.0,
        betas=(0.9, 0.98),  # Vaswani et al. 2017, section 5.3
        warmup=warmup,
        clip=clip,
        decay=decay,
        weight_decay=weight_decay,
    )


RECIPES: dict[str, Callable[[], Recipe]] = {"regard": regard_recipe, "seed": seed_recipe}
"""Recipes of the query model."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Training options of every model."""

    accumulate = 1
    average = 0.0
    batchsize = 1
    compile = False
    criterion = "bleu"
    guide_weight = 0.0
    keep = 0
    label_smoothing = 0.0
    merge_dropout = 0.0
    patience = 0
    precision = FLOAT32
    r_drop = 0.0
    sharded = False
    teacher_forcing = 1.0
    tensorboard = False
    tokens = 0
    validate_every = 0
    vary_len = False

    steps: Annotated[int, Limits(1, 10**9)] = 2000
    """Number of training steps. Each step trains on one batch."""
    lr: Annotated[float, Limits(0, math.inf, "both")] | None = None
    """Learning rate: the peak of the schedule, or the constant rate. None: 0.05 with
    the recipe regard (0.005 with encoder layers); 0.01 with the recipe seed (0.001 with encoder layers); 0.005
    for recurrent models; 0.001 for language models; 0.002 for Transformers and custom models."""
    seed: Annotated[int, Limits(0, 2**32 - 1)] = 0
    """Random seed of the initial parameters and of the samples."""
    snapshots: Annotated[int, Limits(0, 10_000)] = 0
    """Number of snapshots: copies of the parameters from step 0 to the last step, denser at the beginning.
    Snapshots show how attention forms. 0: no snapshots."""
    freeze: tuple[str, ...] = ()
    """Parts of the model whose parameters are not trained, such as embedding, encoder, decoder, a layer
    (encoder.0) or a part of a layer (decoder.1.cross). Use this option for a run that starts from the
    parameters of another run."""

    def __post_init__(self) -> None:
        """Raise `InputError` for a value that is out of range."""
        check_fields(self)
        if self.snapshots == 1:
            raise InputError("snapshots 1 cannot show a change: choose 2 or more, or 0 for none")

    def check_task(self, task: Any) -> None:
        """Raise `InputError` for options that have no effect with the options of a task."""

    @property
    def optimization(self) -> Recipe:
        return recurrent_recipe()

    def schedule_at(self, step: int, first: int = 0) -> float:
        """Return the learning rate at `step` (counted from 0) of a schedule that begins at step `first`.

        `RunConfig.resolved` sets `lr` before training.
        """
        assert self.lr is not None
        return self.lr * self.optimization.schedule(step - first, self.steps - first)

    @property
    def snapshot_steps(self) -> list[int]:
        """Steps after which a snapshot is kept: 0, then a geometric sequence to the last step."""
        if not self.snapshots:
            return []
        if self.snapshots > self.steps:
            return list(range(self.steps + 1))
        kept, between = [0], self.snapshots - 1
        for number in range(1, between):
            # A geometric sequence of integers: each number is greater than the previous number, and small
            # enough for the remaining numbers to be distinct.
            left, last = between - number, kept[-1]
            step = round(last * (self.steps / last) ** (1 / (left + 1))) if last else 1
            kept.append(min(max(step, last + 1), self.steps - left))
        return [*kept, self.steps]


@dataclass(frozen=True, kw_only=True)
class SampledTraining(TrainingConfig):
    """Training options of synthetic tasks."""

    batchsize: Annotated[int, Limits(1, 10**6)] = 100
    """Samples in a batch."""


@dataclass(frozen=True, kw_only=True)
class PoolingTraining(SampledTraining):
    """Training options of the pooling classifier."""

    vary_len: bool = False
    """Train on all lengths up to max_len, with a mask."""


@dataclass(frozen=True, kw_only=True)
class QueryTraining(SampledTraining):
    """Training options of the query model."""

    recipe: Literal["regard", "seed"] = "regard"
    """regard: Adam with warm-up, cosine decay and a faster output layer. seed: the primer's Adam at a constant
    rate."""
    vary_len: bool = False
    """Train on all lengths from 1 to max_len, with a mask. The model can also attend to an additional learned
    step."""

    @property
    def optimization(self) -> Recipe:
        return RECIPES[self.recipe]()


@dataclass(frozen=True, kw_only=True)
class RecurrentTraining(SampledTraining):
    """Training options of the recurrent encoder-decoder."""

    batchsize: int = 64
    """Samples in a batch."""
    teacher_forcing: Annotated[float, Limits(0, 1)] = 1.0
    """Fraction of target steps that get the true previous token at the end of training. The fraction decreases linearly from 1. The other target steps get the prediction of the model."""


@dataclass(frozen=True, kw_only=True)
class TransformerTraining(SampledTraining):
    """Training options of the Transformer."""

    batchsize: int = 64
    """Samples in a batch."""

    @property
    def optimization(self) -> Recipe:
        return transformer_recipe()


@dataclass(frozen=True, kw_only=True)
class OwnAnswerTraining(SampledTraining):
    """Training options of custom models that answer with numbers."""

    vary_len: bool = False
    """Train on all lengths up to max_len, with a mask."""

    @property
    def optimization(self) -> Recipe:
        return transformer_recipe()


@dataclass(frozen=True, kw_only=True)
class OwnSequenceTraining(TransformerTraining):
    """Training options of custom models that answer with text."""


def check_sharded_precision(settings: TrainingConfig) -> None:
    """Raise `InputError` for float16 with sharded parameters, whose gradients each process sees only in part."""
    if settings.sharded and settings.precision == "float16":
        raise InputError("precision float16 does not work with sharded: choose bfloat16, or leave out --sharded")
