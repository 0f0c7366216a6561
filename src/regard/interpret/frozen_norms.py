"""Norms with a fixed scale, which are linear functions (Elhage et al. 2021, "Handling layer normalization").

norm(x) = x * scale(x) * weight + bias          frozen: scale(x) is a constant, its value in this pass
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn


def same_value(value: Tensor, linear: Tensor) -> Tensor:
    return value.detach() + (linear - linear.detach())


def fixed_ratio(output: Tensor, states: Tensor) -> Tensor:
    """Return `output / states` as a constant, and 0 where `states` is 0.

    >>> fixed_ratio(torch.tensor([1.0, 3.0]), torch.tensor([2.0, 0.0]))
    tensor([0.5000, 0.0000])
    """
    return torch.where(states == 0, 0.0, output / states).detach()


def freeze_norm(
    module: nn.Module, states: Tensor, output: Tensor, add_bias: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return the output of a norm with the gradients of the norm whose scale is fixed.

    `states`, `output`: input and output (..., D) of the norm. `add_bias` receives the bias (D,) and returns the
    tensor, broadcastable to (..., D), that represents the bias in the graph.
    """
    with torch.no_grad():
        centred = bool(torch.allclose(module.forward(states + states.std()), output, atol=1e-3, rtol=1e-3))
        direction = states - states.mean(-1, keepdim=True) if centred else states
        bias = getattr(module, "bias", None)
        scaled = output if bias is None else output - bias
        if isinstance(module, nn.LayerNorm):  # a quotient would be inexact where the direction is near 0
            scale = (direction.square().mean(-1, keepdim=True) + module.eps).rsqrt()
            ratio = scale if module.weight is None else scale * module.weight
        else:
            ratio = fixed_ratio(scaled, direction)
    linear = (states - states.mean(-1, keepdim=True) if centred else states) * ratio
    if bias is not None:
        linear = linear + add_bias(bias)
    return same_value(output, linear)
