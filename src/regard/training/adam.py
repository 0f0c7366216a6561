"""Adam (Kingma and Ba 2015, algorithm 1) over named parameters.

The arithmetic is PyTorch's own fused step. Its class `torch.optim.Adam` is not used because the first one
made in a process imports PyTorch's compiler, which takes as long as importing PyTorch itself: a quarter of a
whole training of Counting. It also lets the moments bear the names of their parameters.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

EPSILON = 1e-8
"""Added to the root of the second moment; the paper's value."""


class Adam:
    """Adam with a learning rate for each step, times a factor for each parameter.

    `lr_factors`: from name to factor. Moments are kept by the parameter's name, in `moments`.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        *,
        betas: tuple[float, float],
        lr_factors: Mapping[str, float],
    ) -> None:
        self.parameters = dict(parameters)
        self.betas = betas
        self.lr_factors = dict(lr_factors)
        self.moments = {
            name: {
                "step": torch.zeros((), device=parameter.device),  # where a GPU's fused step reads it
                "mean": torch.zeros_like(parameter, requires_grad=False),
                "square": torch.zeros_like(parameter, requires_grad=False),
            }
            for name, parameter in self.parameters.items()
        }

    def zero_grad(self) -> None:
        """Forget the gradients of the last step."""
        for parameter in self.parameters.values():
            parameter.grad = None

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Move every parameter that has a gradient, by rate `lr` times its factor."""
        for factor in sorted(set(self.lr_factors.values())):
            names = [
                name
                for name, parameter in self.parameters.items()
                if self.lr_factors[name] == factor and parameter.grad is not None
            ]
            moments = [self.moments[name] for name in names]
            adam(
                [self.parameters[name] for name in names],
                [_grad(self.parameters[name]) for name in names],
                [each["mean"] for each in moments],
                [each["square"] for each in moments],
                [],
                [each["step"] for each in moments],
                fused=True,
                amsgrad=False,
                beta1=self.betas[0],
                beta2=self.betas[1],
                lr=lr * factor,
                weight_decay=0.0,
                eps=EPSILON,
                maximize=False,
            )


def _grad(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad
