"""Products in float32 on a CPU, by the faster of the two libraries that PyTorch brings along for them.

PyTorch hands products of float32 to MKL, which uses processors that are not Intel's at half their width; oneDNN,
to which it hands those of bfloat16, is more than twice as fast there for large ones (docs/benchmarks.md), and has
more to prepare for each call, so that small ones stay with MKL. Called is what PyTorch's own compiler calls.

For each shape of matrices oneDNN compiles a kernel, in half a millisecond and half a megabyte, and keeps the last
ones. So `product` is for shapes that come back step after step, and `linear` fills up rows to one of few counts.

Letters: N rows, D columns of them, V rows of a weight.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LARGE = 1 << 20
"""Multiplications from which oneDNN is faster."""
FEWEST = 16
"""Rows that are filled up together, at least."""


class Linear(nn.Linear):
    """`states Wᵀ + b`: PyTorch's layer; large products in float32 by oneDNN where no gradient is asked for."""

    def forward(self, input: Tensor) -> Tensor:
        """Return (..., V) of states (..., D)."""
        return linear(input, self.weight, self.bias)


def linear(states: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `states Wᵀ + b` as `F.linear` does: (..., V) of states (..., D), weight (V, D), bias (V,)."""
    if states.numel() * weight.shape[0] < LARGE or torch.is_grad_enabled() or not _own(states, weight):
        return F.linear(states, weight, bias)
    found = _by_onednn(_dense(filled_up(states.reshape(-1, states.shape[-1]))), _dense(weight), bias)
    return found[: states.shape[:-1].numel()].view(*states.shape[:-1], -1)


def product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `left @ right` of two matrices, (N, D) and (D, V), plus a bias (V,); large ones have no gradient."""
    if left.numel() * right.shape[1] < LARGE or not _own(left, right):
        return left @ right if bias is None else torch.addmm(bias, left, right)
    return _by_onednn(_dense(left), _dense(right.t()), bias)


def filled_up(rows: Tensor) -> Tensor:
    """Return rows (N, D) with as many of zeros that there are 16 or a quarter of a power of two more or fewer."""
    count = len(rows)
    together = max(FEWEST, 1 << max(count.bit_length() - 3, 0))
    missing = -count % together
    return F.pad(rows, (0, 0, 0, missing)) if missing else rows


def there() -> bool:
    """Whether PyTorch was built with oneDNN, and has the product that its own compiler uses."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _by_onednn(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise(states, weight, bias, "none", [], "")
    return found


def _dense(factor: Tensor) -> Tensor:
    """Return the same numbers without gaps: in those of a wider matrix oneDNN takes a thousand times as long."""
    return factor if factor.t().is_contiguous() else factor.contiguous()


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
