"""Training options: steps, learning rate, batches, loss; which of them a model has; recipes of the optimizer.

The command line is generated from `TrainingConfig`: the docstring after a field is its `--help`. Every run has
all options, so that the training loop reads them without asking for the model. An option that is not a flag of
the model (`FLAGS`) keeps its value here, which has no effect.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from regard.arguments import Limits, check_fields
from regard.errors import InputError, unknown_choice
from regard.models.base import ModelConfig

# Criterion of a validation: the figure that selects the best model.

METRICS = {"bleu": "bleu", "chrf": "chrf", "loss": "valid_loss", "perplexity": "valid_perplexity"}
"""Name of each figure in metrics.jsonl, by the name of the criterion."""
TITLES = {
    "bleu": "BLEU {:.2f}",
    "chrf": "chrF {:.2f}",
    "loss": "loss {:.4f} nats per token",
    "perplexity": "perplexity {:.2f}",
}


class Criterion(NamedTuple):
    """A figure of a validation text."""

    figure: str
    """bleu, chrf, loss or perplexity."""
    text: str
    """Name of the validation text; empty for the text of `--valid`."""

    @property
    def metric(self) -> str:
        return "/".join(filter(None, [METRICS[self.figure], self.text]))

    def value(self, metrics: Mapping[str, float]) -> float:
        figure = metrics[self.metric]
        return figure if self.figure in ("bleu", "chrf") else -figure

    def describe(self, metrics: Mapping[str, float]) -> str:
        text = f" on {self.text}" if self.text else ""
        return f"{TITLES[self.figure].format(metrics[self.metric])}{text}"

    def check_text(self, names: Iterable[str]) -> None:
        """Raise `InputError` unless the text is one of the validation texts; `names`: their names."""
        if self.text not in (names := list(names)):
            others = ", ".join(filter(None, names)) or "none are given"
            raise InputError(
                f"criterion {self.figure}/{self.text} names no text of --extra_valid: {others}; give a text with "
                f"--extra_valid {self.text}=SOURCE,TARGET, or another criterion"
            )


def find_criterion(name: str) -> Criterion:
    """Return the criterion for a name such as bleu or bleu/NAME. Raises `InputError` for an unknown figure."""
    figure, slash, text = name.partition("/")
    if slash and not text:
        figure = name
    if figure not in METRICS:
        raise unknown_choice("criterion", figure, METRICS, other="FIGURE/NAME for a text of --extra_valid")
    return Criterion(figure, text)


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


def transformer_recipe(lr: float, warmup: float, clip: float, beta2: float = 0.98, **decay: Any) -> Recipe:
    """Return the recipe of Transformers, of language models and of custom models."""
    betas = 0.9, beta2  # by default those of Vaswani et al. 2017, section 5.3
    return Recipe(lr=lr, encoder_lr=lr, output_lr=1.0, betas=betas, warmup=warmup, clip=clip, **decay)


RECIPES: dict[str, Callable[[], Recipe]] = {"regard": regard_recipe, "seed": seed_recipe}
"""Recipes of the query model."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Training options of every model."""

    steps: Annotated[int, Limits(1, 10**9)] = 2000
    """Number of training steps. Each step trains on one batch."""
    lr: Annotated[float, Limits(0, math.inf, "both")] | None = None
    """Learning rate: the peak of the schedule, or the constant rate. None: 0.05 with the recipe regard (0.005
    with encoder layers); 0.01 with the recipe seed (0.001 with encoder layers); 0.005 for recurrent models;
    0.001 for language models; 0.002 for Transformers and custom models."""
    seed: Annotated[int, Limits(0, 2**32 - 1)] = 0
    """Random seed of the initial parameters and of the samples."""
    batchsize: Annotated[int, Limits(0, 10**6)] = 1
    """Number of samples in a batch. On parallel text, the largest number of pairs; 0: limited only by tokens."""
    tokens: Annotated[int, Limits(0, 10**8)] = 0
    """Number of tokens in a batch, including padding: the larger of the numbers on the source and target
    sides."""
    accumulate: Annotated[int, Limits(1, 10**4)] = 1
    """Number of batches whose gradients are summed for one training step."""
    snapshots: Annotated[int, Limits(0, 10_000)] = 0
    """Number of snapshots: copies of the parameters from step 0 to the last step, denser at the beginning.
    Snapshots show how attention forms. 0: no snapshots."""
    freeze: tuple[str, ...] = ()
    """Parts of the model whose parameters are not trained, such as embedding, encoder, decoder, a layer
    (encoder.0) or a part of a layer (decoder.1.cross). Use this option for a run that starts from the
    parameters of another run."""
    recipe: Literal["regard", "seed"] = "regard"
    """regard: Adam with warm-up, cosine decay and a faster output layer. seed: the primer's Adam at a constant
    rate."""
    vary_len: bool = False
    """Train on all lengths up to max_len, with a mask. A query model can then also attend to an additional
    learned step."""
    teacher_forcing: Annotated[float, Limits(0, 1)] = 1.0
    """Fraction of target steps that get the true previous token at the end of training. The fraction decreases
    linearly from 1. The other target steps get the prediction of the model."""
    schedule: Decay = "one_cycle"
    """Decay of the learning rate after the warm-up: a cosine (one_cycle), the inverse square root of the step
    (inverse_sqrt), or none (constant)."""
    warmup: Annotated[float, Limits(0, 1, "high")] = 0.1
    """Fraction of the training steps in which the learning rate increases."""
    last_lr: Annotated[float, Limits(0, 1)] = 0.0
    """Fraction of the peak rate that the cosine reaches at the last step."""
    label_smoothing: Annotated[float, Limits(0, 1, "high")] = 0.0
    """Fraction of the target distribution that is spread evenly over the vocabulary."""
    merge_dropout: Annotated[float, Limits(0, 1, "high")] = 0.0
    """BPE dropout: fraction of merges that are skipped at random in training."""
    r_drop: Annotated[float, Limits(0, 1000)] = 0.0
    """Weight of the R-Drop loss (alpha, Liang et al. 2021): the divergence between two passes with different
    dropout. With a weight above 0, a training step takes twice as long."""
    guide_weight: Annotated[float, Limits(0, 1000)] = 0.0
    """Weight of the alignment loss of the guided head, with --guide."""
    average: Annotated[float, Limits(0, 1, "high")] = 0.0
    """Decay of the moving average of the parameters, which is validated and saved; 0: no average."""
    beta2: Annotated[float, Limits(0, 1, "high")] = 0.98
    """Decay rate of Adam for the squared gradient."""
    weight_decay: Annotated[float, Limits(0, 1000)] = 0.0
    """Weight decay of matrices and embeddings, multiplied by the learning rate (AdamW, Loshchilov and Hutter
    2019); 0: no decay."""
    clip: Annotated[float, Limits(0, math.inf, "low")] = 1.0
    """Largest norm of the gradient."""
    precision: Precision = FLOAT32
    """Dtype of matrix products: bfloat16, float16 or float32. auto: the faster of bfloat16 and float32,
    measured once for each machine. float16 is for GPUs without bfloat16; it scales the loss (Micikevicius et al.
    2018)."""
    validate_every: Annotated[int, Limits(0, 10**9)] = 0
    """Number of training steps between two validations. Each validation translates all validation texts, or
    measures the loss of a language model on samples that are not in the training data; 0 (language models):
    none."""
    criterion: str = "bleu"
    """Figure that selects the best model: bleu or chrf (percent), loss (nats per token) or perplexity. For a
    text of --extra_valid, add its name: bleu/NAME."""
    patience: Annotated[int, Limits(0, 10**6)] = 0
    """Number of validations without a better criterion after which training stops; 0: training never stops
    early. Validations count from the first change of the criterion, so a BLEU that is still 0 stops nothing."""
    keep: Annotated[int, Limits(0, 1000)] = 0
    """Number of models that are kept for `regard average`: the best by the criterion, or without validation text
    the last ones, one for every validate_every steps. 0: none."""
    compile: bool = False
    """Compile the layers of a Transformer with torch.compile, which takes one or two minutes. On a GPU, steps
    become faster. On an Intel processor, steps become 1.14 times as fast in float32 (docs/dev/benchmarks.md)."""
    sharded: bool = False
    """Split parameters, gradients and moments between the processes of torchrun (FSDP2)."""
    tensorboard: bool = False
    """Also write metrics for TensorBoard into the folder of the run (needs the extra track)."""
    use: ClassVar[str] = "transformer"
    """Row of `FLAGS`."""

    def __post_init__(self) -> None:
        """Raise `InputError` for a value that is out of range, and for options that exclude each other."""
        check_fields(self)
        if self.use == "translation":
            Limits(1, 10**9).check("validate_every", self.validate_every)
            Limits(1, 10**8).check("tokens", self.tokens)
        else:
            Limits(1, 10**6).check("batchsize", self.batchsize)
        if self.snapshots == 1:
            raise InputError("snapshots 1 cannot show a change: choose 2 or more, or 0 for none")
        find_criterion(self.criterion)
        if self.sharded and (self.snapshots or self.keep):
            need = "snapshots need" if self.snapshots else "keep needs"
            way_out = "give --snapshots 0 with --sharded" if self.snapshots else "leave out --keep or --sharded"
            raise InputError(f"{need} the whole model in one process: {way_out}")
        if self.sharded and self.precision == "float16":  # each process sees only a part of the gradients
            raise InputError(
                "precision float16 does not work with sharded: choose bfloat16, or leave out --sharded"
            )

    @property
    def optimization(self) -> Recipe:
        if self.use == "query":
            return RECIPES[self.recipe]()
        if self.use in ("pooling", "recurrent"):
            return recurrent_recipe()
        lr = 0.001 if self.use == "tokens" else 0.002
        decay: dict[str, Any] = {"decay": self.schedule, "last": self.last_lr, "weight_decay": self.weight_decay}
        return transformer_recipe(lr, self.warmup, self.clip, self.beta2, **decay)

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


COMMON = ("steps", "lr", "seed", "snapshots", "freeze")
"""Training flags of every model."""
LONG = {
    **dict.fromkeys(("compile", "sharded", "tensorboard"), False),
    "accumulate": 1,
    "schedule": "one_cycle",
    "clip": 1.0,
    "validate_every": 500,
}
"""Further training flags on text and of language models."""
FLAGS: dict[str, dict[str, object]] = {
    "query": {"batchsize": 100, "recipe": "regard", "vary_len": False},
    "pooling": {"batchsize": 100, "vary_len": False},
    "recurrent": {"batchsize": 64, "teacher_forcing": 1.0},
    "transformer": {"batchsize": 64},
    "numbers": {"batchsize": 100, "vary_len": False},
    "text": {"batchsize": 64},
    "tokens": {
        **LONG,
        "batchsize": 64,
        "snapshots": 50,
        "warmup": 0.05,
        "last_lr": 0.0,
        "beta2": 0.98,
        "weight_decay": 0.1,
        "precision": FLOAT32,
    },
    "translation": {
        **LONG,
        "tokens": 2048,
        "batchsize": 0,
        "warmup": 0.1,
        "label_smoothing": 0.1,
        "merge_dropout": 0.0,
        "r_drop": 0.0,
        "guide_weight": 0.05,
        "average": 0.999,
        "weight_decay": 0.0,
        "precision": "auto",
        "criterion": "bleu",
        "patience": 0,
        "keep": 0,
    },
}
"""Further training flags and their defaults: of a model, of custom models by the form of their answers, of
language models (tokens), and of every model on parallel text (translation)."""
