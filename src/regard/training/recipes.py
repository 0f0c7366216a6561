"""Recipes: how the optimizer moves the parameters.

Of the query model's two, `regard` makes the primer's tasks reliable within the primer's steps; `seed` is the
primer's own recipe. docs/results.md has both over 10 seeds, and says what each part of `regard` is for.
"""

import math
from dataclasses import dataclass
from typing import Literal

from torch import nn

from regard.models import ModelConfig
from regard.training.adam import Adam
from regard.training.freezing import trained_parameters

Decay = Literal["one_cycle", "inverse_sqrt"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One way to train a model."""

    lr: float
    """Peak learning rate without encoder layers."""
    encoder_lr: float
    """Peak learning rate with encoder layers."""
    output_lr: float
    """Factor on the learning rate of the output layer."""
    betas: tuple[float, float]
    """Adam's decay rates of the gradient's mean and of its square."""
    warmup: float | None
    """Share of the steps over which the rate rises, before it falls; None: a constant rate."""
    clip: float | None
    """Largest norm of the gradient over all parameters; None: as it comes."""
    decay: Decay = "one_cycle"
    """How the rate falls: as a cosine to zero at the last step (one_cycle), or as the inverse square root of the
    step (Vaswani et al. 2017, section 5.3)."""

    def default_lr(self, model: ModelConfig) -> float:
        """Return the peak learning rate for a model of this shape."""
        return self.encoder_lr if model.enc_layers else self.lr

    def schedule(self, step: int, steps: int) -> float:
        """Return the factor on the peak rate at `step`, from 0, of `steps`."""
        if self.warmup is None:
            return 1.0
        rise = self.warmup * steps
        if step + 1 < rise:
            return (step + 1) / rise
        if self.decay == "inverse_sqrt":
            return math.sqrt(max(rise, 1.0) / (step + 1))
        return (1 + math.cos(math.pi * (step + 1 - rise) / (steps + 1 - rise))) / 2

    def optimizer(self, model: nn.Module) -> Adam:
        """Return Adam over what of `model` is trained."""
        parameters = trained_parameters(model)
        factors = {name: self.output_lr if name.startswith("output.") else 1.0 for name in parameters}
        return Adam(parameters, betas=self.betas, lr_factors=factors)


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
"""The query model's."""
RECURRENT = Recipe(lr=0.005, encoder_lr=0.005, output_lr=1.0, betas=(0.9, 0.98), warmup=0.1, clip=1.0)
"""Recurrent models'."""
TRANSFORMER = Recipe(lr=0.002, encoder_lr=0.002, output_lr=1.0, betas=(0.9, 0.98), warmup=0.1, clip=1.0)
"""Transformers'."""
OWN = Recipe(lr=0.002, encoder_lr=0.002, output_lr=1.0, betas=(0.9, 0.98), warmup=0.1, clip=1.0)
"""Those of models of one's own."""
