"""Products in float32 on a CPU, by the faster of the two libraries that PyTorch brings along for them.

PyTorch hands products of float32 to MKL, which uses processors that are not Intel's at half their width; oneDNN,
to which it hands those of bfloat16, is more than twice as fast there for large ones (docs/benchmarks.md), and has
more to prepare for each call, so that small ones stay with MKL. Called is what PyTorch's own compiler calls.

Letters: N rows, D columns of them, V rows of a weight.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LARGE = 1 << 20
"""Multiplications from which oneDNN is faster."""
LARGE_WITH_GRADIENT = 1 << 22
"""The same where autograd is to know of it, which here costs Python's time."""


class Linear(nn.Linear):
    """`states Wᵀ + b`: PyTorch's layer, large products in float32 by oneDNN."""

    def forward(self, input: Tensor) -> Tensor:
        """Return (..., V) of states (..., D)."""
        return linear(input, self.weight, self.bias)


def linear(states: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `states Wᵀ + b` as `F.linear` does: (..., V) of states (..., D), weight (V, D), bias (V,)."""
    count = states.numel() * weight.shape[0]
    if count < LARGE or not _own(states, weight):
        return F.linear(states, weight, bias)
    given = (states, weight) if bias is None else (states, weight, bias)
    if not (torch.is_grad_enabled() and any(each.requires_grad for each in given)):
        return _multiplied(states, weight, bias)
    if count < LARGE_WITH_GRADIENT:
        return F.linear(states, weight, bias)
    apply: Any = _Linear.apply
    found: Tensor = apply(states, weight, bias)
    return found


def product(left: Tensor, right: Tensor) -> Tensor:
    """Return `left @ right` of two matrices, (N, D) and (D, V); without a gradient where it is large."""
    if left.numel() * right.shape[1] < LARGE or not _own(left, right):
        return left @ right
    return _multiplied(left, right.t(), None)


class _Linear(torch.autograd.Function):
    """`linear` as autograd knows it."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(states, weight)
        return _multiplied(states, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        [grad], (states, weight) = grads, ctx.saved_tensors
        flat, rows = grad.flatten(0, -2), states.flatten(0, -2)
        multiply = torch.mm if torch.is_grad_enabled() else product  # whoever derives twice has autograd do it
        to_states = multiply(flat, weight).view_as(states) if ctx.needs_input_grad[0] else None
        to_weight = multiply(flat.t(), rows) if ctx.needs_input_grad[1] else None
        return to_states, to_weight, flat.sum(0) if ctx.needs_input_grad[2] else None


def _multiplied(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return _by_onednn(_dense(states), _dense(weight), bias)


def _by_onednn(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise(states, weight, bias, "none", [], "")
    return found


def _dense(factor: Tensor) -> Tensor:
    """Return the same numbers without gaps: for a part of a wider matrix oneDNN takes a thousand times as long."""
    turned = factor.dim() == 2 and factor.t().is_contiguous()
    return factor if turned else factor.contiguous()


def _own(*factors: Tensor) -> bool:
    """Whether these are plain float32 on a CPU, and nobody watches, compiles, stacks or narrows the product."""
    return (
        all(each.dtype == torch.float32 and each.device.type == "cpu" for each in factors)
        and all(type(each) in (Tensor, nn.Parameter) for each in factors)
        and not torch.is_autocast_enabled("cpu")
        and not any(torch._C._functorch.is_functorch_wrapped_tensor(each) for each in factors)
        and not torch._C._len_torch_function_stack()
        and not torch._C._len_torch_dispatch_stack()
        and not torch.compiler.is_compiling()
        and there()
    )


def there() -> bool:
    """Whether PyTorch was built with oneDNN, and has the product that its own compiler uses."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
