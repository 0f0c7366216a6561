"""Training options of language models: AdamW with warm-up, cosine decay and gradient clipping."""

import math
from dataclasses import dataclass
from typing import Annotated

from regard.arguments import Limits
from regard.errors import InputError
from regard.training.settings import FLOAT32, Decay, Precision, Recipe, SampledTraining, check_sharded_precision

LR = 0.001
"""Default peak learning rate."""


@dataclass(frozen=True, kw_only=True)
class TokenTraining(SampledTraining):
    """Training options of language models."""

    batchsize: int = 64
    """Number of sequences in a batch."""
    snapshots: int = 50
    """Number of snapshots: copies of the parameters from step 0 to the last step, denser at the beginning.
    Snapshots show how attention forms. 0: no snapshots."""
    accumulate: Annotated[int, Limits(1, 10**4)] = 1
    """Number of batches whose gradients are summed for one training step."""
    schedule: Decay = "one_cycle"
    """Decay of the learning rate after the warm-up: a cosine (one_cycle), the inverse square root of the step
    (inverse_sqrt), or none (constant)."""
    warmup: Annotated[float, Limits(0, 1, "high")] = 0.05
    """Fraction of the training steps in which the learning rate increases."""
    last_lr: Annotated[float, Limits(0, 1)] = 0.0
    """Fraction of the peak rate that the cosine reaches at the last step."""
    beta1: Annotated[float, Limits(0, 1, "high")] = 0.9
    """Decay rate of Adam for the mean of the gradient."""
    beta2: Annotated[float, Limits(0, 1, "high")] = 0.98
    """Decay rate of Adam for the squared gradient."""
    weight_decay: Annotated[float, Limits(0, 1000)] = 0.1
    """Weight decay of matrices and embeddings, multiplied by the learning rate (AdamW, Loshchilov and Hutter
    2019); 0: no decay."""
    clip: Annotated[float, Limits(0, math.inf, "low")] = 1.0
    """Largest norm of the gradient."""
    precision: Precision = FLOAT32
    """Dtype of matrix products: bfloat16, float16 or float32. auto: the faster of bfloat16 and float32,
    measured once for each machine. float16 is for GPUs without bfloat16; it scales the loss (Micikevicius et al.
    2018)."""
    validate_every: Annotated[int, Limits(0, 10**9)] = 500
    """Number of training steps between two measurements of the validation loss, on samples that are not in the
    training data; 0: none."""
    compile: bool = False
    """Compile the layers with torch.compile, which takes one or two minutes. On a CPU, steps without
    dropout do not become faster."""
    sharded: bool = False
    """Split parameters, gradients and moments between the processes of torchrun (FSDP2)."""
    tensorboard: bool = False
    """Also write metrics for TensorBoard into the folder of the run (needs the extra track)."""

    def __post_init__(self) -> None:
        """Raise `InputError` for a value that is out of range."""
        super().__post_init__()
        if self.sharded and self.snapshots:
            raise InputError("snapshots need the whole model in one process: give --snapshots 0 with --sharded")
        check_sharded_precision(self)

    @property
    def optimization(self) -> Recipe:
        return Recipe(
            lr=LR,
            encoder_lr=LR,
            output_lr=1.0,
            betas=(self.beta1, self.beta2),
            warmup=self.warmup,
            clip=self.clip,
            decay=self.schedule,
            last=self.last_lr,
            weight_decay=self.weight_decay,
        )
