"""ReLU for compiled layers.

Replaces `torch.relu` in `FeedForward` while a compiler traces the layer.
Gain: a compiled training step of the tiny Transformer takes 0.73 of the time on a CPU (docs/dev/benchmarks.md, "A
training step on a CPU"). The fast path is not used without a compiler.
"""

from typing import Any

import torch
from torch import Tensor


def compiled_relu(values: Tensor) -> Tensor:
    """Return max(values, 0), with the gradient 0 at 0.

    PyTorch's derivative stores a mask of booleans. PyTorch 2.13 compiles the conversion to booleans to a loop
    over single values, which takes ten times as long as the activation itself.
    """
    apply: Any = _Relu.apply
    output: Tensor = apply(values)
    return output


class _Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        output = values.relu()
        ctx.save_for_backward(output)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (output,) = ctx.saved_tensors
        grad: Tensor = grads[0] * output.sign()
        return grad
