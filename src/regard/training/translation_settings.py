"""Training options on parallel text."""

import math
from dataclasses import dataclass
from typing import Annotated

from regard.arguments import Limits
from regard.errors import InputError
from regard.tasks.translation_config import TranslationTaskConfig
from regard.training.criterion import find_criterion
from regard.training.settings import (
    Decay,
    Precision,
    Recipe,
    TrainingConfig,
    check_sharded_precision,
    transformer_recipe,
)


@dataclass(frozen=True, kw_only=True)
class TranslationTraining(TrainingConfig):
    """Training options on parallel text."""

    tokens: Annotated[int, Limits(1, 10**8)] = 2048
    """Number of tokens in a batch, including padding: the larger of the numbers on the source and target
    sides."""
    batchsize: Annotated[int, Limits(0, 10**6)] = 0
    """Largest number of pairs in a batch; 0: limited only by tokens."""
    accumulate: Annotated[int, Limits(1, 10**4)] = 1
    """Number of batches whose gradients are summed for one step."""
    schedule: Decay = "one_cycle"
    """Decay of the learning rate after the warm-up: a cosine to zero at the last step (one_cycle), the inverse
    square root of the step (inverse_sqrt), or none (constant)."""
    warmup: Annotated[float, Limits(0, 1, "high")] = 0.1
    """Fraction of the training steps in which the learning rate increases."""
    label_smoothing: Annotated[float, Limits(0, 1, "high")] = 0.1
    """Fraction of the target distribution that is spread evenly over the vocabulary (at least 0 and less than
    1)."""
    merge_dropout: Annotated[float, Limits(0, 1, "high")] = 0.0
    """BPE dropout: fraction of merges that are skipped at random in training."""
    r_drop: Annotated[float, Limits(0, 1000)] = 0.0
    """Weight of the R-Drop loss (alpha, Liang et al. 2021): the divergence between two passes with different
    dropout. With a weight above 0, a training step takes twice as long."""
    guide_weight: Annotated[float, Limits(0, 1000)] = 0.05
    """Weight of the alignment loss of the guided head, with --guide."""
    average: Annotated[float, Limits(0, 1, "high")] = 0.999
    """Decay of the moving average of the parameters, which is validated and saved; 0: no average."""
    weight_decay: Annotated[float, Limits(0, 1000)] = 0.0
    """Weight decay of matrices and embeddings, multiplied by the learning rate (AdamW, Loshchilov and Hutter
    2019); 0: no decay."""
    clip: Annotated[float, Limits(0, math.inf, "low")] = 1.0
    """Largest norm of the gradient."""
    precision: Precision = "auto"
    """Dtype of matrix products: bfloat16, float16 or float32. auto: the faster of bfloat16 and float32,
    measured once for each machine. float16 is for GPUs without bfloat16; it scales the loss (Micikevicius et al.
    2018)."""
    validate_every: Annotated[int, Limits(1, 10**9)] = 500
    """Number of training steps between two validations. Each validation translates all validation texts."""
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

    def __post_init__(self) -> None:
        """Raise `InputError` for a value that is out of range."""
        super().__post_init__()
        find_criterion(self.criterion)
        if self.sharded and (self.snapshots or self.keep):
            name = "snapshots" if self.snapshots else "keep"
            raise InputError(f"{name} needs the whole model in one process: leave out --{name} or --sharded")
        check_sharded_precision(self)

    def check_task(self, task: TranslationTaskConfig) -> None:
        """Raise `InputError` for options that have no effect with the text and the tokenizer of a task."""
        criterion, validated = find_criterion(self.criterion), task.valid or task.hub
        if criterion.text:
            criterion.check_text(task.extra_paths)
        if self.patience and not validated:
            raise InputError(
                f"patience {self.patience} counts validations, but there is no validation text: give --valid, or "
                "--patience 0"
            )
        if self.merge_dropout and task.tokenizer in ("unigram", "words", "characters"):
            raise InputError(
                f"merge_dropout skips merges, which the tokenizer {task.tokenizer} does not have: use it with "
                "--tokenizer bpe"
            )
        if self.merge_dropout and task.guide is not None:
            raise InputError("guide aligns tokens, which merge_dropout changes: leave out one of these flags")
        if task.languages and task.hub is None:
            raise InputError("languages names columns of a data set: also give --hub, or leave out languages")

    @property
    def optimization(self) -> Recipe:
        return transformer_recipe(self.warmup, self.clip, self.schedule, self.weight_decay)
