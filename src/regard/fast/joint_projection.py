"""One matrix product for several linear layers that read the same states, in training.

Replaces the separate products for queries, keys and values in `MultiHeadAttention`.
Gain: fewer operations in a training step (docs/dev/benchmarks.md, "A training step on a CPU"), which counts
  on a GPU; on a CPU, the products take the same time.
The fast path is not used in evaluation, without gradients, for layers with hooks or of another class than
  `nn.Linear`, or with `REGARD_REFERENCE=1`.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.fast import enabled


def can_join(layers: Sequence[nn.Linear]) -> bool:
    """Return whether `joint_linear` may replace the layers: plain layers in training, all with or all without a
    bias.

    >>> can_join([nn.Linear(2, 2), nn.Linear(2, 3)]), can_join([nn.Linear(2, 2).eval()])
    (True, False)
    """
    if not torch.is_grad_enabled() or not enabled():
        return False
    if len({layer.bias is None for layer in layers}) > 1:
        return False
    return all(type(layer) is nn.Linear and layer.training and not _is_watched(layer) for layer in layers)


def joint_linear(states: Tensor, layers: Sequence[nn.Linear]) -> Tensor:
    """Return the outputs of the layers for states (..., D), side by side: (..., sum of widths).

    >>> joint_linear(torch.zeros(5, 2), [nn.Linear(2, 2), nn.Linear(2, 3)]).shape
    torch.Size([5, 5])
    """
    biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
    bias = torch.cat(biases) if biases else None
    weights: list[Tensor] = [layer.weight for layer in layers]
    return F.linear(states, torch.cat(weights), bias)


def _is_watched(layer: nn.Module) -> bool:
    """Return whether a hook reads or changes the inputs, outputs or gradients of a layer."""
    return bool(
        layer._forward_hooks
        or layer._forward_pre_hooks
        or layer._backward_hooks
        or layer._backward_pre_hooks
        or "forward" in layer.__dict__
    )
