"""Everything that decides a training, as frozen dataclasses: the task's size, the model, the training.

The command line is generated from these classes, so the docstring under a field is its `--help`.
"""

import dataclasses
import math
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from regard.errors import InputError, check_range, check_share
from regard.models import PoolingConfig, QueryModelConfig, RecurrentConfig, TransformerConfig
from regard.tasks import AnyTask, SequenceTask, Translation, TranslationConfig, find_task
from regard.training.recipes import RECIPES, RECURRENT, TRANSFORMER, Decay, Recipe

Precision = Literal["auto", "bfloat16", "float32"]


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How to train any model."""

    steps: int = 2000
    """Training steps, one batch each."""
    lr: float | None = None
    """Learning rate: the peak of the schedule, or its constant. None: the recipe's own, for recipe regard 0.05,
    with encoder layers 0.005; for recipe seed 0.01, with encoder layers 0.001; for recurrent models 0.005, for
    Transformers 0.002."""
    seed: int = 0
    """Random seed of initialisation and samples (0 or more)."""
    snapshots: int = 0
    """Small copies of the parameters to keep, from step 0 to the last, closer together at first, for watching how
    attention forms; 0: none."""

    def __post_init__(self) -> None:
        """Raise `InputError` where a value is out of range."""
        check_range("steps", self.steps, 1, 10**9)
        check_range("snapshots", self.snapshots, 0, 10_000)
        if self.snapshots == 1:
            raise InputError("snapshots 1 shows nothing form: keep at least 2, or 0 for none")
        check_range("seed", self.seed, 0, 2**32 - 1)
        if self.lr is not None and not 0 < self.lr < float("inf"):
            raise InputError(f"lr {self.lr} is out of range: a finite number above 0")

    @property
    def how(self) -> Recipe:
        """The recipe: how parameters start, and how the optimizer moves them."""
        return RECURRENT

    @property
    def snapshot_steps(self) -> list[int]:
        """Steps after which a snapshot is kept: 0, and then each the same factor after the one before."""
        if not self.snapshots:
            return []
        between = self.snapshots - 2
        return sorted({0, self.steps, *(round(self.steps ** (each / between)) for each in range(between))})


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
    """regard: Adam with warm-up, cosine decay, clipped gradients and a faster output layer, from small random
    queries. seed: Adam at a constant rate, from zero queries and positions, as the primer did it."""
    vary_len: bool = False
    """Train over all lengths from 1 to max_len, with a mask; the model gains one learned step to rest on."""

    def __post_init__(self) -> None:
        """Raise `InputError` where a value is out of range."""
        super().__post_init__()
        if self.recipe not in RECIPES:
            raise InputError(f"recipe {self.recipe!r} is unknown: choose {' or '.join(RECIPES)}")

    @property
    def how(self) -> Recipe:
        """The recipe: how parameters start, and how the optimizer moves them."""
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
        """The recipe: how parameters start, and how the optimizer moves them."""
        return TRANSFORMER


@dataclass(frozen=True, kw_only=True)
class TranslationTraining(TrainingConfig):
    """How to train on parallel text."""

    tokens: int = 2048
    """Tokens in a batch, padding included, of source or target, whichever has more."""
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
    """Compile the model first (torch.compile): slow to start."""
    sharded: bool = False
    """Under torchrun: split parameters, gradients and moments between the processes (FSDP)."""
    tensorboard: bool = False
    """Write metrics for TensorBoard too, into the run's folder (needs the extra track)."""

    def __post_init__(self) -> None:
        """Raise `InputError` where a value is out of range."""
        super().__post_init__()
        check_range("tokens", self.tokens, 1, 10**8)
        check_range("accumulate", self.accumulate, 1, 10**4)
        check_range("validate_every", self.validate_every, 1, 10**9)
        check_range("patience", self.patience, 0, 10**6)
        for name in ("warmup", "label_smoothing", "merge_dropout", "average"):
            check_share(name, getattr(self, name), below=True)
        if not 0 <= self.r_drop < math.inf:
            raise InputError(f"r_drop {self.r_drop} is out of range: a number from 0")
        if not self.clip > 0:
            raise InputError(f"clip {self.clip} is out of range: a number above 0")
        if self.sharded and self.snapshots:
            raise InputError("snapshots are of whole models: leave them out with sharded")

    @property
    def how(self) -> Recipe:
        """The recipe: how parameters start, and how the optimizer moves them."""
        return dataclasses.replace(TRANSFORMER, warmup=self.warmup, clip=self.clip, decay=self.schedule)


MODELS: dict[str, tuple[type, type[TrainingConfig]]] = {
    "query": (QueryModelConfig, QueryTraining),
    "pooling": (PoolingConfig, PoolingTraining),
    "recurrent": (RecurrentConfig, RecurrentTraining),
    "transformer": (TransformerConfig, TransformerTraining),
}
"""Each model by name, with the dataclasses of its parts and of its training."""
FOR_SEQUENCES = ("recurrent", "transformer")
"""Models from sequence to sequence; the others answer with a number for each output step."""


def models_for(task: type[AnyTask]) -> list[str]:
    """Return the names of the models that can be trained on a task."""
    return [name for name in MODELS if (name in FOR_SEQUENCES) == issubclass(task, SequenceTask)]


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """All of a run: stored with it, so that nothing needs to be said twice."""

    task: str
    """Name of the task, or absolute path of the Python file that defines it."""
    kind: str
    """Name of the model."""
    size: Any
    """The task's size, a dataclass of its own."""
    model: Any
    """The parts of the model: the first dataclass of its name in `MODELS`."""
    training: Any
    """The training: the second one."""
    tokenizer: str | None = None
    """Digest of the vocabularies that were learned from text; None where there are none."""
    kept_heads: dict[str, list[int]] = field(default_factory=dict)
    """By layer: the heads that pruning has left in it, in ascending order."""

    @property
    def name(self) -> str:
        """The task's name, and that of the run's folder."""
        return find_task(self.task).name

    def flags(self) -> dict[str, Any]:
        """Return all flags, by name."""
        parts = (getattr(self, part) for part in PARTS)
        named = {each.name: getattr(part, each.name) for part in parts for each in dataclasses.fields(part)}
        return {"model": self.kind, **named}

    def resolved(self) -> "RunConfig":
        """Return the config with the recipe's own learning rate where none was given, and absolute paths."""
        training, size = self.training, self.size
        if training.lr is None:
            training = dataclasses.replace(training, lr=training.how.default_lr(self.model))
        if isinstance(size, TranslationConfig):
            texts: dict[str, Any] = {name: getattr(size, name) for name in ("train", "valid", "test")}
            absolute: dict[str, Any] = {
                name: tuple(str(Path(path).absolute()) for path in paths) for name, paths in texts.items()
            }
            size = dataclasses.replace(size, **absolute)
        return dataclasses.replace(self, training=training, size=size)


PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"hidden": 128, "heads": 4, "inner": 256, "enc_layers": 4, "dec_layers": 4, "lr": 0.003},
    "small": {"hidden": 256, "heads": 4, "inner": 1024, "enc_layers": 4, "dec_layers": 4, "lr": 0.002},
    "base": {
        "hidden": 512,
        "heads": 8,
        "inner": 2048,
        "enc_layers": 6,
        "dec_layers": 6,
        "lr": 0.001,
        "dropout": 0.1,
    },
    "big": {
        "hidden": 1024,
        "heads": 16,
        "inner": 4096,
        "enc_layers": 6,
        "dec_layers": 6,
        "lr": 0.0005,
        "dropout": 0.3,
    },
}
"""Sizes of a Transformer for translation; base and big are the paper's (Vaswani et al. 2017, table 3)."""
PARTS = ("size", "model", "training")
"""The dataclasses of a `RunConfig`; the names of their fields, which are the flags, are distinct."""


def make_config(task: str, flags: dict[str, Any] | None = None) -> RunConfig:
    """Return the config of `task` with its own defaults, changed by `flags` (field name to value).

    The flag `model` names the model, and `preset` the size of a Transformer for translation. Raises `InputError`
    for a flag that does not exist, a value of the wrong type or out of range, or a model that does not fit the
    task.
    """
    found = find_task(task)
    given = dict(flags or {})
    choices = models_for(found)
    kind = given.pop("model", found.defaults.get("model", choices[0]))
    if kind not in choices:
        raise InputError(f"model {kind!r} does not fit task {found.name}: choose {' or '.join(choices)}")
    values = {name: value for name, value in found.defaults.items() if name != "model"}
    values |= _preset(found, kind, given.pop("preset", None)) | given
    parts, known = {}, ["model"]
    for part, concept in concepts(found, kind).items():
        names = [each.name for each in dataclasses.fields(concept)]
        known += names
        parts[part] = _structure(concept, {name: values.pop(name) for name in names if name in values})
    for name in values:
        if name in given:  # a task's default for another model does not matter
            near = get_close_matches(name, known, n=1)
            raise InputError(f"flag {name!r} is unknown: {f'did you mean {near[0]!r}?' if near else known}")
    if getattr(parts["training"], "r_drop", 0.0) and not parts["model"].dropout:
        raise InputError("r_drop compares two passes that drop differently: give dropout too")
    return RunConfig(task=str(Path(task).resolve()) if task.endswith(".py") else task, kind=kind, **parts)


def _preset(task: type[AnyTask], kind: str, name: str | None) -> dict[str, Any]:
    if name is None:
        return PRESETS["tiny"] if kind == "transformer" and issubclass(task, Translation) else {}
    if name not in PRESETS or kind != "transformer" or not issubclass(task, Translation):
        raise InputError(
            f"preset {name!r} does not fit model {kind} on task {task.name}: choose {', '.join(PRESETS)} for a "
            f"transformer on translation"
        )
    return PRESETS[name]


def concepts(task: type[AnyTask], kind: str) -> dict[str, type]:
    """Return the dataclass of each part of a config."""
    model, training = MODELS[kind]
    training = TranslationTraining if issubclass(task, Translation) else training
    return dict(zip(PARTS, (task.size_class, model, training), strict=True))


def config_from_json(stored: Any) -> RunConfig:
    """Rebuild a config from what `dataclasses.asdict` made of it; raises `InputError` where it is off."""
    if (
        not isinstance(stored, dict)
        or set(stored) != {"task", "kind", "tokenizer", "kept_heads", *PARTS}
        or not isinstance(stored["task"], str)
        or stored["kind"] not in MODELS
    ):
        raise InputError(f"config needs exactly task, kind, tokenizer, kept_heads, {', '.join(PARTS)}")
    parts = {}
    for part, concept in concepts(find_task(stored["task"]), stored["kind"]).items():
        names = {each.name for each in dataclasses.fields(concept)}
        if not isinstance(stored[part], dict) or set(stored[part]) != names:
            raise InputError(f"config {part!r} needs exactly {', '.join(sorted(names))}")
        parts[part] = _structure(concept, stored[part])
    others = {name: stored[name] for name in ("task", "kind", "tokenizer", "kept_heads")}
    return RunConfig(**others, **parts)


def _structure(concept: type, values: dict[str, Any]) -> Any:
    """Make a dataclass from values whose types are checked; an int is accepted for a float."""
    hints = get_type_hints(concept)
    for name, value in values.items():
        if get_origin(hints[name]) is tuple:
            values = {**values, name: _texts(name, value)}
            continue
        allowed = _types(hints[name])
        if float in allowed:
            allowed.add(int)
        if type(value) not in allowed:
            wanted = " or ".join(sorted("None" if each is type(None) else each.__name__ for each in allowed))
            raise InputError(f"{name} {value!r} is of type {type(value).__name__}: give {wanted}")
    return concept(**values)


def _texts(name: str, value: Any) -> tuple[str, ...]:
    """Return one or several texts or paths, which JSON knows as a list, as a tuple."""
    found = [value] if isinstance(value, str | Path) else value
    if not isinstance(found, list | tuple) or not all(isinstance(each, str | Path) for each in found):
        raise InputError(f"{name} {value!r} is of type {type(value).__name__}: give one or several texts")
    return tuple(map(str, found))


def _types(hint: Any) -> set[type]:
    """Return the types of values that a hint allows: of a type, a union of types, or a choice of values."""
    if getattr(hint, "__origin__", None) is Literal:
        return {type(choice) for choice in get_args(hint)}
    return set().union(*map(_types, get_args(hint))) if get_args(hint) else {hint}
