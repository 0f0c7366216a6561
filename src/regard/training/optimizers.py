"""Recipes: learning rate, schedule and Adam settings of each kind of training.

The query model has two. `regard` learns the primer's tasks reliably within the primer's number of steps. `seed`
is the primer's own. docs/explanation/results.md compares both over 10 seeds, and measures each part of `regard`.
"""

import math
from dataclasses import dataclass
from typing import Literal

from torch import nn

from regard.models import ModelConfig
from regard.training.adam import Adam

Decay = Literal["one_cycle", "inverse_sqrt"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of the optimizer and of the learning rate schedule.

    >>> recipe = Recipe(lr=1.0, encoder_lr=1.0, output_lr=1.0, betas=(0.9, 0.98), warmup=0.5, clip=None)
    >>> [round(recipe.schedule(step, 4), 2) for step in range(4)]
    [0.5, 1.0, 0.75, 0.25]
    """

    lr: float
    """Peak learning rate without encoder layers."""
    encoder_lr: float
    """Peak learning rate with encoder layers."""
    output_lr: float
    """Factor on the learning rate of the output layer."""
    betas: tuple[float, float]
    """Adam's decay rates of the gradient's mean and of its square."""
    warmup: float | None
    """Share of the steps in which the rate rises; None for a constant rate."""
    clip: float | None
    """Largest norm of the gradient over all parameters; None for no limit."""
    decay: Decay = "one_cycle"
    """Decay after the warm-up: a cosine to zero at the last step (one_cycle), or the inverse square root of the
    step (Vaswani et al. 2017, section 5.3)."""

    def default_lr(self, model: ModelConfig) -> float:
        """Return the peak learning rate of a model."""
        return self.encoder_lr if model.enc_layers else self.lr

    def schedule(self, step: int, steps: int) -> float:
        """Return the factor on the peak rate at `step` (from 0) of `steps`."""
        if self.warmup is None:
            return 1.0
        rise = self.warmup * steps
        if step + 1 < rise:
            return (step + 1) / rise
        if self.decay == "inverse_sqrt":
            return math.sqrt(max(rise, 1.0) / (step + 1))
        return (1 + math.cos(math.pi * (step + 1 - rise) / (steps + 1 - rise))) / 2

    def optimizer(self, model: nn.Module) -> Adam:
        """Return Adam over the trainable parameters of a model."""
        parameters = trained_parameters(model)
        factors = {name: self.output_lr if name.startswith("output.") else 1.0 for name in parameters}
        return Adam(parameters, betas=self.betas, lr_factors=factors)


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the trainable parameters by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


RECIPES = {
    "regard": Recipe(
        lr=0.05,
        encoder_lr=0.005,
        output_lr=8.0,
        betas=(0.95, 0.98),
        warmup=0.2,
        clip=None,
    ),
    "seed": Recipe(
        lr=0.01,
        encoder_lr=0.001,
        output_lr=1.0,
        betas=(0.9, 0.999),
        warmup=None,
        clip=None,
    ),
}
"""Recipes of the query model."""
RECURRENT = Recipe(lr=0.005, encoder_lr=0.005, output_lr=1.0, betas=(0.9, 0.98), warmup=0.1, clip=1.0)
"""Recipe of recurrent models."""
TRANSFORMER = Recipe(lr=0.002, encoder_lr=0.002, output_lr=1.0, betas=(0.9, 0.98), warmup=0.1, clip=1.0)
"""Recipe of Transformers and of custom models."""
