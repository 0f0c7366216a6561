"""How to train each kind of model, as frozen dataclasses: steps, rates, batches, what is asked of the loss.

The command line is generated from these classes, so the docstring under a field is its `--help`. What only some
trainings can set stands on the base class as it is for all others, without a type, so that it is no field: the
loop asks for it and need not know which training it is.
"""

import dataclasses
from dataclasses import dataclass
from typing import Literal

from regard.errors import InputError, check_choices, check_range, check_share
from regard.training.optimizers import OWN, RECIPES, RECURRENT, TRANSFORMER, Decay, Recipe

Precision = Literal["auto", "bfloat16", "float32"]
FLOAT32: Precision = "float32"


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How to train any model."""

    accumulate = 1
    average = 0.0
    batchsize = 1
    compile = False
    guide_weight = 0.0
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

    steps: int = 2000
    """Training steps, one batch each."""
    lr: float | None = None
    """Learning rate: the peak of the schedule, or its constant. None: the recipe's own, for recipe regard 0.05,
    with encoder layers 0.005; for recipe seed 0.01, with encoder layers 0.001; for recurrent models 0.005, for
    Transformers and models of your own 0.002."""
    seed: int = 0
    """Random seed of initialisation and samples (0 or more)."""
    snapshots: int = 0
    """Small copies of the parameters to keep, from step 0 to the last, closer together at first, for watching how
    attention forms; 0: none."""
    freeze: tuple[str, ...] = ()
    """Parts of the model whose parameters stay as they are, such as: embedding, encoder, decoder, a layer
    (encoder.0), a part of one (decoder.1.cross). For runs that begin from another one."""

    def __post_init__(self) -> None:
        """Raise `InputError` where a value is out of range."""
        check_choices(self)
        check_range("steps", self.steps, 1, 10**9)
        check_range("snapshots", self.snapshots, 0, 10_000)
        if self.snapshots == 1:
            raise InputError("snapshots 1 shows nothing form: keep at least 2, or 0 for none")
        check_range("seed", self.seed, 0, 2**32 - 1)
        if self.lr is not None and not 0 < self.lr < float("inf"):
            raise InputError(f"lr {self.lr} is out of range: a finite number above 0")

    @property
    def how(self) -> Recipe:
        """The recipe: how the optimizer moves the parameters."""
        return RECURRENT

    def schedule_at(self, step: int) -> float:
        """Return the learning rate at `step`, from 0; a config has one before training (see
        `RunConfig.resolved`)."""
        assert self.lr is not None
        return self.lr * self.how.schedule(step, self.steps)

    @property
    def snapshot_steps(self) -> list[int]:
        """Steps after which a snapshot is kept: 0, and then each the same factor after the one before."""
        if not self.snapshots:
            return []
        if self.snapshots > self.steps:
            return list(range(self.steps + 1))
        found, between = [0], self.snapshots - 1
        for each in range(1, between):  # each the same factor after the one before, where that is a whole step
            left = between - each
            wanted = round(found[-1] * (self.steps / found[-1]) ** (1 / (left + 1))) if found[-1] else 1
            found.append(min(max(wanted, found[-1] + 1), self.steps - left))
        return [*found, self.steps]


@dataclass(frozen=True, kw_only=True)
class SampledTraining(TrainingConfig):
    """How to train on a task that draws its samples."""

    batchsize: int = 100
    """Samples in a batch."""

    def __post_init__(self) -> None:
        """Raise `InputError` where a value is out of range."""
        super().__post_init__()
        check_range("batchsize", self.batchsize, 1, 10**6)


@dataclass(frozen=True, kw_only=True)
class PoolingTraining(SampledTraining):
    """How to train a pooling classifier."""

    vary_len: bool = False
    """Train over all lengths up to max_len, with a mask."""


@dataclass(frozen=True, kw_only=True)
class QueryTraining(SampledTraining):
    """How to train a query model."""

    recipe: Literal["regard", "seed"] = "regard"
    """regard: Adam with warm-up, cosine decay and a faster output layer. seed: Adam at a constant rate, as the
    primer did it."""
    vary_len: bool = False
    """Train over all lengths from 1 to max_len, with a mask; the model gains one learned step to rest on."""

    @property
    def how(self) -> Recipe:
        """The recipe: how the optimizer moves the parameters."""
        return RECIPES[self.recipe]


@dataclass(frozen=True, kw_only=True)
class RecurrentTraining(SampledTraining):
    """How to train a recurrent encoder-decoder."""

    batchsize: int = 64
    """Samples in a batch."""
    teacher_forcing: float = 1.0
    """Share of target steps that are fed the true previous token by the end of training (0 to 1). It falls to
    this in a straight line from 1; the other steps are fed the model's own prediction."""

    def __post_init__(self) -> None:
        """Raise `InputError` where a value is out of range."""
        super().__post_init__()
        check_share("teacher_forcing", self.teacher_forcing)


@dataclass(frozen=True, kw_only=True)
class TransformerTraining(SampledTraining):
    """How to train a Transformer."""

    batchsize: int = 64
    """Samples in a batch."""

    @property
    def how(self) -> Recipe:
        """The recipe: how the optimizer moves the parameters."""
        return TRANSFORMER


@dataclass(frozen=True, kw_only=True)
class OwnAnswerTraining(SampledTraining):
    """How to train a model of one's own that answers with numbers."""

    vary_len: bool = False
    """Train over all lengths up to max_len, with a mask."""

    @property
    def how(self) -> Recipe:
        """The recipe: how the optimizer moves the parameters."""
        return OWN


@dataclass(frozen=True, kw_only=True)
class OwnSequenceTraining(TransformerTraining):
    """How to train a model of one's own that answers with text."""

    @property
    def how(self) -> Recipe:
        """The recipe: how the optimizer moves the parameters."""
        return OWN


@dataclass(frozen=True, kw_only=True)
class TranslationTraining(TrainingConfig):
    """How to train on parallel text."""

    tokens: int = 2048
    """Tokens in a batch, padding included, of source or target, whichever has more."""
    batchsize: int = 0
    """Pairs in a batch, at most; 0: as many as its tokens hold."""
    accumulate: int = 1
    """Batches whose gradients are summed for one step."""
    schedule: Decay = "one_cycle"
    """How the learning rate falls after its rise: to zero at the last step, as a cosine, or as the inverse
    square root of the step (inverse_sqrt)."""
    warmup: float = 0.1
    """Share of the steps over which the learning rate rises (0 to below 1)."""
    label_smoothing: float = 0.1
    """Share of the target distribution that is spread over the whole vocabulary (0 to below 1)."""
    merge_dropout: float = 0.0
    """Share of BPE's merges that are passed over each time a word is met in training (0 to below 1)."""
    r_drop: float = 0.0
    """What it costs that two passes over a batch, which drop differently, disagree (alpha of R-Drop, Liang et al.
    2021). Above 0 a step does twice the work."""
    guide_weight: float = 0.05
    """What it costs, with --guide, that the guided head attends elsewhere than it is to."""
    average: float = 0.999
    """Decay of the moving average of the parameters, which is what is validated and kept; 0: the parameters as
    they are."""
    clip: float = 1.0
    """Largest norm of the gradient."""
    precision: Precision = "auto"
    """Matrix products in bfloat16 or float32. auto: bfloat16 where the processor multiplies it natively."""
    validate_every: int = 500
    """Steps between two validations, each of which translates the validation text."""
    patience: int = 0
    """Stop when this many validations have not found a better BLEU; 0: never."""
    compile: bool = False
    """Compile the layers of a Transformer first (torch.compile), which takes a minute or two: for a GPU. On a CPU
    steps are slower than without (docs/benchmarks.md)."""
    sharded: bool = False
    """Under torchrun: split parameters, gradients and moments between the processes (FSDP)."""
    tensorboard: bool = False
    """Write metrics for TensorBoard too, into the run's folder (needs the extra track)."""

    def __post_init__(self) -> None:
        """Raise `InputError` where a value is out of range."""
        super().__post_init__()
        check_range("tokens", self.tokens, 1, 10**8)
        check_range("batchsize", self.batchsize, 0, 10**6)
        check_range("accumulate", self.accumulate, 1, 10**4)
        check_range("validate_every", self.validate_every, 1, 10**9)
        check_range("patience", self.patience, 0, 10**6)
        for name in ("warmup", "label_smoothing", "merge_dropout", "average"):
            check_share(name, getattr(self, name), below=True)
        if not 0 <= self.r_drop <= 1000:
            raise InputError(f"r_drop {self.r_drop} is out of range: choose from 0 to 1000")
        if not 0 <= self.guide_weight <= 1000:
            raise InputError(f"guide_weight {self.guide_weight} is out of range: choose from 0 to 1000")
        if not self.clip > 0:
            raise InputError(f"clip {self.clip} is out of range: a number above 0")
        if self.sharded and self.snapshots:
            raise InputError("snapshots are of whole models: leave them out with sharded")

    @property
    def how(self) -> Recipe:
        """The recipe: how the optimizer moves the parameters."""
        return dataclasses.replace(TRANSFORMER, warmup=self.warmup, clip=self.clip, decay=self.schedule)
