"""Adam (Kingma and Ba 2015, algorithm 1) over named parameters.

The arithmetic is PyTorch's own fused step. Its class `torch.optim.Adam` is not used because the first one
made in a process imports PyTorch's compiler, which takes as long as importing PyTorch itself: a quarter of a
whole training of Counting; and because around that step it does half as much again for small models, whose counts
of steps here are one tensor. It also lets the moments bear the names of their parameters.
"""

from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import nn

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
        self._groups: dict[float, list[str]] = defaultdict(list)
        for name in self.parameters:
            self._groups[self.lr_factors[name]].append(name)
        device = next(
            (each.device for each in self.parameters.values()), None
        )  # a GPU's step reads the counts there
        self._counts = torch.zeros(len(self.parameters), device=device)
        self.moments = {
            name: {
                "step": count,
                "mean": torch.zeros_like(parameter, requires_grad=False),
                "square": torch.zeros_like(parameter, requires_grad=False),
            }
            for count, (name, parameter) in zip(self._counts.unbind(), self.parameters.items(), strict=True)
        }

    def zero_grad(self) -> None:
        """Forget the gradients of the last step."""
        for parameter in self.parameters.values():
            parameter.grad = None

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Move every parameter that has a gradient, by rate `lr` times its factor."""
        grads = {name: each.grad for name, each in self.parameters.items() if each.grad is not None}
        if len(grads) == len(self.parameters):
            self._counts += 1
        else:
            for name in grads:
                self.moments[name]["step"] += 1
        for factor, group in self._groups.items():
            names = [name for name in group if name in grads]
            moments = [self.moments[name] for name in names]
            if names:
                torch._fused_adam_(
                    [self.parameters[name] for name in names],
                    [grads[name] for name in names],
                    [each["mean"] for each in moments],
                    [each["square"] for each in moments],
                    [],
                    [each["step"] for each in moments],
                    lr=lr * factor,
                    beta1=self.betas[0],
                    beta2=self.betas[1],
                    weight_decay=0.0,
                    eps=EPSILON,
                    amsgrad=False,
                    maximize=False,
                )
