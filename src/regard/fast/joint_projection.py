"""One matrix product for several linear layers that read the same states, in training.

Replaces the separate products for queries, keys and values in `MultiHeadAttention`.
Gain: fewer operations in a training step, which counts on a GPU; on a CPU, the products take the same time (1.02
  times as fast with width 256). It is kept, because separate products round differently: all losses would change.
The fast path is not used in evaluation, without gradients, for layers with hooks or of another class than
  `nn.Linear`, or with `REGARD_REFERENCE=1`.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.fast import enabled


def can_join(layers: Sequence[nn.Linear]) -> bool:
    """Return whether `joint_linear` may replace the layers: plain layers in training, all with or without a bias."""
    if not torch.is_grad_enabled() or not enabled():
        return False
    if len({layer.bias is None for layer in layers}) > 1:
        return False
    if not all(type(layer) is nn.Linear and layer.training for layer in layers):
        return False
    # Hooks read or change the inputs, outputs or gradients of one layer.
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return not any(getattr(layer, kind) for layer in layers for kind in hooks) and not any(
        "forward" in layer.__dict__ for layer in layers
    )


def joint_linear(states: Tensor, layers: Sequence[nn.Linear]) -> Tensor:
    """Return the outputs of the layers for states (..., D), side by side: (..., sum of widths)."""
    biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
    bias = torch.cat(biases) if biases else None
    weights: list[Tensor] = [layer.weight for layer in layers]
    return F.linear(states, torch.cat(weights), bias)
