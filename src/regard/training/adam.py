"""Adam (Kingma and Ba 2015, algorithm 1) over named parameters, with decoupled weight decay (AdamW, Loshchilov
and Hutter 2019, algorithm 2).

`torch.optim.AdamW` or `fast.adam` computes the updates. This class multiplies the learning rate by a factor for
each parameter, and stores the moments by parameter name, as in a checkpoint.
"""

from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import nn

from regard import fast
from regard.fast.adam import fused_adam_step
from regard.training.config import Recipe

EPSILON = 1e-8  # Number added to the square root of the second moment, as in the paper


class Adam:
    """Adam with a learning rate for each training step, multiplied by a factor for each parameter.

    `lr_factors`: factors by parameter name. `weight_decay`: decoupled decay of matrices and embeddings.
    `moments`: `step`, `mean` and `square`, each by parameter name.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        *,
        betas: tuple[float, float],
        lr_factors: Mapping[str, float],
        weight_decay: float = 0.0,
    ) -> None:
        self.parameters = dict(parameters)
        self.betas = betas
        self.lr_factors = dict(lr_factors)
        # Biases and the parameters of normalizations do not decay.
        self.decays = {
            name: weight_decay if parameter.dim() > 1 else 0.0 for name, parameter in self.parameters.items()
        }
        self._groups: dict[tuple[float, float], list[str]] = defaultdict(list)
        for name in self.parameters:
            self._groups[self.lr_factors[name], self.decays[name]].append(name)
        # The step counts are views of one tensor, so that one operation increments all counts. On a GPU, the
        # step counts must be in GPU memory.
        device = next((parameter.device for parameter in self.parameters.values()), None)
        self._counts = torch.zeros(len(self.parameters), device=device)
        self.moments = {
            name: {
                "step": count,
                "mean": torch.zeros_like(parameter, requires_grad=False),
                "square": torch.zeros_like(parameter, requires_grad=False),
            }
            for count, (name, parameter) in zip(self._counts.unbind(), self.parameters.items(), strict=True)
        }

    @property
    def param_groups(self) -> list[dict[str, list[nn.Parameter]]]:
        return [{"params": list(self.parameters.values())}]

    def zero_grad(self) -> None:
        for parameter in self.parameters.values():
            parameter.grad = None

    def step(self, lr: float) -> None:
        """Update every parameter that has a gradient, with the rate `lr` multiplied by the parameter's factor."""
        names = [name for name, parameter in self.parameters.items() if parameter.grad is not None]
        if fast.enabled():
            self._fused_step(lr, set(names))
        else:
            self._reference_step(lr, names)

    def _reference_step(self, lr: float, names: list[str]) -> None:
        groups = [
            {"params": [self.parameters[name]], "lr": lr * self.lr_factors[name], "weight_decay": self.decays[name]}
            for name in names
        ]
        optimizer = torch.optim.AdamW(groups, betas=self.betas, eps=EPSILON, foreach=False)
        for name in names:
            moments = self.moments[name]
            optimizer.state[self.parameters[name]] = {
                "step": moments["step"],
                "exp_avg": moments["mean"],
                "exp_avg_sq": moments["square"],
            }
        optimizer.step()

    def _fused_step(self, lr: float, with_grad: set[str]) -> None:
        if len(with_grad) == len(self.parameters):
            self._counts += 1
        else:
            for name in with_grad:
                self.moments[name]["step"] += 1
        for (factor, decay), group in self._groups.items():
            names = [name for name in group if name in with_grad]
            parameters = [self.parameters[name] for name in names]
            if names:
                fused_adam_step(
                    parameters,
                    [parameter.grad for parameter in parameters if parameter.grad is not None],
                    [self.moments[name] for name in names],
                    lr=lr * factor,
                    betas=self.betas,
                    epsilon=EPSILON,
                    weight_decay=decay,
                )


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def make_optimizer(model: nn.Module, recipe: Recipe) -> Adam:
    """Return Adam for the trainable parameters of a model, with the recipe's factor for the rate of the output layer.

    >>> from regard.training.config import RECIPES
    >>> make_optimizer(nn.Linear(2, 1), RECIPES["seed"]).lr_factors
    {'weight': 1.0, 'bias': 1.0}
    """
    parameters = trained_parameters(model)
    factors = {name: recipe.output_lr if name.startswith("output.") else 1.0 for name in parameters}
    return Adam(parameters, betas=recipe.betas, lr_factors=factors, weight_decay=recipe.weight_decay)
