"""Products in float32 on a CPU, by the faster of the two libraries that PyTorch brings along for them.

PyTorch hands products of float32 to MKL, which uses processors that are not Intel's at half their width; oneDNN,
to which it hands those of bfloat16, is more than twice as fast there for large ones (docs/benchmarks.md), and has
more to prepare for each call, so that small ones stay with MKL. Called is what PyTorch's own compiler calls.

For each shape of matrices oneDNN compiles a kernel, in half a millisecond and half a megabyte, and keeps the last
ones. So `product` is for shapes that come back step after step, and `OneDNNMode` fills up rows to one of few
counts. Whatever asks for a gradient, or is not as plain as oneDNN needs it, is left to PyTorch.

Letters: N rows, D columns of them, V rows of a weight.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

LARGE = 1 << 20
"""Multiplications from which oneDNN is faster."""
FEWEST = 16
"""Rows that are filled up together, at least."""


class OneDNNMode(TorchFunctionMode):
    """In its block, large products of PyTorch's linear layers are by oneDNN."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function of PyTorch's, or what does the same."""
        return (_linear if func is F.linear else func)(*args, **(kwargs or {}))


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `input Wᵀ + b`, (..., V) of input (..., D), weight (V, D) and bias (V,)."""
    fit = input.dim() > 1 and weight.dim() == 2 and input.shape[-1] == weight.shape[1]
    large = input.numel() * weight.shape[0] >= LARGE
    if not (fit and large and _vector(bias, len(weight)) and _own(bias, input, weight)):
        return F.linear(input, weight, bias)
    found = by_onednn(_dense(filled_up(input.reshape(-1, input.shape[-1]))), _dense(weight), bias)
    return found[: input.shape[:-1].numel()].view(*input.shape[:-1], -1)


def product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `left @ right` of two matrices, (N, D) and (D, V), plus a bias (V,)."""
    large = left.numel() * right.shape[1] >= LARGE
    if not (large and _vector(bias, right.shape[1]) and _own(bias, left, right)):
        return left @ right if bias is None else torch.addmm(bias, left, right)
    return by_onednn(_dense(left), _dense(right.t()), bias)


def filled_up(rows: Tensor) -> Tensor:
    """Return rows (N, D) with as many of zeros that there are 16 or a quarter of a power of two more or fewer."""
    count = len(rows)
    together = max(FEWEST, 1 << max(count.bit_length() - 3, 0))
    missing = -count % together
    return F.pad(rows, (0, 0, 0, missing)) if missing else rows


def there() -> bool:
    """Whether PyTorch was built with oneDNN, and has the product that its own compiler uses."""
    mkldnn = torch.backends.mkldnn
    return bool(mkldnn.is_available() and mkldnn.enabled) and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def by_onednn(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return `states Wᵀ + b`; the weight may be laid out already."""
    found: Tensor = torch.ops.mkldnn._linear_pointwise(states, weight, bias, "none", [], "")
    return found


def _dense(factor: Tensor) -> Tensor:
    """Return the same numbers without gaps: in those of a wider matrix oneDNN takes a thousand times as long."""
    return factor if factor.t().is_contiguous() else factor.contiguous()


def _vector(bias: Tensor | None, columns: int) -> bool:
    """Whether a bias is a number for each column, side by side: oneDNN reads any as if it were."""
    return bias is None or (bias.shape == (columns,) and bias.is_contiguous())


def _own(bias: Tensor | None, *factors: Tensor) -> bool:
    """Whether these are plain float32 on a CPU, and nobody derives, watches, compiles, stacks or narrows the
    product."""
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or forward_ad._current_level >= 0:
        return False
    if bias is not None:
        factors = (*factors, bias)
    return (
        all(each.dtype == torch.float32 and each.device.type == "cpu" for each in factors)
        and all(type(each) in (Tensor, nn.Parameter) for each in factors)
        and not torch.is_autocast_enabled("cpu")
        and not any(torch._C._functorch.is_functorch_wrapped_tensor(each) for each in factors)
        and not torch._C._len_torch_function_stack()
        and not torch._C._len_torch_dispatch_stack()
        and torch._C._get_tracing_state() is None
        and there()
    )
