"""Configuration of a run: one frozen dataclass with all options of a task, its model and its training.

>>> config = make_config("signal2", {"heads": 8})
>>> config.options.heads, config.options.steps
(8, 2000)

The class of the options has the fields of the task's config, of the model's config and of `TrainingConfig`, with the
defaults of the task. The names of all fields differ, so that each is one flag, and task, model and training read what
they need from the same object. A config is created from flags (`make_config`, `changed_config`) or from a stored run
(`config_from_json`). The type of every value is checked, and unknown names are errors.

Every run has all options of `TrainingConfig`, so that the training loop reads them without asking for the model. An
option that is not a flag of the model (`FLAGS`) keeps its value there, which has no effect. The docstring after a field
is its `--help`.

To add a model, add its file in `regard.models`, a line in `MODELS`, and, if it has own training flags, one in `FLAGS`.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    Self,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from typing_extensions import TypeVar

from regard.arguments import Limits, check_fields, check_value, public
from regard.attention.mechanism import Mechanism, custom_parts
from regard.data.parallel import TextDigest
from regard.errors import InputError, unknown_choice
from regard.models.base import AnswerModel, LanguageModel, ModelConfig, Seq2Seq, TaskModel, check_replaced
from regard.plugins import PluginError, import_plugin
from regard.tasks.all_tasks import TASKS, find_task
from regard.tasks.base import AnyTask
from regard.training.trust_code import code_digests

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

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

    figure: str  # bleu, chrf, loss or perplexity
    text: str  # Name of the validation text; empty for the text of `--valid`

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


RECIPES = {
    # Reliably learns the primer's tasks in the primer's number of training steps. The learning rate of the output
    # layer is 8 times as high, because its weights must grow most. Without this factor, or with the usual betas
    # of Adam, exact match on Difference is below 99 % for some of 10 seeds (docs/explanation/results.md).
    "regard": Recipe(lr=0.05, encoder_lr=0.005, output_lr=8.0, betas=(0.95, 0.98), warmup=0.2, clip=None),
    # The primer's.
    "seed": Recipe(lr=0.01, encoder_lr=0.001, output_lr=1.0, betas=(0.9, 0.999), warmup=None, clip=None),
    "recurrent": Recipe(lr=0.005, encoder_lr=0.005, output_lr=1.0, betas=(0.9, 0.98), warmup=0.1, clip=1.0),
}
"""Recipes of the query model (regard and seed) and of the recurrent models."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Training options of every model."""

    steps: Annotated[int, Limits(1, 10**9)] = 2000
    """Number of training steps. Each step trains on one batch."""
    lr: Annotated[float, Limits(0, math.inf, "both")] | None = None
    """Learning rate: the peak of the schedule, or the constant rate. None: that of the model's recipe."""
    seed: Annotated[int, Limits(0, 2**32 - 1)] = 0
    """Random seed of the initial parameters and of the samples."""
    batchsize: Annotated[int, Limits(0, 10**6)] = 1
    """Number of samples in a batch."""
    tokens: Annotated[int, Limits(0, 10**8)] = 0
    """Number of tokens in a batch, including padding: the larger of the numbers on the source and target sides."""
    accumulate: Annotated[int, Limits(1, 10**4)] = 1
    """Number of batches whose gradients are summed for one training step."""
    snapshots: Annotated[int, Limits(0, 10_000)] = 0
    """Number of snapshots: copies of the parameters from step 0 to the last step, denser at the beginning.
    Snapshots show how attention forms. 0: no snapshots."""
    freeze: tuple[str, ...] = ()
    """Parts of the model whose parameters are not trained, such as embedding, encoder, decoder, a layer (encoder.0) or
    a part of a layer (decoder.1.cross). Use this option for a run that starts from the parameters of another run."""
    recipe: Literal["regard", "seed"] = "regard"
    """regard: Adam with warm-up, cosine decay and a faster output layer. seed: the primer's Adam at a constant rate."""
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
    """Dtype of matrix products: bfloat16, float16 or float32. auto: the faster of bfloat16 and float32, measured once
    for each machine. float16 is for GPUs without bfloat16; it scales the loss (Micikevicius et al. 2018)."""
    validate_every: Annotated[int, Limits(0, 10**9)] = 0
    """Number of training steps between two validations, which measure the loss of a language model on samples that
    are not in the training data; 0: none."""
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
    watch: Annotated[int, Limits(0, 10**9)] = 0
    """Number of training steps between two measurements of the attention, which `regard show RUN/watch` shows, also
    during the training; 0: none. See docs/how-to/watch-a-training.md."""
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
        if self.sharded and (self.snapshots or self.keep or self.watch):
            flag = "snapshots" if self.snapshots else "keep" if self.keep else "watch"
            need, way = ("need", "give --snapshots 0 with") if self.snapshots else ("needs", f"leave out --{flag} or")
            raise InputError(f"{flag} {need} the whole model in one process: {way} --sharded")
        if self.sharded and self.precision == "float16":  # each process sees only a part of the gradients
            raise InputError("precision float16 does not work with sharded: choose bfloat16, or leave out --sharded")

    @property
    def optimization(self) -> Recipe:
        if self.use in ("query", "pooling", "recurrent"):
            return RECIPES[self.recipe if self.use == "query" else "recurrent"]
        lr = 0.001 if self.use == "tokens" else 0.002
        return Recipe(
            lr=lr,
            encoder_lr=lr,
            output_lr=1.0,
            betas=(0.9, self.beta2),
            warmup=self.warmup,
            clip=self.clip,
            decay=self.schedule,
            last=self.last_lr,
            weight_decay=self.weight_decay,
        )

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


COMMON = ("steps", "lr", "seed", "snapshots", "freeze", "watch")  # Training flags of every model
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

TaskPart = TypeVar("TaskPart", covariant=True, bound="DataclassInstance", default="DataclassInstance")
ModelPart = TypeVar("ModelPart", covariant=True, bound=ModelConfig, default=ModelConfig)
Config = TypeVar("Config", bound="RunConfig")
RunType = TypeVar("RunType", covariant=True, default=Any)

MODELS = {
    "query": "query:QueryModel",
    "pooling": "pooling:PoolingModel",
    "recurrent": "recurrent:RecurrentSeq2Seq",
    "transformer": "transformer:Transformer",
    "decoder": "decoder_only:DecoderOnly",
}
"""Module in `regard.models` and class of every model. A task's default is the first that fits, or its own."""
ANSWERS = {"query": "numbers", "pooling": "numbers", "recurrent": "text", "transformer": "text", "decoder": "tokens"}
"""Form of the answers of every model, without its import, which would slow down each command."""
TINY = {"hidden": 128, "heads": 4, "inner": 256, "enc_layers": 4, "dec_layers": 4, "dropout": 0.2}
SIX_LAYERS = {"enc_layers": 6, "dec_layers": 6, "steps": 12_000}
PRESETS: dict[str, dict[str, object]] = {
    # The best known model for 29,000 pairs and 20 minutes on one core (docs/explanation/results.md lists trials).
    "tiny": {**TINY, "positions": "rotary", "steps": 4000, "lr": 0.003},
    # The best known model for 29,000 pairs and two hours on one core. R-Drop doubles the cost of a step.
    "tiny-r-drop": {**TINY, "positions": "rotary", "steps": 7000, "lr": 0.003, "r_drop": 3.0},
    # Of the size of tiny, with the type of layers that `regard export --to huggingface` requires.
    "marian": {**TINY, "pre_norm": False, "dropout": 0.3, "steps": 12_000, "lr": 0.001},
    "small": {**TINY, "hidden": 256, "inner": 1024, "dropout": 0.3, "steps": 12_000, "lr": 0.002},
    # The base and the big model of Vaswani et al. 2017, table 3.
    "base": {**SIX_LAYERS, "hidden": 512, "heads": 8, "inner": 2048, "dropout": 0.1, "lr": 0.001},
    "big": {**SIX_LAYERS, "hidden": 1024, "heads": 16, "inner": 4096, "dropout": 0.3, "lr": 0.0005},
}
"""Sizes of a Transformer for translation (`--preset`), as changed defaults; tiny is the default."""


@dataclass(frozen=True, kw_only=True)
class Options(Generic[RunType]):
    """Base class of the options of a run. `RunType` is the class of the run that `regard.train` returns."""

    on: ClassVar[str] = ""
    """Name of the task, or absolute path of the Python file that defines it."""
    kind: ClassVar[str] = ""
    """Name of the model, or module:Class."""
    part_classes: ClassVar[dict[str, type]] = {}
    """Config classes of the task and the model, and `TrainingConfig`."""

    def __post_init__(self) -> None:
        """Convert all values to the types of their fields. Raises `InputError` for other types, for a value out
        of range, and for a training option that the model does not have."""
        hints, flags = get_type_hints(type(self)), self.flag_names()
        names = {option.name: option.default for option in dataclasses.fields(self)}
        for name, default in names.items():
            object.__setattr__(self, name, _convert_value(name, getattr(self, name), hints[name]))
            if name not in flags and getattr(self, name) != default:
                raise unknown_choice("flag", name, flags)
        for part in self.part_classes.values():
            if check := getattr(part, "__post_init__", None):
                check(self)
        options: Any = self
        if options.mechanism.position and options.positions == names.get("positions"):
            # A mechanism with positions replaces those of a preset.
            object.__setattr__(self, "positions", getattr(self.part_classes["model"], "positions", "none"))

    def __eq__(self, other: object) -> bool:
        """Return whether two configs have the same task, model and values, whatever their defaults."""
        if not isinstance(other, Options) or self.on != other.on:
            return False
        return self.run_config().flags() == other.run_config().flags()

    def __hash__(self) -> int:
        return hash((self.on, self.kind))

    @classmethod
    def flag_names(cls, part: str | None = None) -> list[str]:
        """Return the names of all flags, or of those of the task, the model or the training."""
        training = [*dict.fromkeys((*COMMON, *FLAGS[cls.part_classes["training"].use]))]  # type: ignore[attr-defined]
        names = {
            name: [option.name for option in dataclasses.fields(part_class)] if name != "training" else training
            for name, part_class in cls.part_classes.items()
        }
        return [name for name_of_part in ([part] if part else names) for name in names[name_of_part]]

    def run_config(self) -> "RunConfig[Any, Any]":
        return RunConfig(on=self.on, kind=self.kind, options=self)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Earlier run whose parameters initialize a run."""

    run: str
    """Absolute path of the folder of the earlier run."""
    step: int
    """Number of training steps of the earlier run at the start."""
    weights: str
    """SHA-256 digest of model.safetensors of the earlier run at the start."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Learning-rate schedule of a part of a training run."""

    first: int
    """Number of finished training steps at its start."""
    steps: int
    """Number of finished training steps at its end."""
    lr: float
    """Peak learning rate."""

    def __str__(self) -> str:
        return f"steps {self.first:,} to {self.steps:,} with learning rate {self.lr:g}"


@public
@dataclass(frozen=True, kw_only=True)
class RunConfig(Generic[TaskPart, ModelPart]):
    """All options that determine a run, and what is recorded of its text and code. Every run stores it."""

    on: str
    """Name of the task, or absolute path of the Python file that defines it."""
    kind: str
    """Name of the model, or module:Class."""
    options: Any
    """Options of the task, the model and the training: an instance of `options_class`."""
    tokenizer: str | None = None
    """Digest of the vocabularies that were learned from text; None without such vocabularies."""
    bleu_tokenizer: str | None = None
    """sacrebleu tokenizer for BLEU in validation and tests; None without validation."""
    kept_heads: dict[str, list[int]] = field(default_factory=dict)
    """Heads that remain after pruning, in ascending order, by layer."""
    origin: Origin | None = None
    """Earlier run that provides the initial parameters and the vocabularies; None for random initialization."""
    text: dict[str, list[TextDigest]] = field(default_factory=dict)
    """Digests of the text files at the start of training, by flag. Empty for tasks without text."""
    initial: str | None = None
    """SHA-256 digest of the parameters before the first step; None until training begins."""
    schedules: list[Schedule] = field(default_factory=list)
    """All learning-rate schedules of a run that was resumed with other `steps` or another `lr`, oldest first.
    Empty for a run with a single schedule. An earlier schedule may have ended before its last step."""
    averaged: list[int] = field(default_factory=list)
    """Steps of the kept models whose mean is the model; empty for other models."""
    code: dict[str, str] = field(default_factory=dict)
    """Digests of the custom code at the start of training, by description (`trust_code.code_digests`)."""
    measured: dict[str, str] = field(default_factory=dict)
    """Measured choices at the start of training that affect the losses, by name (`regard.machine`)."""

    @property
    def task(self) -> TaskPart:
        """The options, as the task sees them."""
        return cast(TaskPart, self.options)

    @property
    def model(self) -> ModelPart:
        """The options, as the model sees them."""
        return cast(ModelPart, self.options)

    @property
    def training(self) -> TrainingConfig:
        """The options, as the training sees them."""
        return cast(TrainingConfig, self.options)

    @property
    def name(self) -> str:
        """Name of the task, and of the folder of the run."""
        return self.task_class.name

    @property
    def task_class(self) -> type[AnyTask]:
        """Class of the task."""
        return find_task(self.on)

    @property
    def model_class(self) -> type[TaskModel]:
        return find_model(self.kind)

    @property
    def first_step(self) -> int:
        """Number of finished training steps at the start of the learning-rate schedule."""
        return self.schedules[-1].first if self.schedules else 0

    @property
    def history(self) -> str:
        """Description of the earlier run, of several schedules and of averaging; otherwise empty."""
        parts = [f"started from {self.origin.run} at step {self.origin.step:,}"] if self.origin else []
        parts += map(str, self.schedules)
        if self.averaged:
            parts.append(f"mean of the models after {', '.join(map(str, self.averaged))} steps")
        return "; ".join(parts)

    def flags(self) -> dict[str, Any]:
        """Return all flags by name, including `model` (the name of the model)."""
        return {"model": self.kind, **{name: getattr(self.options, name) for name in self.options.flag_names()}}

    def json(self) -> dict[str, Any]:
        """Return the config as plain data, in the form of config.json."""
        content = dataclasses.asdict(dataclasses.replace(self, options=None))
        return {**content, "options": {name: value for name, value in self.flags().items() if name != "model"}}

    @property
    def custom_parts(self) -> list[str]:
        """Descriptions of the parts of the run that are custom code."""
        parts = {"score": self.model.score, "positions": self.model.positions, "layer": self.model.layer}
        return [
            *([f"task file {self.on!r}"] if self.on not in TASKS else []),
            *([f"model {self.kind!r}"] if ":" in self.kind else []),
            *(f"{part} {name!r}" for part, name in parts.items() if ":" in name),
            *(f"attention part {name!r}" for name in custom_parts(self.model.attention)),
        ]

    def resolved(self) -> Self:
        """Return the config of a new run: the learning rate of the recipe as default, and digests of its code."""
        code = code_digests(self.json()) if self.custom_parts else {}
        options = self.options
        if options.lr is None:
            options = dataclasses.replace(options, lr=self.training.optimization.default_lr(self.model))
        return dataclasses.replace(self, options=options, code=code)


@public
def make_config(task: str, flags: Mapping[str, object] | None = None) -> RunConfig:
    """Return the config of a task: its defaults, overridden by `flags` (field name to value).

    The flag `model` is the name of the model, and `preset` is the size of a Transformer for translation. Raises
    `InputError` for an unknown flag, a value with an incorrect type or out of range, or a model that is
    incompatible with the task.

    >>> make_config("counting", {"model": "pooling", "steps": 100}).kind
    'pooling'
    """
    values = dict(flags or {})
    model, preset = values.pop("model", None), values.pop("preset", None)
    options = options_class(task, model, preset)
    check_names(values, ["model", *options.flag_names()])
    if isinstance(attention := values.get("attention"), str):
        check_replaced(Mechanism.parse(attention), values)
    return checked(options(**values).run_config())


def changed_config(config: Config, flags: Mapping[str, object]) -> Config:
    """Return a copy of a config with changed flags. Raises the same errors as `make_config`.

    >>> changed_config(make_config("counting"), {"steps": 10}).training.steps
    10
    """
    check_names(flags, config.options.flag_names())
    return dataclasses.replace(config, options=dataclasses.replace(config.options, **flags))


def options_class(task: str, model: object = None, preset: object = None) -> type[Any]:
    """Return the dataclass of all options of a task and a model, with the defaults of the task and the preset.

    Raises `InputError` for an unknown task, model or preset, and for a model that does not fit the task.
    """
    task_class = find_task(task)
    names = models_for(task_class)
    kind = task_class.defaults.get("model", names[0]) if model is None else model
    if not isinstance(kind, str):
        raise InputError(f"model {kind!r} is not a name: choose {' or '.join(names)}, or module:Class")
    model_class = find_model(kind)
    if model_class.answers != task_class.answers:
        raise InputError(f"model {kind!r} does not fit task {task_class.name}: choose {' or '.join(names)}")
    defaults: dict[str, object] = {**task_class.defaults}
    if has_presets(task_class, kind) or preset is not None:
        name = "tiny" if preset is None else preset
        if not has_presets(task_class, kind) or not isinstance(name, str) or name not in PRESETS:
            raise InputError(
                f"preset {preset!r} does not fit model {kind} on task {task_class.name}: choose "
                f"{', '.join(PRESETS)} for a transformer on translation"
            )
        defaults |= PRESETS[name]
    on = str(Path(task).resolve()) if task.endswith(".py") else task
    use = "translation" if not task_class.draws and task_class.answers == "text" else kind
    if use not in FLAGS:  # of a language model or a custom model
        use = model_class.answers
    return combine(on, kind, task_class.config_class, model_class.config_class, use, tuple(defaults.items()))


def _combine(
    on: str, kind: str, task: type, model: type, use: str, defaults: tuple[tuple[str, object], ...] = ()
) -> type[Any]:
    """Return a dataclass with the fields of the configs of a task and of a model and of `TrainingConfig`.

    `use`: row of `FLAGS`, whose defaults apply unless `defaults` (names and values) has others.
    """
    training = type("Training", (TrainingConfig,), {"use": use})
    parts = {"task": task, "model": model, "training": training}
    hints = {name: hint for part in parts.values() for name, hint in get_type_hints(part, include_extras=True).items()}
    fields = {option.name for part in parts.values() for option in dataclasses.fields(part)}
    values = {**FLAGS[use], **dict(defaults)}
    changed = [(name, hints[name], field(default=value)) for name, value in values.items() if name in fields]
    namespace = {"on": on, "kind": kind, "part_classes": parts, "use": use}
    options = {"frozen": True, "kw_only": True, "eq": False}  # `Options` compares
    return dataclasses.make_dataclass(
        class_name(on), changed, bases=(Options, *parts.values()), namespace=namespace, **options
    )


combine: Callable[..., type[Any]] = functools.cache(_combine)  # mypy does not treat classes as hashable


def class_name(task: str) -> str:
    """Return the name of the config class of a task, such as `SelectiveCopyConfig`."""
    return "".join(word.capitalize() for word in Path(task).stem.split("-")) + "Config"


def checked(config: RunConfig) -> RunConfig:
    """Return a config. Raises `InputError` for options that exclude each other, or have no effect together."""
    training, task = config.training, config.options
    if training.r_drop and not config.model.dropout:
        raise InputError("r_drop compares two passes with different dropout: also give --dropout")
    if training.compile and not config.model_class.compilable:
        raise InputError(f"compile works only on Transformer layers: leave it out for model {config.kind}")
    if training.use != "translation":
        return config
    criterion, validated = find_criterion(training.criterion), task.valid or task.hub
    if criterion.text:
        criterion.check_text(task.extra_paths)
    if training.patience and not validated:
        raise InputError(
            f"patience {training.patience} counts validations, but there is no validation text: give --valid, or "
            "--patience 0"
        )
    if training.merge_dropout and task.tokenizer in ("unigram", "words", "characters"):
        raise InputError(
            f"merge_dropout skips merges, which the tokenizer {task.tokenizer} does not have: use it with "
            "--tokenizer bpe"
        )
    if training.merge_dropout and task.guide is not None:
        raise InputError("guide aligns tokens, which merge_dropout changes: leave out one of these flags")
    if task.languages and task.hub is None:
        raise InputError("languages names columns of a data set: also give --hub, or leave out languages")
    return config


def find_model(name: str) -> type[TaskModel]:
    """Return the class for the name of a model, or the custom model `module:Class`.

    Raises `InputError` for an unknown name, or a class that cannot be imported or has an invalid base class.

    >>> find_model("query").__name__
    'QueryModel'
    """
    if name in MODELS:
        module, _, model = MODELS[name].partition(":")
        found: type[TaskModel] = getattr(import_module(f"regard.models.{module}"), model)
        return found
    if ":" not in name:
        raise unknown_choice("model", name, MODELS, other="module:Class")
    custom = import_plugin("model", name)
    config_class = getattr(custom, "config_class", None)
    if (
        isinstance(custom, type)
        and issubclass(custom, AnswerModel | Seq2Seq | LanguageModel)
        and isinstance(config_class, type)
        and issubclass(config_class, ModelConfig)
    ):
        return custom
    raise PluginError(
        f"model {name!r} is not a class derived from AnswerModel, Seq2Seq or LanguageModel, with a "
        f"config_class derived from regard.models.base.ModelConfig"
    )


def models_for(task: type[AnyTask]) -> list[str]:
    return [name for name, answers in ANSWERS.items() if answers == task.answers]


def has_presets(task: type[AnyTask], model: str) -> bool:
    return model == "transformer" and not task.draws


def check_names(flags: Mapping[str, object], known: list[str]) -> None:
    """Raise `InputError` for a flag that is not known."""
    for name in flags:
        if name not in known:
            raise unknown_choice("flag", name, known)


def _convert_value(name: str, value: object, hint: Any) -> Any:
    """Return a value converted to the type of its field: a path to text, and a single value to a tuple."""
    several = isinstance(value, list | tuple)
    values = list(value) if isinstance(value, list | tuple) else [value]
    items = [str(item) if isinstance(item, Path) else item for item in values]
    try:
        for item in items:
            str(item).encode()
    except UnicodeEncodeError:
        raise InputError(f"{name} {value!r} contains an unpaired surrogate: give valid Unicode text") from None
    if get_origin(hint) is tuple and not several:
        return (check_value(name, items[0], get_args(hint)[0]),)
    return check_value(name, items if several else items[0], hint)


# Options that only have an effect together with another option, such as `guide_weight` with `guide`.

Flags = Mapping[str, Any]


def _learns_to_size(flags: Flags) -> bool:
    learned = ("bpe", "unigram", "words", "characters") if "train" in flags else ("bpe", "unigram")
    return flags.get("tokenizer", "bpe") in learned


def _validates(flags: Flags) -> bool:
    return bool(flags["valid"] or flags["hub"]) if "hub" in flags else flags.get("valid_share", 1) > 0


def _can_stop(flags: Flags) -> bool:
    # Patience counts from the second validation on, and one at the last step ends nothing.
    stops = flags["patience"] and _validates(flags)  # without validation, `checked` refuses patience
    return not stops or (flags["steps"] - 1) // flags["validate_every"] > flags["patience"]


DEPENDENT: dict[str, tuple[Callable[[Flags], bool], str]] = {
    "activation": (lambda flags: flags.get("feed_forward", True), "with --no-feed_forward"),
    "bleu_tokenize": (lambda flags: bool(flags["test"]) or _validates(flags), "without --valid or --test"),
    "context": (lambda flags: flags["score"] != "none", "with --score none"),
    "criterion": (lambda flags: "/" in flags["criterion"] or _validates(flags), "without --valid"),
    "guide": (lambda flags: flags["guide_weight"] > 0, "with --guide_weight 0"),
    "guide_weight": (lambda flags: flags["guide"] is not None, "without --guide"),
    "heads": (lambda flags: flags.get("multihead", True), "without --multihead"),
    "inner": (lambda flags: flags.get("feed_forward", True), "with --no-feed_forward"),
    "last_lr": (lambda flags: flags["schedule"] == "one_cycle", "without --schedule one_cycle"),
    "layer": (lambda flags: flags["enc_layers"] > 0, "without --enc_layers 1 or more"),
    "lenient": (lambda flags: flags["hub"] is None or bool(flags["extra_valid"]), "with --hub"),
    "norm_epsilon": (lambda flags: flags["norm"] != "none", "with --norm none"),
    "patience": (_can_stop, "without more --steps or a smaller --validate_every"),
    "positions": (lambda flags: flags.get("pos_enc", True), "without --pos_enc"),
    "query": (lambda flags: flags["score"] != "none", "with --score none"),
    "rotary_base": (lambda flags: flags["positions"] == "rotary", "without --positions rotary"),
    "score": (lambda flags: flags.get("pooling", "attention") == "attention", "without --pooling attention"),
    "snapshots": (lambda flags: flags["snapshots"] <= flags["steps"] + 1, "without more --steps"),
    "test": (lambda flags: flags["hub"] is None, "with --hub"),
    "tied": (
        lambda flags: "concatenated" not in (flags["positions"], *flags["attention"].split(",")),
        "with concatenated positions",
    ),
    "valid": (lambda flags: flags["hub"] is None, "with --hub"),
    "validate_every": (
        lambda flags: _validates(flags) or flags.get("keep", 0) > 0,
        "without validation text or --keep",
    ),
    "vocab_size": (_learns_to_size, "without a --tokenizer such as bpe"),
    "weights": (lambda flags: len(flags["weights"]) != 1, "without a second text of --train"),
}
"""Options, whether each of them has an effect together with all options of a run, and when it has none."""


def check_dependent(given: Flags, flags: Flags) -> None:
    """Raise `InputError` for one of the `given` options that has no effect together with all options `flags`.

    >>> check_dependent({"heads": 2}, {"heads": 2, "multihead": True})
    """
    for name, (has_effect, otherwise) in DEPENDENT.items():
        if (value := given.get(name)) is not None and not has_effect(flags):
            shown = " ".join(map(str, value)) if isinstance(value, tuple) else value
            preposition, _, other = otherwise.partition(" ")
            way_out = f"{'give' if preposition == 'without' else 'leave out'} {other}"
            raise InputError(f"{name} {shown} has no effect {otherwise}: leave {name} out, or {way_out}")
